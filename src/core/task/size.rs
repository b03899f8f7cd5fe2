//! Size limits of the texts of a task.

/// Longest payload, in bytes.
pub const PAYLOAD_BYTES_MAX: usize = 64 * 1024;

/// Longest payload that a claim reads, in bytes. Rows from other programs may hold more; such a payload is not read,
/// because one claim reads hundreds of rows. The margin is for the envelope.
pub const PAYLOAD_READ_MAX: usize = PAYLOAD_BYTES_MAX + 8 * 1024;

/// Longest tag, in characters.
pub const TAG_CHARS_MAX: usize = 128;

/// Longest result kept, in bytes.
pub const RESULT_BYTES_MAX: usize = 64 * 1024;

/// Longest error text kept, in bytes.
pub const ERROR_BYTES_MAX: usize = 2048;
