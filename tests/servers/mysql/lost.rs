//! Claims whose answers are lost, late, or read from somewhere else.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use lapsed::Config;
use lapsed::ledger::mysql::MysqlLedger;
use lapsed::ledger::{Claimant, Claims, Ledger, LedgerError, NewTask, Producer};
use lapsed::task::{Arming, State, TaskKey, UnixMs};
use sqlx::{Connection, MySqlConnection};

use crate::mysql::proxy::{Act, Proxy};
use crate::mysql::rig::{claimant, connect, overdue, start};
use crate::support::wait::until;

fn is_claim(sql: &str) -> bool {
    sql.starts_with("UPDATE") && sql.contains("SET attempt = LEAST(")
}

fn hasty(url: &str) -> MysqlLedger {
    let mut config = Config::default().ledger;
    config.url = url.into();
    config.statement_timeout = Duration::from_secs(2);
    MysqlLedger::new(&config).unwrap()
}

/// Attempt, crashes, and whether it is leased.
async fn counters(url: &str, arming: Arming) -> (i64, i64, i64) {
    let mut connection = MySqlConnection::connect(url).await.unwrap();
    sqlx::query_as(
        "SELECT CAST(attempt AS SIGNED), CAST(crashes AS SIGNED), CAST(lease_until > 0 AS SIGNED) FROM tb_time_limit_task WHERE id = ?",
    )
    .bind(arming.row)
    .fetch_one(&mut connection)
    .await
    .unwrap()
}

#[tokio::test]
async fn a_claim_that_reaches_the_server_late_is_not_executed() {
    let (_server, ledger, url) = start().await;
    let armings = overdue(&ledger, 1).await;
    let proxy = Proxy::before(&url, |sql| match is_claim(sql) {
        true => Act::Hold,
        false => Act::Pass,
    })
    .await;
    let through = hasty(&proxy.url(&url));
    let lost = through.claim(&armings, &claimant()).await.unwrap_err();
    assert!(lost.is_transient(), "{lost}");
    assert_eq!(proxy.held(), 1);
    // The next connection has the server end the lost one: what is sent on it from then on reaches no session.
    through.sync_clock().await.unwrap();
    until("the lost session is ended", async || proxy.ended() == 1).await;
    proxy.let_go();
    assert_eq!(counters(&url, armings[0]).await, (0, 0, 0));
    let claims = ledger.claim(&armings, &claimant()).await.unwrap();
    assert_eq!(claims.len(), 1);
    assert_eq!(
        (claims[0].attempt.number, claims[0].attempt.crashes),
        (1, 0)
    );
}

#[tokio::test]
async fn a_late_claim_that_cannot_be_stopped_is_given_back_after_it_came() {
    let (_server, ledger, url) = start().await;
    let armings = overdue(&ledger, 1).await;
    let given_back = Arc::new(AtomicU32::new(0));
    let holds = Arc::new(AtomicBool::new(true));
    let (counted, held) = (Arc::clone(&given_back), Arc::clone(&holds));
    let proxy = Proxy::before(&url, move |sql| match sql {
        claim if is_claim(claim) => Act::Hold,
        // As if this user had no right to.
        kill if kill.starts_with("KILL") => Act::Refuse(1095),
        // The first one passes.
        gives_back if gives_back.contains("SET attempt = GREATEST(attempt, 1) - 1") => {
            let is_first = counted.fetch_add(1, Ordering::SeqCst) == 0;
            match is_first || !held.load(Ordering::SeqCst) {
                true => Act::Pass,
                false => Act::Hold,
            }
        }
        _ => Act::Pass,
    })
    .await;
    let through = hasty(&proxy.url(&url));
    through.claim(&armings, &claimant()).await.unwrap_err();
    through.sync_clock().await.unwrap();
    // It gives back before the claim comes, which changes nothing, and is about to do it again.
    until("the claim and the second try are held", async || {
        proxy.held() >= 2
    })
    .await;
    assert_eq!(counters(&url, armings[0]).await, (0, 0, 0));
    proxy.let_first_go();
    until("the claim has come", async || {
        counters(&url, armings[0]).await == (1, 0, 1)
    })
    .await;
    holds.store(false, Ordering::SeqCst);
    proxy.let_go();
    until("it is given back", async || {
        counters(&url, armings[0]).await == (0, 0, 0)
    })
    .await;
}

