//! A short part of `make faults`: the program on each ledger, with load and a few faults in a fixed order.

use std::path::PathBuf;
use std::time::Duration;

use lapsed_faults::{Death, Fault, Ledger, Net, Options, Server, Who, run};

/// The promises that are measured in milliseconds are left to `make faults`.
async fn check(ledger: Ledger, faults: Vec<Fault>) {
    let count = faults.len() as u64;
    let options = Options {
        program: PathBuf::from(env!("CARGO_BIN_EXE_lapsed")),
        seed: 1,
        time: Duration::from_secs(60),
        tasks: u64::MAX,
        rate: 40,
        daemons: 2,
        faults: Some(faults),
        measured: false,
    };
    let outcome = run(ledger, &options).await.unwrap();
    let broken = outcome.broken();
    assert!(broken.is_empty(), "{}", outcome.text());
    assert_eq!(outcome.faults(), (count, 0), "{}", outcome.text());
    assert!(outcome.armings() > 0, "{}", outcome.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn daemons_on_mysql_keep_what_is_promised_through_kills_and_cuts() {
    let faults = vec![
        Fault::Way(Server::Ledger, Net::Cut, Who::All),
        // The claim is applied, its reply is lost, and the daemon is killed.
        Fault::CrashPoint(1, Death::Process),
        Fault::RedisFlushed,
        Fault::KilledMidRun,
    ];
    check(Ledger::Mysql, faults).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_on_a_file_keeps_what_is_promised_through_kills_and_cuts() {
    let faults = vec![
        Fault::Way(Server::Redis, Net::Cut, Who::All),
        Fault::KilledMidRun,
    ];
    check(Ledger::File, faults).await;
}
