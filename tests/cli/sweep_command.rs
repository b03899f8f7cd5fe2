//! `lapsed sweep`, asked of servers of which one does not answer.

use lapsed_sandbox::{PrivateMaria, PrivateRedis};

use crate::support::program::{lapsed, said};

/// Exit code and data of a command on these servers.
fn run(redis: &str, ledger: &str, args: &[&str]) -> (i32, serde_json::Value) {
    let mut command = lapsed();
    command.env("LAPSED__REDIS__URL", redis);
    command.env("LAPSED__LEDGER__URL", ledger);
    let (code, data, _) = said(command.arg("--json").args(args).output().unwrap());
    (code, serde_json::from_str(&data).unwrap_or_default())
}

#[tokio::test]
async fn sweep_exits_with_1_if_its_audit_is_incomplete() {
    let redis = PrivateRedis::options().start().await.unwrap();
    let maria = PrivateMaria::options().start().await.unwrap();
    let ledger = maria.create_database("app").await.unwrap();
    let up = format!("redis://127.0.0.1:{}/0", redis.port());
    assert_eq!(run(&up, &ledger, &["migrate"]).0, 0);
    let (code, _) = run(&up, &ledger, &["schedule", "Order@close@1", "--in", "1h"]);
    assert_eq!(code, 0);
    let (code, data) = run(&up, &ledger, &["sweep"]);
    assert_eq!((code, &data["audit"]["complete"]), (0, &true.into()));
    let (code, data) = run("redis://127.0.0.1:1/0", &ledger, &["sweep"]);
    assert_eq!((code, &data["audit"]["complete"]), (1, &false.into()));
}
