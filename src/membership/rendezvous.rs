//! Rendezvous hashing: every member computes the same owner of a bucket of keys, without asking the others.

use crate::task::KeyBucket;

use super::MemberId;

/// Weight of a member for a bucket of keys. The member with the greatest weight owns it ("highest random weight", Thaler
/// and Ravishankar 1998): when a member leaves, only its own buckets move, evenly to all the others.
///
/// The formula: the bucket's number spread over 64 bits, exclusive-or the member's random id, through the finalizer of
/// MurmurHash3 (`fmix64`, in the public domain). Daemons of different versions and platforms have to agree on it: raise
/// [`VERSION`](super::heartbeat::VERSION) if it ever changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Weight {
    mixed: u64,
    /// Breaks ties.
    member: MemberId,
}

/// Hash of a bucket, computed once for all members.
#[derive(Debug, Clone, Copy)]
pub(super) struct BucketHash(u64);

impl BucketHash {
    pub(super) fn of(bucket: KeyBucket) -> Self {
        /// 2^64 divided by the golden ratio, to the next odd number.
        const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
        Self(u64::from(bucket.number()).wrapping_mul(SPREAD))
    }

    pub(super) fn weight_for(self, member: MemberId) -> Weight {
        Weight {
            mixed: fmix64(self.0 ^ member.0),
            member,
        }
    }
}

fn fmix64(mut hash: u64) -> u64 {
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(number: usize) -> KeyBucket {
        KeyBucket::all().nth(number).unwrap()
    }

    fn owner(bucket: KeyBucket, members: &[MemberId]) -> MemberId {
        let hash = BucketHash::of(bucket);
        let greatest = members
            .iter()
            .max_by_key(|member| hash.weight_for(**member));
        *greatest.unwrap()
    }

    fn members(count: u64) -> Vec<MemberId> {
        (1..=count).map(|n| MemberId(fmix64(n))).collect()
    }

    #[test]
    fn the_hash_is_the_same_on_every_machine_and_in_every_version() {
        assert_eq!(fmix64(0), 0);
        assert_eq!(fmix64(1), 0xb456_bcfc_34c2_cb2c);
        let owners = (0..16).map(|n| owner(bucket(n), &[MemberId(1), MemberId(2), MemberId(3)]).0);
        assert_eq!(
            owners.collect::<Vec<_>>(),
            [1, 2, 1, 1, 2, 3, 3, 3, 1, 3, 3, 2, 1, 3, 2, 2]
        );
    }

    #[test]
    fn members_own_equal_parts() {
        for count in 2..=8 {
            // Members have random ids; small ones have to work too.
            for members in [members(count), (1..=count).map(MemberId).collect()] {
                let mut shares = std::collections::HashMap::new();
                KeyBucket::all().for_each(|bucket| {
                    *shares.entry(owner(bucket, &members)).or_insert(0) += 1;
                });
                let fair = KeyBucket::all().count() as f64 / count as f64;
                for (member, share) in shares {
                    let off = (f64::from(share) - fair).abs() / fair;
                    assert!(
                        off < 0.08,
                        "{member} of {count} has {share}, fair is {fair}"
                    );
                }
            }
        }
    }

    #[test]
    fn when_a_member_leaves_only_its_own_buckets_move() {
        let all = members(5);
        let left = &all[1..];
        let mut heirs = std::collections::HashMap::new();
        for bucket in KeyBucket::all() {
            match owner(bucket, &all) {
                gone if gone == all[0] => *heirs.entry(owner(bucket, left)).or_insert(0) += 1,
                stays => assert_eq!(owner(bucket, left), stays),
            }
        }
        assert_eq!(heirs.len(), 4, "{heirs:?}");
        assert!(
            heirs.values().all(|keys| (650..1_000).contains(keys)),
            "{heirs:?}"
        );
    }
}