#[tokio::test]
async fn claims_that_cannot_be_read_back_are_logged_and_released() {
    let (_server, ledger, url) = start().await;
    let armings = overdue(&ledger, 3).await;
    let stale = Arc::new(AtomicBool::new(true));
    let is_stale = Arc::clone(&stale);
    let proxy = Proxy::before(&url, move |sql| {
        let reads_back = sql.starts_with("SELECT") && sql.ends_with("AND owner = ?");
        match reads_back && is_stale.load(Ordering::SeqCst) {
            true => Act::With(" LIMIT 0"),
            false => Act::Pass,
        }
    })
    .await;
    let through = hasty(&proxy.url(&url));
    let by = Claimant {
        lease: Duration::from_secs(600),
        ..claimant()
    };
    let error = through.claim(&armings, &by).await.unwrap_err();
    assert!(matches!(error, LedgerError::Refused { .. }), "{error}");
    assert!(error.to_string().contains("SELECT to a replica"), "{error}");
    for arming in &armings {
        until("the claim is given back", async || {
            counters(&url, *arming).await == (0, 0, 0)
        })
        .await;
    }
    stale.store(false, Ordering::SeqCst);
    let claims = hasty(&url).claim(&armings, &by).await.unwrap();
    assert_eq!(claims.len(), 3);
}

#[tokio::test]
async fn a_creation_that_reaches_the_server_late_does_not_come_after_its_repetition() {
    let (_server, ledger, url) = start().await;
    let holds = Arc::new(AtomicBool::new(true));
    let held = Arc::clone(&holds);
    let proxy = Proxy::before(&url, move |sql| {
        match sql.starts_with("INSERT INTO") && held.load(Ordering::SeqCst) {
            true => Act::Hold,
            false => Act::Pass,
        }
    })
    .await;
    let through = hasty(&proxy.url(&url));
    let task = |due| NewTask::new(TaskKey::parse("Order@close@1").unwrap(), UnixMs(due));
    let lost = through
        .create(&[task(9_000_000_000_000)])
        .await
        .unwrap_err();
    assert!(lost.is_transient(), "{lost}");
    assert_eq!(proxy.held(), 1);
    holds.store(false, Ordering::SeqCst);
    through.create(&[task(9_000_000_001_000)]).await.unwrap();
    until("the lost session is ended", async || proxy.ended() == 1).await;
    proxy.let_go();
    let lookup = ledger.look_up(&[task(0).key]).await.unwrap().remove(0);
    assert_eq!(lookup.unwrap().arming.due, UnixMs(9_000_000_001_000));
}

#[tokio::test]
async fn a_task_armed_again_before_its_claim_is_read_back_is_not_claimed() {
    let (_server, ledger, url) = start().await;
    let proxy = Proxy::before(&url, |sql| match sql {
        reads_back if reads_back.starts_with("SELECT") && reads_back.ends_with("AND owner = ?") => {
            Act::Hold
        }
        _ => Act::Pass,
    })
    .await;
    let through = connect(&proxy.url(&url));
    let armings = overdue(&ledger, 4).await;
    let (claiming, by) = (armings.clone(), claimant());
    let claimed = tokio::spawn(async move { through.claim(&claiming, &by).await.unwrap() });
    until("the claim is made and not read", async || proxy.held() == 1).await;

    let now = ledger.now().await.unwrap();
    let due = UnixMs(now.0 + 60_000);
    let key = |n: u32| TaskKey::build("Lock", "row", [n.to_string()]).unwrap();
    let anew = NewTask::new(key(0), due);
    let moved_in = NewTask {
        attempts: 3,
        ..NewTask::new(key(1), due)
    };
    ledger.create(&[anew, moved_in]).await.unwrap();
    let mut connection = MySqlConnection::connect(&url).await.unwrap();
    // As a program does that knows only the first six columns.
    let by_sql = sqlx::query("UPDATE tb_time_limit_task SET end_time = ? / 1000 WHERE id = ?");
    let by_sql = by_sql.bind(due.0).bind(armings[2].row);
    by_sql.execute(&mut connection).await.unwrap();
    proxy.let_go();

    let claims = claimed.await.unwrap();
    let of_claims: Vec<Arming> = claims.iter().map(|claim| claim.lease.arming).collect();
    assert_eq!(of_claims, [armings[3]]);
    let states = ledger.look_up(&[key(0), key(1), key(2), key(3)]).await;
    let states = states.unwrap().into_iter().map(Option::unwrap);
    let states: Vec<_> = states.map(|row| (row.state, row.due_at == due)).collect();
    let waits = (State::Pending, true);
    assert_eq!(states, [waits, waits, waits, (State::Running, false)]);
}
