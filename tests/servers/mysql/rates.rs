//! Starts that daemons count together in the ledger.

use std::time::Duration;

use lapsed::task::Rate;
use sqlx::Executor;
use tokio::time::Instant;

use crate::mysql::rig::{connect, start};

#[tokio::test]
async fn a_bucket_in_the_ledger_gives_its_burst_then_its_rate_to_all_together() {
    let (_server, ledger, url) = start().await;
    let other = connect(&url);
    let rate = "10/s".parse::<Rate>().unwrap().with_burst(3).unwrap();
    let first = ledger.take_starts("^Mail@", rate, 5).await.unwrap();
    assert_eq!(first.granted, 3);
    assert!(first.next_in <= Duration::from_millis(100), "{first:?}");
    let (began, mut granted) = (Instant::now(), 3);
    while granted < 23 {
        for ledger in [&ledger, &other] {
            let grant = ledger.take_starts("^Mail@", rate, 5).await.unwrap();
            assert!(grant.next_in <= Duration::from_millis(200), "{grant:?}");
            granted += grant.granted;
            tokio::time::sleep(grant.next_in / 2).await;
        }
    }
    // As if the first three were granted at a stroke with the others.
    let most = 6.0 + began.elapsed().as_secs_f64() * 10.0;
    assert!(f64::from(granted) <= most, "{granted} of {most}");
    // Each route has its own, and a long name fits.
    let long = "x".repeat(1_000);
    let of_another = ledger.take_starts(&long, rate, 2).await.unwrap();
    assert_eq!(
        (of_another.granted, of_another.next_in),
        (2, Duration::ZERO)
    );
    // Full again after a while, and no fuller.
    let mut connection = ledger.connection().await.unwrap();
    let full = "UPDATE tb_time_limit_task_rates SET full_at_ns = 0";
    connection.execute(full).await.unwrap();
    assert_eq!(
        ledger.take_starts("^Mail@", rate, 9).await.unwrap().granted,
        3
    );
    // A clock that was set back does not stop the route for longer than its burst takes.
    let ahead = "UPDATE tb_time_limit_task_rates SET full_at_ns = full_at_ns + 3600000000000";
    connection.execute(ahead).await.unwrap();
    let late = ledger.take_starts("^Mail@", rate, 9).await.unwrap();
    assert!(
        late.granted == 0 && late.next_in <= Duration::from_millis(101),
        "{late:?}"
    );
}
