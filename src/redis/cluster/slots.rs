//! Hash slots: which part of a cluster a name belongs to.
//!
//! The rule is in <https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/>.

/// Number of slots of a cluster.
pub const SLOTS: u16 = 16_384;

/// Longest number that is tried as a hash tag. Each slot has a shorter one.
const TAGS_MAX: u32 = 1_000_000;

/// Returns the slot of a name: the checksum of its hash tag, or of the whole name if it has none.
pub fn slot_of(name: &[u8]) -> u16 {
    crc16(hash_tag(name).unwrap_or(name)) % SLOTS
}

/// Returns the text between the first `{` and the next `}`, unless it is empty.
pub fn hash_tag(name: &[u8]) -> Option<&[u8]> {
    let start = name.iter().position(|byte| *byte == b'{')? + 1;
    let length = name[start..].iter().position(|byte| *byte == b'}')?;
    (length > 0).then(|| &name[start..start + length])
}

/// Returns the end of a name, with the smallest number as hash tag whose slot is accepted.
pub fn tag_in(accepts: impl Fn(u16) -> bool) -> Option<(u16, String)> {
    (0..TAGS_MAX).find_map(|number| {
        let text = number.to_string();
        let slot = slot_of(text.as_bytes());
        accepts(slot).then(|| (slot, format!("{{{text}}}")))
    })
}

/// CRC-16/XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| match crc >> 15 {
            0 => crc << 1,
            _ => (crc << 1) ^ 0x1021,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_the_checksum_of_the_name_or_of_its_hash_tag() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
        assert_eq!(slot_of(b"foo"), 12_182);
        assert_eq!(slot_of(b"{user1000}.following"), slot_of(b"user1000"));
        assert_eq!(slot_of(b"foo{bar}{zap}"), slot_of(b"bar"));
        assert_eq!(slot_of(b"foo{{bar}}zap"), slot_of(b"{bar"));
        for whole in [&b"foo{}{bar}"[..], b"foo{bar", b"foo}bar{"] {
            assert_eq!(slot_of(whole), crc16(whole) % SLOTS, "{whole:?}");
        }
    }

    #[test]
    fn each_slot_has_a_hash_tag() {
        for slot in [0, 1, 8_191, 16_383] {
            let (found, tag) = tag_in(|candidate| candidate == slot).unwrap();
            assert_eq!((found, slot_of(tag.as_bytes())), (slot, slot), "{tag}");
        }
    }
}
