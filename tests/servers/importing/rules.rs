//! Rules of the configuration: which key a job gets.

use redis::cmd;

use super::{import, tasks};
use crate::support::rig::Rig;
use crate::support::shell::Shell;

const RULES: &str = "
[[import]]
source = 'seed001'
job = '^refund-'
key = 'Order@refund@{member}'

[[import]]
source = 'seed001'
queue = 'orders'
key = 'Order@close@{id}@{queue}'

[[import]]
source = 'sidekiq'
key = 'Never@here@{id}'
";

#[tokio::test]
async fn the_first_rule_that_fits_a_job_gives_its_key() {
    let rig = Rig::new(RULES).await;
    let shell = Shell::of(&rig);
    let due_s = rig.now_ms().await / 1000 + 3600;
    for set in ["orders", "others"] {
        let mut add = cmd("ZADD");
        add.arg(set);
        for member in ["refund-1", "42"] {
            add.arg(due_s).arg(format!("{member}{}", &set[..2]));
        }
        let () = add
            .query_async(&mut rig.redis_connection().await)
            .await
            .unwrap();
        let report = import(&shell, &["seed001", "--set", set]);
        assert_eq!(
            report.counts(["created", "refused"]),
            [2, 0],
            "{}",
            report.stderr
        );
    }
    let keys: Vec<String> = tasks(&rig).await.into_keys().collect();
    let expected = [
        "Order@close@42or@orders",
        "Order@refund@refund-1or",
        "Order@refund@refund-1ot",
        "others@run@42ot",
    ];
    assert_eq!(keys, expected);
}

#[tokio::test]
async fn a_member_that_is_a_task_key_is_its_own_key_and_what_lapsed_holds_is_left_out() {
    let rig = Rig::new(RULES).await;
    let shell = Shell::of(&rig);
    let due_ms = rig.now_ms().await + 3_600_000;
    let mut add = cmd("ZADD");
    add.arg("orders").arg(due_ms).arg("Order@remind@42");
    add.arg(due_ms * 1000).arg("Order@remind@43");
    let () = add
        .query_async(&mut rig.redis_connection().await)
        .await
        .unwrap();
    let report = import(&shell, &["seed001", "--set", "orders"]);
    assert_eq!(report.code, 0, "{}", report.stderr);
    assert_eq!(report.counts(["created", "settled"]), [1, 1]);
    let found = tasks(&rig).await;
    assert_eq!(found["Order@remind@42"].due, due_ms);
}

#[tokio::test]
async fn a_wrong_rule_or_option_ends_with_2() {
    let rig = Rig::new("").await;
    let shell = Shell::of(&rig);
    for (args, says) in [
        (
            &["seed001", "--queue", "x"][..],
            "`--queue` is no option of seed001",
        ),
        (&["bullmq", "--tz", "UTC"], "`--tz` is no option of bullmq"),
        (&["seed002", "--tz", "Nowhere/City"], "Nowhere/City"),
        (&["seed002", "--table", "a b"], "`--table`"),
        (&["seed001", "--from-redis", "http://x"], "`--from-redis`"),
        (&["resque"], "possible values"),
        (&["bullmq", "--dry-run", "--take"], "cannot be used with"),
    ] {
        let (code, _, stderr) = shell.run(&[&["import"], args].concat());
        assert_eq!(code, 2, "{args:?}: {stderr}");
        assert!(stderr.contains(says), "{args:?}: {stderr}");
    }
}
