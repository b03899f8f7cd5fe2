//! Buckets of keys. Members divide the buckets among themselves, and the ledger's index contains them.

use std::fmt;

use super::TaskKey;

/// Number of buckets. The column `bucket` of the ledger's table is computed with the same number.
pub const BUCKETS: usize = 16_384;

/// A bucket: the lowest bits of the CRC-32 of the key's UTF-8 text, which database servers can compute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyBucket(u16);

impl KeyBucket {
    /// Returns the bucket of a key.
    pub fn of(key: &TaskKey) -> Self {
        let bits = crc32(key.as_str().as_bytes()) % BUCKETS as u32;
        Self(u16::try_from(bits).expect("a bucket number has 14 bits"))
    }

    /// Returns its number, from 0.
    pub fn number(self) -> u16 {
        self.0
    }

    /// Returns all buckets, in order.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..BUCKETS as u16).map(Self)
    }
}

/// A set of buckets, one bit each, the lowest bit of a byte first.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyBuckets(Box<[u8]>);

impl KeyBuckets {
    /// Returns the set of all buckets.
    pub fn all() -> Self {
        Self(vec![u8::MAX; BUCKETS / 8].into())
    }

    /// Returns the empty set.
    pub fn none() -> Self {
        Self(vec![0; BUCKETS / 8].into())
    }

    /// True if the set contains the bucket.
    pub fn contains(&self, bucket: KeyBucket) -> bool {
        self.0[usize::from(bucket.0 / 8)] & (1 << (bucket.0 % 8)) != 0
    }

    /// True if the set contains every bucket.
    pub fn is_all(&self) -> bool {
        self.0.iter().all(|bits| *bits == u8::MAX)
    }

    /// True if the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|bits| *bits == 0)
    }

    /// Returns the union of both sets.
    #[must_use]
    pub fn with(&self, other: &Self) -> Self {
        self.combined(other, |ours, theirs| ours | theirs)
    }

    /// Returns the set without the buckets of `other`.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        self.combined(other, |ours, theirs| ours & !theirs)
    }

    /// Returns the bits, as the ledger's statements take them.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    fn combined(&self, other: &Self, of: impl Fn(u8, u8) -> u8) -> Self {
        let pairs = self.0.iter().zip(&other.0);
        Self(pairs.map(|(ours, theirs)| of(*ours, *theirs)).collect())
    }
}

impl FromIterator<KeyBucket> for KeyBuckets {
    fn from_iter<I: IntoIterator<Item = KeyBucket>>(buckets: I) -> Self {
        let mut set = Self::none();
        for bucket in buckets {
            set.0[usize::from(bucket.0 / 8)] |= 1 << (bucket.0 % 8);
        }
        set
    }
}

impl fmt::Debug for KeyBuckets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count: u32 = self.0.iter().map(|bits| bits.count_ones()).sum();
        write!(f, "KeyBuckets({count} of {BUCKETS})")
    }
}

/// CRC-32 of ISO 3309, equal to `CRC32()` in SQL.
fn crc32(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = table();
    let step = |crc: u32, byte: &u8| (crc >> 8) ^ TABLE[((crc ^ u32::from(*byte)) & 0xff) as usize];
    !bytes.iter().fold(!0, step)
}

const fn table() -> [u32; 256] {
    const POLYNOMIAL: u32 = 0xedb8_8320;
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 {
                (crc >> 1) ^ POLYNOMIAL
            } else {
                crc >> 1
            };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_equals_that_of_the_servers() {
        // The check value of CRC-32/ISO-HDLC.
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        let bucket = |key: &str| KeyBucket::of(&TaskKey::parse(key).unwrap()).number();
        // `SELECT CRC32('Bench@run@1') & 16383` on MariaDB.
        assert_eq!(
            (bucket("Bench@run@1"), bucket("Bench@run@2")),
            (8546, 12504)
        );
    }

    #[test]
    fn sets_have_union_and_difference() {
        let few: KeyBuckets = KeyBucket::all().filter(|it| it.number() < 9).collect();
        let odd: KeyBuckets = KeyBucket::all().filter(|it| it.number() % 2 == 1).collect();
        let left = few.without(&odd);
        let numbers = |set: &KeyBuckets| -> Vec<u16> {
            let inside = KeyBucket::all().filter(|bucket| set.contains(*bucket));
            inside.map(KeyBucket::number).collect()
        };
        assert_eq!(numbers(&left), [0, 2, 4, 6, 8]);
        assert!(left.without(&few).is_empty() && !left.is_empty());
        assert!(few.with(&KeyBuckets::all()).is_all() && !few.with(&odd).is_all());
        assert_eq!(few.as_bytes()[..3], [0xff, 0x01, 0x00]);
    }
}
