//! Suffixes that distinguish tasks of the same class, method and arguments.

use crate::clock;

/// Crockford's base 32, without `i`, `l`, `o` and `u`.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// Number of characters of 5 bits each that 128 bits need.
const LENGTH: usize = 26;

const RANDOM_BITS: u32 = 80;

/// Returns a new ULID, in lower case: 48 bits of milliseconds and 80 random ones, so that suffixes sort by time. The clock
/// of this machine is good enough for that.
pub(super) fn ulid() -> String {
    let random: u128 = rand::random();
    let ms = u128::from(clock::wall().0.unsigned_abs());
    encode(ms << RANDOM_BITS | random >> (u128::BITS - RANDOM_BITS))
}

fn encode(bits: u128) -> String {
    let character = |place: usize| char::from(ALPHABET[(bits >> (5 * place)) as usize & 31]);
    (0..LENGTH).rev().map(character).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_sort_by_time_and_differ() {
        let (one, other) = (ulid(), ulid());
        assert_eq!(one.len(), LENGTH);
        assert_ne!(one, other);
        assert_eq!(encode(u128::MAX), "7zzzzzzzzzzzzzzzzzzzzzzzzz");
        assert!(encode(1 << RANDOM_BITS) > encode((1 << RANDOM_BITS) - 1));
    }
}
