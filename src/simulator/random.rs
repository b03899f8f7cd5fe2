//! Randomness from one seed: for the plan of a run, and for all that the program asks of the kernel.
//!
//! Hash maps, `rand` and the runtime draw their seeds from `getrandom(2)`. This program defines that function itself, so
//! that a run is a function of its seed. A process simulates one seed.

use std::sync::atomic::{AtomicU64, Ordering};

/// SplitMix64: small, and the same on every machine and in every version.
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    /// A stream of its own for each purpose, so that one more draw for one of them leaves the others as they are.
    pub fn new(seed: u64, purpose: &str) -> Self {
        let mut state = seed ^ 0x9e37_79b9_7f4a_7c15;
        for byte in purpose.bytes() {
            state = mix(state ^ u64::from(byte));
        }
        Self(state)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Returns a number below `end`, or 0.
    pub fn below(&mut self, end: u64) -> u64 {
        if end == 0 { 0 } else { self.next() % end }
    }

    /// Returns a number of this range, both ends included.
    pub fn within(&mut self, from: u64, to: u64) -> u64 {
        from + self.below(to - from + 1)
    }

    /// True in this many of a hundred cases.
    pub fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }

    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[usize::try_from(self.below(of.len() as u64)).expect("an index")]
    }
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The state of what this process takes for the randomness of the kernel.
static KERNEL: AtomicU64 = AtomicU64::new(1);

/// Sets the randomness of the kernel.
pub fn seed_kernel(seed: u64) {
    KERNEL.store(mix(seed), Ordering::Relaxed);
}

/// Replaces `getrandom(2)` of the C library in this process.
///
/// # Safety
/// `buffer` has room for `length` bytes, as for the function that it replaces.
#[unsafe(no_mangle)]
unsafe extern "C" fn getrandom(buffer: *mut u8, length: usize, _flags: u32) -> isize {
    for place in 0..length {
        let state = KERNEL.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        // SAFETY: `place` is within the buffer of the caller.
        unsafe { buffer.add(place).write(mix(state) as u8) };
    }
    isize::try_from(length).unwrap_or(isize::MAX)
}
