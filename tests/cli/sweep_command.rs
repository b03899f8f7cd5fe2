//! `lapsed sweep`, asked of servers of which one does not answer.

use std::process::Command;

use lapsed::sandbox::{PrivateMaria, PrivateRedis};

/// Exit code and data of a command on these servers.
fn lapsed(redis: &str, ledger: &str, args: &[&str]) -> (Option<i32>, serde_json::Value) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lapsed"));
    command.env_remove("LAPSED_CONFIG");
    command.env("LAPSED__REDIS__URL", redis);
    command.env("LAPSED__LEDGER__URL", ledger);
    let output = command.arg("--json").args(args).output().unwrap();
    let data = serde_json::from_slice(&output.stdout).unwrap_or_default();
    (output.status.code(), data)
}

#[tokio::test]
async fn a_sweep_whose_audit_breaks_off_says_so_by_its_exit_code() {
    let redis = PrivateRedis::options().start().await.unwrap();
    let maria = PrivateMaria::options().start().await.unwrap();
    let ledger = maria.create_database("app").await.unwrap();
    let up = format!("redis://127.0.0.1:{}/0", redis.port());
    assert_eq!(lapsed(&up, &ledger, &["migrate"]).0, Some(0));
    let (code, _) = lapsed(&up, &ledger, &["schedule", "Order@close@1", "--in", "1h"]);
    assert_eq!(code, Some(0));
    let (code, data) = lapsed(&up, &ledger, &["sweep"]);
    assert_eq!((code, &data["audit"]["complete"]), (Some(0), &true.into()));
    let (code, data) = lapsed("redis://127.0.0.1:1/0", &ledger, &["sweep"]);
    assert_eq!((code, &data["audit"]["complete"]), (Some(1), &false.into()));
}
