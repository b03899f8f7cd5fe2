//! The PHP example: producers as such programs have them, and the bridge that runs their tasks.

use std::process::{Command, Output};

use lapsed::Handlers;
use lapsed::task::State;

use crate::support::rig::Rig;
use crate::support::setup::Setup;
use crate::support::wait::until;

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/php");

/// The example's old table, adopted, and a daemon that runs the bridge.
async fn shop() -> Rig {
    let route = format!(
        "[[routes]]\nmatch = '^AuctionCutDown@'\n\
         exec = ['/bin/sh', '-c', '. \"$0\"; exec php \"$@\"', 'SETTINGS', '{EXAMPLE}/task.php', '{{class}}', '{{method}}', '{{args}}']"
    );
    let settings = tempfile::NamedTempFile::new()
        .unwrap()
        .into_temp_path()
        .keep()
        .unwrap();
    let route = route.replace("SETTINGS", settings.to_str().unwrap());
    let rig = Setup::new(&route).without_table().start().await;
    let exports: Vec<String> = environment(&rig)
        .iter()
        .map(|(name, value)| format!("export {name}='{value}'\n"))
        .collect();
    std::fs::write(&settings, exports.concat()).unwrap();
    rig.run_sql(&std::fs::read_to_string(format!("{EXAMPLE}/schema.sql")).unwrap())
        .await;
    rig.migrate().await;
    rig
}

fn environment(rig: &Rig) -> [(&'static str, String); 4] {
    let url = rig.config().ledger.url.expose().to_owned();
    let (_, rest) = url.rsplit_once('@').unwrap();
    let (address, database) = rest.split_once('/').unwrap();
    let (host, port) = address.split_once(':').unwrap();
    [
        (
            "LAPSED_PHP_DSN",
            format!("mysql:host={host};port={port};dbname={database}"),
        ),
        (
            "LAPSED_PHP_REDIS",
            rig.config().redis.url.expose().to_owned(),
        ),
        ("LAPSED_PHP_USER", "root".to_owned()),
        ("LAPSED_PHP_PASSWORD", String::new()),
    ]
}

/// Runs the example's producer; a machine without PHP fails here, with the command that installs it.
fn php(rig: &Rig, arguments: &[&str]) -> String {
    let mut command = Command::new("php");
    command
        .arg(format!("{EXAMPLE}/schedule.php"))
        .args(arguments)
        .envs(environment(rig));
    let output = command
        .output()
        .expect("`php` was not found; run `scripts/install-servers`");
    let Output {
        status,
        stdout,
        stderr,
    } = output;
    assert!(
        status.success(),
        "{}{}",
        String::from_utf8_lossy(&stdout),
        String::from_utf8_lossy(&stderr)
    );
    String::from_utf8(stdout).unwrap().trim().to_owned()
}

#[tokio::test]
async fn tasks_that_php_creates_are_run_by_php() {
    let rig = shop().await;
    let _daemon = rig.daemon_with(Handlers::new());
    php(&rig, &["create", "42", "2"]);
    assert_eq!(php(&rig, &["state", "42"]), "Open");
    until("the auction has ended", async || {
        php(&rig, &["state", "42"]) == "Ended"
    })
    .await;
    rig.until_state("AuctionCutDown@auctionEndCutDown@42", State::Done)
        .await;
}

#[tokio::test]
async fn a_task_deleted_by_php_does_not_run_and_a_recreated_one_does() {
    let rig = shop().await;
    let daemon = rig.daemon_with(Handlers::new());
    daemon.hears_events().await;
    php(&rig, &["create", "7", "2"]);
    php(&rig, &["cancel", "7"]);
    php(&rig, &["create", "8", "2"]);
    php(&rig, &["cancel", "8"]);
    php(&rig, &["create", "8", "3"]);
    until("the second auction has ended", async || {
        php(&rig, &["state", "8"]) == "Ended"
    })
    .await;
    assert_eq!(php(&rig, &["state", "7"]), "Open");
    assert_eq!(
        rig.state("AuctionCutDown@auctionEndCutDown@7").await,
        State::Cancelled
    );
}
