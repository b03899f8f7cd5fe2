//! The simulator as a test: the same seeds each time, so that the change which breaks one is to blame; the same trace twice;
//! and a fault that must be found. `make simulate` tries new seeds.

use std::process::Command;

/// Runs the simulator. Prints what it says.
#[track_caller]
fn simulate(arguments: &[&str]) {
    let ended = Command::new(env!("CARGO_BIN_EXE_simulate"))
        .args(arguments)
        .output()
        .expect("the simulator starts");
    println!("{}", String::from_utf8_lossy(&ended.stdout));
    eprintln!("{}", String::from_utf8_lossy(&ended.stderr));
    assert!(ended.status.success(), "{arguments:?}: {}", ended.status);
}

#[test]
fn seeds_find_nothing() {
    simulate(&["seeds", "500", "--first", "1"]);
}

#[test]
fn a_seed_has_the_same_trace_twice() {
    simulate(&["twice", "50"]);
}

#[test]
fn a_ledger_that_forgets_is_found() {
    simulate(&["canary"]);
}
