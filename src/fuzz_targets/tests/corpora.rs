//! Every input of the corpora, and the same mutations of it each time, through its target.

use std::collections::BTreeSet;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

use lapsed_fuzz_targets::{TARGETS, Target};

/// Mutations of each input.
const MUTATIONS: u32 = 200;

fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

fn names(place: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(place).unwrap_or_else(|error| panic!("{place:?}: {error}"));
    let name = |entry: std::fs::DirEntry| entry.file_name().into_string().unwrap();
    entries.map(|entry| name(entry.unwrap())).collect()
}

/// The inputs of a target, by the name of their file.
fn corpus(target: &Target) -> Vec<(String, Vec<u8>)> {
    let place = fuzz().join("corpus").join(target.name);
    let read = |name: String| {
        let input = std::fs::read(place.join(&name)).unwrap();
        (name, input)
    };
    names(&place).into_iter().map(read).collect()
}

#[test]
fn each_target_has_a_binary_and_a_corpus() {
    let targets: BTreeSet<String> = TARGETS.iter().map(|target| target.name.into()).collect();
    assert_eq!(names(&fuzz().join("corpus")), targets);
    let binaries = names(&fuzz().join("fuzz_targets"));
    let expected: BTreeSet<String> = targets.iter().map(|name| format!("{name}.rs")).collect();
    assert_eq!(binaries, expected);
    let manifest = std::fs::read_to_string(fuzz().join("Cargo.toml")).unwrap();
    for name in &targets {
        let binary = format!("name = \"{name}\"\npath = \"fuzz_targets/{name}.rs\"\n");
        assert!(manifest.contains(&binary), "fuzz/Cargo.toml has no {name}");
        let code = std::fs::read_to_string(fuzz().join(format!("fuzz_targets/{name}.rs"))).unwrap();
        let call = format!("lapsed_fuzz_targets::run(\"{name}\", input)");
        assert!(code.contains(&call), "{name}.rs runs another target");
    }
    for target in TARGETS {
        assert!(corpus(target).len() >= 5, "{} has few inputs", target.name);
    }
}

#[test]
fn inputs_of_the_corpora_and_their_mutations_keep_the_rules() {
    std::thread::scope(|scope| {
        for target in TARGETS {
            scope.spawn(|| run(target));
        }
    });
}

fn run(target: &Target) {
    let corpus = corpus(target);
    for (name, input) in &corpus {
        check(target, name, 0, input);
        let mut mutator = Mutator::new(target.name, name);
        for number in 1..=MUTATIONS {
            let other = &corpus[mutator.below(corpus.len())].1;
            check(target, name, number, &mutator.mutated(input, other));
        }
    }
}

fn check(target: &Target, name: &str, number: u32, input: &[u8]) {
    let ran = catch_unwind(|| (target.run)(input));
    assert!(
        ran.is_ok(),
        "{}: mutation {number} of {name} breaks a rule: b\"{}\"",
        target.name,
        input.escape_ascii()
    );
}

/// Changes inputs, the same way in each run.
struct Mutator(u64);

impl Mutator {
    /// The changes of an input, which its name determines.
    fn new(target: &str, name: &str) -> Self {
        let bytes = target.bytes().chain(name.bytes());
        let seed = bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Self(seed | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() >> 16) as usize % end.max(1)
    }

    /// An input with one to four changes, some of them with a part of another one.
    fn mutated(&mut self, input: &[u8], other: &[u8]) -> Vec<u8> {
        const BYTES: &[u8] = b"\0\t\n\r \"#$%'*+,-./0129:;<=>?@AZ[\\]^_az{|}~\x7f\x80\xc3\xe2\xff";
        let mut bytes = input.to_vec();
        for _ in 0..=self.below(4) {
            let at = self.below(bytes.len() + 1);
            let end = (at + 1 + self.below(8)).min(bytes.len());
            let byte = BYTES[self.below(BYTES.len())];
            match self.below(7) {
                0 if at < bytes.len() => bytes[at] ^= 1 << self.below(8),
                1 if at < bytes.len() => bytes[at] = byte,
                2 => bytes.insert(at, byte),
                3 => drop(bytes.drain(at..end)),
                4 => bytes.truncate(at),
                5 => {
                    let part = bytes[at..end].to_vec();
                    let times = 1 + self.below(20);
                    bytes.splice(at..at, part.repeat(times));
                }
                _ => {
                    let from = self.below(other.len() + 1);
                    let to = (from + self.below(16)).min(other.len());
                    bytes.splice(at..end.max(at), other[from..to].iter().copied());
                }
            }
        }
        bytes
    }
}
