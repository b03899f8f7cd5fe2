//! Size limits of the texts that a task carries.

/// Longest payload, in bytes.
pub const PAYLOAD_BYTES_MAX: usize = 64 * 1024;

/// Longest payload that a claim reads back, in bytes. A row that a program wrote with its own SQL may hold more; such a
/// payload is not read, since one claim reads hundreds of rows. The margin is for what may be wrapped around a payload.
pub const PAYLOAD_READ_MAX: usize = PAYLOAD_BYTES_MAX + 8 * 1024;

/// Longest tag, in characters.
pub const TAG_CHARS_MAX: usize = 128;

/// Longest result that is kept, in bytes.
pub const RESULT_BYTES_MAX: usize = 64 * 1024;

/// Longest error text that is kept, in bytes.
pub const ERROR_BYTES_MAX: usize = 2048;
