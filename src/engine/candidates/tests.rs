//! Tests of the candidates.

use super::*;
use crate::membership::MemberId;
use crate::task::{Countdown, Removal};

fn candidates() -> Candidates {
    Candidates::new(LedgerClock::starting_at(UnixMs(0)))
}

fn armed(name: &str, due_ms: i64) -> AdoptionCandidate {
    AdoptionCandidate {
        key: TaskKey::build("C", "m", [name]).unwrap(),
        seen: Seen::Armed(Countdown {
            due: UnixMs(due_ms),
            tolerance: Duration::ZERO,
            alive_at: None,
            heard: Some(UnixMs(0)),
            late: false,
            kept_since: None,
            meant: None,
        }),
        payload: None,
    }
}

async fn ready(candidates: &Candidates) -> Vec<AdoptionCandidate> {
    let ready = candidates.ready(9).await.into_iter();
    ready.map(|ready| ready.candidate).collect()
}

#[tokio::test(start_paused = true)]
async fn a_key_waits_for_its_program_but_no_longer_than_half_its_delay() {
    let candidates = candidates();
    assert!(candidates.add(armed("far", 60_000), Duration::ZERO));
    assert!(candidates.add(armed("near", 300), Duration::ZERO));
    let started = Instant::now();
    assert_eq!(ready(&candidates).await, [armed("near", 300)]);
    assert_eq!(started.elapsed(), Duration::from_millis(150));
    assert_eq!(ready(&candidates).await, [armed("far", 60_000)]);
    assert_eq!(started.elapsed(), GRACE);
}

#[tokio::test(start_paused = true)]
async fn the_latest_candidate_counts_and_does_not_restart_the_wait() {
    let candidates = candidates();
    let started = Instant::now();
    for due_ms in [60_000, 61_000] {
        candidates.add(armed("a", due_ms), Duration::ZERO);
        tokio::time::sleep(GRACE / 4).await;
    }
    assert_eq!(ready(&candidates).await, [armed("a", 61_000)]);
    assert_eq!(started.elapsed(), GRACE);
}

#[tokio::test(start_paused = true)]
async fn a_newer_candidate_takes_precedence_over_one_put_back() {
    let candidates = candidates();
    candidates.add(armed("a", 60_000), Duration::ZERO);
    candidates.put_back(vec![armed("a", 1), armed("b", 2)], Duration::from_secs(1));
    assert_eq!(ready(&candidates).await, [armed("a", 60_000)]);
    assert_eq!(ready(&candidates).await, [armed("b", 2)]);
}

#[tokio::test(start_paused = true)]
async fn a_candidate_left_to_a_senior_is_due_again_until_this_daemon_acts_in_any_case() {
    let candidates = candidates();
    let higher_ranked = Some(HigherRankedListener {
        id: MemberId(7),
        can_be_asked: true,
    });
    let started = Instant::now();
    assert!(candidates.add_behind(armed("a", 60_000), higher_ranked));
    let mut times = Vec::new();
    loop {
        let ready = candidates.ready(9).await;
        assert_eq!(ready[0].higher_ranked, higher_ranked);
        times.push(started.elapsed());
        if ready[0].may_act() {
            break;
        }
        candidates.leave_to_higher_ranked(ready, Duration::from_millis(400));
    }
    let after_ms = |ms| GRACE + Duration::from_millis(ms);
    assert_eq!(times, [0, 400, 800, 1_000].map(after_ms));
}

#[tokio::test(start_paused = true)]
async fn an_expired_key_is_ready_at_once_unless_it_was_armed_again() {
    let candidates = candidates();
    assert!(!candidates.expedite(&armed("a", 0).key));
    let higher_ranked = HigherRankedListener {
        id: MemberId(1),
        can_be_asked: true,
    };
    for due_ms in [50, 60_000] {
        assert!(candidates.add_behind(armed("a", due_ms), Some(higher_ranked)));
        assert!(candidates.expedite(&armed("a", 0).key));
        let waits = tokio::time::timeout(Duration::from_millis(1), candidates.ready(9)).await;
        match due_ms {
            50 => assert!(waits.unwrap()[0].may_act()),
            _ => assert!(waits.is_err(), "the event is about an older arming"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn deletions_are_taken_behind_armed_keys() {
    let candidates = candidates();
    for n in 0..1_000 {
        let deleted = AdoptionCandidate {
            seen: Seen::Disarmed(Removal::at(UnixMs(1))),
            ..armed(&format!("deleted{n}"), 0)
        };
        assert!(candidates.add(deleted, Duration::ZERO));
    }
    assert!(candidates.add(armed("a", 0), Duration::ZERO));
    let ready = candidates.ready(1_000).await;
    assert_eq!(ready.len(), 1 + DELETIONS_MAX);
    assert_eq!(ready[0].candidate, armed("a", 0));
    assert_eq!(candidates.take_all().len(), 1_000 - DELETIONS_MAX);
}

#[tokio::test(start_paused = true)]
async fn the_number_of_candidates_is_bounded() {
    let candidates = candidates();
    for n in 0..WAITING_MAX {
        assert!(candidates.add(armed(&n.to_string(), 60_000), Duration::ZERO));
    }
    assert!(!candidates.add(armed("beyond the bound", 60_000), Duration::ZERO));
    assert!(
        candidates.add(armed("0", 70_000), Duration::ZERO),
        "a known key is replaced"
    );
    tokio::time::sleep(GRACE).await;
    assert_eq!(candidates.ready(10).await.len(), 10);
}
