//! What every ledger must do, run against each of them. Names are rules.

#[path = "ledger_conformance/endings.rs"]
mod endings;
#[path = "ledger_conformance/survey.rs"]
mod survey;

use std::time::Duration;

use lapsed::Config;
use lapsed::ledger::memory::MemoryLedger;
use lapsed::ledger::mysql::MysqlLedger;
use lapsed::ledger::recurring::{Established, Insistence, SeriesRow, establish};
use lapsed::ledger::{
    Adopted, Arming, CancelAnswer, CancelFilter, Catalog, Claim, Claimant, Created, DueScan,
    Foundling, IfPending, Ledger, ListFilter, NewTask, NudgeAnswer, PAUSES_MAX, PAYLOAD_READ_MAX,
    PauseAnswer, Pauses, Prune, REASON_CHARS_MAX, ReleaseAnswer, Renewal, RescheduleAnswer, Ruling,
    Settled, Settlement, Standing, Stands, StateFilter, TaskRecord, Window,
};
use lapsed::sandbox::PrivateMaria;
use lapsed::task::{
    How, Mishap, Origin, PauseKind, Paused, Reason, Recurrence, Scope, State, TaskKey, UnixMs,
};

use endings::*;
use survey::*;

const LEASE: Duration = Duration::from_secs(30);
const SHORT_LEASE: Duration = Duration::from_millis(200);

/// A ledger under test, and what it takes to keep it alive.
struct Rig<L> {
    ledger: L,
    _server: Option<PrivateMaria>,
}

async fn memory() -> Rig<MemoryLedger> {
    Rig {
        ledger: MemoryLedger::default(),
        _server: None,
    }
}

/// On a private MariaDB; or, to try another server, in the empty database that `LAPSED_TEST_LEDGER_URL` names.
async fn mysql() -> Rig<MysqlLedger> {
    let mut config = Config::default().ledger;
    let server = match std::env::var("LAPSED_TEST_LEDGER_URL") {
        Ok(url) => {
            config.url = url.as_str().into();
            None
        }
        Err(_) => {
            let server = PrivateMaria::options()
                .durable(false)
                .start()
                .await
                .unwrap();
            config.url = server
                .create_database("conformance")
                .await
                .unwrap()
                .as_str()
                .into();
            Some(server)
        }
    };
    let ledger = MysqlLedger::new(&config).unwrap();
    ledger.migrate().await.unwrap();
    ledger.check().await.unwrap();
    Rig {
        ledger,
        _server: server,
    }
}

/// Each rule becomes a test of each ledger.
macro_rules! rules {
    ($($rule:ident)+) => {
        mod in_memory {
            $(#[tokio::test(start_paused = true)]
            async fn $rule() {
                super::$rule(&super::memory().await.ledger).await;
            })+
        }
        mod in_mysql {
            #[tokio::test]
            async fn every_rule() {
                let rig = super::mysql().await;
                // One server for all: the rules use keys of their own.
                $({
                    eprintln!("{}", stringify!($rule));
                    super::$rule(&rig.ledger).await;
                })+
            }
        }
    };
}

rules! {
    a_task_is_created_pending
    a_record_shows_a_payload_without_its_envelope
    creating_the_same_again_changes_nothing
    creating_a_finished_arming_again_does_not_run_it_twice
    creating_with_another_due_time_moves_it
    creating_a_cancelled_task_again_revives_it
    creating_during_a_run_supersedes_that_run
    nothing_is_claimed_before_it_is_due
    one_claim_wins
    a_lease_that_ran_out_counts_a_crash_and_can_be_claimed
    a_renewed_lease_holds_and_an_expired_one_is_not_revived
    success_is_done
    a_retry_waits_and_counts_its_attempts
    an_attempt_that_ends_by_itself_clears_the_crashes
    a_buried_task_is_dead_and_can_be_redriven
    a_released_task_has_not_been_tried
    a_task_moved_away_and_back_during_its_run_can_be_released
    settling_twice_answers_the_same
    a_fenced_settlement_writes_nothing
    a_cancelled_task_is_not_claimed
    a_cancellation_during_a_run_ends_its_attempts
    a_cancellation_fences_a_frozen_run
    a_success_after_a_cancellation_is_a_success
    only_a_pending_task_can_be_rescheduled
    run_now_makes_a_task_due
    scans_go_by_due_time_in_pages
    a_scan_for_news_leaves_out_what_is_known
    lists_are_filtered_and_paged
    answers_come_in_the_order_of_the_questions
    long_errors_are_cut
    a_key_without_a_row_is_adopted_once
    adopting_over_a_row_that_changed_meanwhile_writes_nothing
    an_adopted_move_keeps_what_belongs_to_the_task_and_begins_its_counters_anew
    adopting_during_a_run_supersedes_that_run
    a_finished_task_that_is_adopted_begins_anew
    only_an_adopted_task_that_is_pending_and_not_about_to_fall_due_is_withdrawn
    creating_over_an_adopted_task_makes_it_the_programs
    what_failed_is_in_the_history_until_the_task_is_armed_anew
    a_history_has_room_for_the_newest
    a_snooze_gives_its_attempt_back_and_is_counted_in_a_row
    a_dead_task_says_why_in_a_word
    a_result_is_kept_with_the_completion
    dead_tasks_are_found_by_what_is_known_of_them
    redriven_rows_begin_anew_under_the_same_id
    only_dead_tasks_are_discarded
    pruning_forgets_what_is_finished_and_old_enough_and_nothing_else
    keep_leaves_what_is_pending_or_waits_as_it_is
    keep_asks_for_another_run_behind_one_in_progress
    refuse_leaves_what_is_pending_or_running_as_it_is
    a_crashed_run_counts_as_pending_for_every_policy
    the_same_due_time_again_changes_nothing_under_any_policy
    what_is_over_begins_anew_under_every_policy
    a_call_may_mix_policies
    one_call_may_ask_twice_for_a_key
    tasks_are_cancelled_by_tag_each_as_if_alone
    tasks_are_cancelled_by_prefix_and_by_class
    a_dry_run_cancels_nothing
    many_are_cancelled_page_by_page
    a_payload_that_is_too_long_is_not_read
    a_series_goes_on_with_its_next_arming
    a_series_remembers_what_failed_and_the_result_of_its_latest_run
    a_series_that_goes_on_twice_answers_the_same
    a_series_cancelled_during_a_run_ends_with_it
    a_series_created_anew_during_a_run_is_not_moved_by_it
    an_occurrence_that_was_moved_is_remembered_until_the_series_goes_on
    an_occurrence_that_is_run_now_comes_at_its_own_time_too
    a_series_is_written_only_over_what_was_seen
    a_series_changed_without_being_moved_keeps_its_arming
    a_configured_series_stays_as_it_is_and_is_changed_when_it_does_not_run
    a_configured_series_that_was_ended_stays_ended_until_it_is_another_one
    a_series_that_a_configuration_finds_says_so_from_then_on
    a_series_that_somebody_wants_now_begins_anew_and_is_moved_while_it_runs
    a_task_created_over_a_series_runs_once
    a_series_that_is_dead_goes_on_when_it_is_redriven
    a_run_of_a_series_that_is_released_counts_as_an_attempt
    a_series_that_has_ended_is_pruned_unless_a_configuration_wants_it
    noting_that_a_configuration_wants_a_series_changes_nothing_else
    a_series_whose_key_is_deleted_is_not_called_off
    an_occurrence_that_was_not_run_leaves_what_is_known_of_the_one_before
    a_survey_counts_by_class_and_method
    a_pause_stands_until_it_is_lifted
    pausing_twice_changes_nothing_and_says_who_was_first
    a_reason_that_is_too_long_is_refused
    a_hold_is_about_what_was_due_before_it_and_is_let_go_in_parts
    a_release_says_nothing_about_the_next_hold
    a_scan_goes_around_what_is_paused_and_held
    there_is_an_end_to_pauses_and_a_way_back_from_it
    run_now_lets_a_held_task_go
}

fn key(rule: &str, arg: impl ToString) -> TaskKey {
    TaskKey::build("Conformance", rule, [arg.to_string()]).unwrap()
}

fn by(lease: Duration) -> Claimant {
    Claimant {
        daemon: "test:1".into(),
        lease,
    }
}

async fn create(ledger: &impl Ledger, key: &TaskKey, in_ms: i64) -> Arming {
    let due = UnixMs(ledger.sync_clock().await.unwrap().0 + in_ms);
    ledger
        .create(&[NewTask::new(key.clone(), due)])
        .await
        .unwrap()[0]
        .arming
}

/// Waits until the ledger's clock has passed `moment`.
async fn pass(ledger: &impl Ledger, moment: UnixMs) {
    while ledger.sync_clock().await.unwrap() <= moment {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn claim(ledger: &impl Ledger, arming: Arming, lease: Duration) -> Option<Claim> {
    ledger
        .claim(&[arming], &by(lease))
        .await
        .unwrap()
        .into_iter()
        .next()
}

async fn claim_due(ledger: &impl Ledger, key: &TaskKey, lease: Duration) -> Claim {
    let arming = create(ledger, key, -10).await;
    claim(ledger, arming, lease).await.unwrap()
}

async fn settle(ledger: &impl Ledger, claim: &Claim, ruling: Ruling) -> Settled {
    ledger
        .settle(&[Settlement {
            lease: claim.lease,
            ruling,
        }])
        .await
        .unwrap()[0]
}

async fn state(ledger: &impl Ledger, key: &TaskKey) -> State {
    ledger.look_up(std::slice::from_ref(key)).await.unwrap()[0]
        .clone()
        .unwrap()
        .state
}

async fn cancel(ledger: &impl Ledger, key: &TaskKey) -> CancelAnswer {
    ledger.cancel(std::slice::from_ref(key)).await.unwrap()[0]
}

fn mishap(how: How, attempt: u16, error: &str) -> Mishap {
    Mishap {
        how,
        attempt,
        at: UnixMs(1_795_291_200_250),
        error: error.into(),
        daemon: "test:1".into(),
        crashes: 0,
        snoozes: 0,
    }
}

fn retry_at(at: UnixMs) -> Ruling {
    Ruling::RetryAt {
        at,
        error: "no".into(),
        mishap: mishap(How::Failed, 1, "no"),
    }
}

fn bury() -> Ruling {
    bury_for(Reason::Permanent, "for good")
}

fn bury_for(reason: Reason, error: &str) -> Ruling {
    Ruling::Bury {
        reason,
        error: error.into(),
        mishap: mishap(How::Failed, 1, error),
    }
}

async fn a_task_is_created_pending(ledger: &(impl Ledger + Catalog)) {
    let key = key("create", 1);
    let due = UnixMs(ledger.sync_clock().await.unwrap().0 + 60_000);
    let task = NewTask {
        payload: Some("{\"a\":1}".into()),
        tag: Some("t".into()),
        max_attempts: Some(3),
        ..NewTask::new(key.clone(), due)
    };
    let created = ledger.create(&[task]).await.unwrap()[0];
    assert_eq!(
        (created.arming.due, created.state, created.older_run),
        (due, State::Pending, false)
    );
    let record = ledger.find(&key).await.unwrap().unwrap();
    assert_eq!(
        (record.due, record.attempt, record.max_attempts),
        (due, 0, Some(3))
    );
    assert_eq!(
        (record.tag.as_deref(), record.payload.as_deref()),
        (Some("t"), Some("{\"a\":1}"))
    );
    assert_eq!(record.id, format!("{}-{}", created.arming.row, due.0));
}

async fn a_record_shows_a_payload_without_its_envelope(ledger: &(impl Ledger + Catalog)) {
    const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let enveloped = format!(r#"{{"$lapsed":{{"traceparent":"{TRACE}"}},"payload":[1]}}"#);
    for (n, stored, payload, trace) in [
        (1, enveloped.as_str(), "[1]", Some(TRACE)),
        (2, "[1]", "[1]", None),
    ] {
        let key = key("enveloped", n);
        let task = NewTask {
            payload: Some(stored.into()),
            ..NewTask::new(key.clone(), in_ms(ledger, -10).await)
        };
        let arming = ledger.create(&[task]).await.unwrap()[0].arming;
        let record = ledger.find(&key).await.unwrap().unwrap();
        assert_eq!(record.payload.as_deref(), Some(payload));
        let found = record.traceparent.map(|trace| trace.to_string());
        assert_eq!(found.as_deref(), trace);
        // Who runs it opens it.
        let claim = claim(ledger, arming, LEASE).await.unwrap();
        assert_eq!(claim.payload.as_deref(), Some(stored));
    }
}

async fn creating_the_same_again_changes_nothing(ledger: &(impl Ledger + Catalog)) {
    let key = key("same", 1);
    let arming = create(ledger, &key, 60_000).await;
    let again = NewTask {
        tag: Some("other".into()),
        ..NewTask::new(key.clone(), arming.due)
    };
    let created = ledger.create(&[again]).await.unwrap()[0];
    assert_eq!((created.arming, created.state), (arming, State::Pending));
    assert_eq!(ledger.find(&key).await.unwrap().unwrap().tag, None);
}

async fn creating_a_finished_arming_again_does_not_run_it_twice(ledger: &(impl Ledger + Catalog)) {
    let key = key("finished", 1);
    let claimed = claim_due(ledger, &key, LEASE).await;
    settle(ledger, &claimed, Ruling::Complete).await;
    let again = ledger
        .create(&[NewTask::new(key.clone(), claimed.lease.arming.due)])
        .await
        .unwrap()[0];
    assert_eq!(again.state, State::Done);
    assert!(claim(ledger, again.arming, LEASE).await.is_none());
}

async fn creating_with_another_due_time_moves_it(ledger: &(impl Ledger + Catalog)) {
    let key = key("move", 1);
    let first = create(ledger, &key, 60_000).await;
    let second = create(ledger, &key, 90_000).await;
    assert_eq!(first.row, second.row);
    assert!(second.due > first.due);
    let claimed = {
        let third = create(ledger, &key, -5).await;
        claim(ledger, third, LEASE).await.unwrap()
    };
    settle(ledger, &claimed, Ruling::Complete).await;
    let fourth = create(ledger, &key, 60_000).await;
    assert_eq!(
        (state(ledger, &key).await, fourth.row),
        (State::Pending, first.row)
    );
}

async fn creating_a_cancelled_task_again_revives_it(ledger: &(impl Ledger + Catalog)) {
    let key = key("recreate", 1);
    let arming = create(ledger, &key, -5).await;
    assert_eq!(cancel(ledger, &key).await, CancelAnswer::Cancelled);
    let again = ledger
        .create(&[NewTask::new(key.clone(), arming.due)])
        .await
        .unwrap()[0];
    assert_eq!(again.state, State::Pending);
    assert_eq!(
        claim(ledger, arming, LEASE).await.unwrap().attempt.number,
        1
    );
}

async fn creating_during_a_run_supersedes_that_run(ledger: &(impl Ledger + Catalog)) {
    let key = key("supersede", 1);
    let older = claim_due(ledger, &key, LEASE).await;
    let due = UnixMs(older.lease.arming.due.0 + 1);
    let newer = ledger
        .create(&[NewTask::new(key.clone(), due)])
        .await
        .unwrap()[0];
    assert_eq!((newer.state, newer.older_run), (State::Running, true));
    assert!(
        claim(ledger, newer.arming, LEASE).await.is_none(),
        "not before the older run has ended"
    );
    assert_eq!(
        settle(ledger, &older, Ruling::Complete).await,
        Settled::Superseded
    );
    let claimed = claim(ledger, newer.arming, LEASE).await.unwrap();
    assert_eq!(
        (
            claimed.lease.arming,
            claimed.attempt.number,
            claimed.attempt.crashes
        ),
        (newer.arming, 1, 0)
    );
    assert_eq!(
        settle(ledger, &older, Ruling::Complete).await,
        Settled::Fenced
    );
    assert_eq!(
        settle(ledger, &claimed, Ruling::Complete).await,
        Settled::Applied
    );
}

async fn nothing_is_claimed_before_it_is_due(ledger: &(impl Ledger + Catalog)) {
    let key = key("early", 1);
    let arming = create(ledger, &key, 300).await;
    assert!(claim(ledger, arming, LEASE).await.is_none());
    pass(ledger, arming.due).await;
    assert!(claim(ledger, arming, LEASE).await.is_some());
}

async fn one_claim_wins(ledger: &(impl Ledger + Catalog)) {
    let keys: Vec<TaskKey> = (0..20).map(|n| key("race", n)).collect();
    let mut armings = Vec::new();
    for key in &keys {
        armings.push(create(ledger, key, -5).await);
    }
    let (one, other) = (by(LEASE), by(LEASE));
    let (one, other) = tokio::join!(ledger.claim(&armings, &one), ledger.claim(&armings, &other));
    let mut rows: Vec<u64> = one
        .unwrap()
        .iter()
        .chain(&other.unwrap())
        .map(|claim| claim.lease.arming.row)
        .collect();
    rows.sort_unstable();
    let mut expected: Vec<u64> = armings.iter().map(|arming| arming.row).collect();
    expected.sort_unstable();
    assert_eq!(rows, expected, "each once");
    assert_eq!(state(ledger, &keys[0]).await, State::Running);
}

async fn a_lease_that_ran_out_counts_a_crash_and_can_be_claimed(ledger: &(impl Ledger + Catalog)) {
    let key = key("crash", 1);
    let first = claim_due(ledger, &key, SHORT_LEASE).await;
    assert_eq!((first.attempt.number, first.attempt.crashes), (1, 0));
    assert!(claim(ledger, first.lease.arming, LEASE).await.is_none());
    pass(ledger, ledger.clock().now().plus(SHORT_LEASE)).await;
    let second = claim(ledger, first.lease.arming, LEASE).await.unwrap();
    assert_eq!((second.attempt.number, second.attempt.crashes), (2, 1));
    assert_eq!(
        settle(ledger, &first, Ruling::Complete).await,
        Settled::Fenced
    );
}

async fn a_renewed_lease_holds_and_an_expired_one_is_not_revived(ledger: &(impl Ledger + Catalog)) {
    let key = key("renew", 1);
    let claimed = claim_due(ledger, &key, SHORT_LEASE).await;
    assert_eq!(
        ledger.renew(&[claimed.lease], LEASE).await.unwrap(),
        [Renewal::Held]
    );
    pass(ledger, ledger.clock().now().plus(SHORT_LEASE)).await;
    assert_eq!(state(ledger, &key).await, State::Running);
    assert_eq!(
        ledger
            .renew(&[claimed.lease], Duration::from_millis(20))
            .await
            .unwrap(),
        [Renewal::Held]
    );
    pass(ledger, ledger.clock().now().plus(Duration::from_millis(50))).await;
    assert_eq!(
        ledger.renew(&[claimed.lease], LEASE).await.unwrap(),
        [Renewal::Lost]
    );
    assert_eq!(state(ledger, &key).await, State::Pending);
    assert_eq!(
        settle(ledger, &claimed, Ruling::Complete).await,
        Settled::Applied,
        "nobody else has claimed it"
    );
}

async fn success_is_done(ledger: &(impl Ledger + Catalog)) {
    let key = key("done", 1);
    let claimed = claim_due(ledger, &key, LEASE).await;
    assert_eq!(
        settle(ledger, &claimed, Ruling::Complete).await,
        Settled::Applied
    );
    let record = ledger.find(&key).await.unwrap().unwrap();
    assert_eq!(
        (record.state, record.attempt, record.finished.is_some()),
        (State::Done, 1, true)
    );
}

async fn a_retry_waits_and_counts_its_attempts(ledger: &(impl Ledger + Catalog)) {
    let key = key("retry", 1);
    let claimed = claim_due(ledger, &key, LEASE).await;
    let at = ledger
        .sync_clock()
        .await
        .unwrap()
        .plus(Duration::from_millis(300));
    assert_eq!(
        settle(ledger, &claimed, retry_at(at)).await,
        Settled::Applied
    );
    let record = ledger.find(&key).await.unwrap().unwrap();
    assert_eq!(
        (record.state, record.due_at, record.last_error.as_deref()),
        (State::Waiting, at, Some("no"))
    );
    assert!(claim(ledger, claimed.lease.arming, LEASE).await.is_none());
    pass(ledger, at).await;
    let again = claim(ledger, claimed.lease.arming, LEASE).await.unwrap();
    assert_eq!((again.attempt.number, again.due_at), (2, at));
}

async fn an_attempt_that_ends_by_itself_clears_the_crashes(ledger: &(impl Ledger + Catalog)) {
    let key = key("clears", 1);
    let first = claim_due(ledger, &key, Duration::from_millis(20)).await;
    pass(ledger, ledger.clock().now().plus(Duration::from_millis(50))).await;
    let second = claim(ledger, first.lease.arming, LEASE).await.unwrap();
    assert_eq!(second.attempt.crashes, 1);
    settle(ledger, &second, retry_at(UnixMs(1))).await;
    assert_eq!(
        claim(ledger, first.lease.arming, LEASE)
            .await
            .unwrap()
            .attempt
            .crashes,
        0
    );
}

async fn a_buried_task_is_dead_and_can_be_redriven(ledger: &(impl Ledger + Catalog)) {
    let key = key("bury", 1);
    let claimed = claim_due(ledger, &key, LEASE).await;
    assert_eq!(settle(ledger, &claimed, bury()).await, Settled::Applied);
    let record = ledger.find(&key).await.unwrap().unwrap();
    assert_eq!(
        (record.state, record.last_error.as_deref()),
        (State::Dead, Some("for good"))
    );
    assert_eq!(
        ledger.run_now(&key).await.unwrap(),
        NudgeAnswer::Refused(State::Dead)
    );
    assert_eq!(
        ledger.redrive(&key).await.unwrap(),
        NudgeAnswer::Due(claimed.lease.arming),
        "the same stable id"
    );
    assert_eq!(
        claim(ledger, claimed.lease.arming, LEASE)
            .await
            .unwrap()
            .attempt
            .number,
        1
    );
    assert_eq!(
        ledger.redrive(&key).await.unwrap(),
        NudgeAnswer::Refused(State::Running)
    );
}

async fn a_released_task_has_not_been_tried(ledger: &(impl Ledger + Catalog)) {
    let key = key("release", 1);
    let claimed = claim_due(ledger, &key, LEASE).await;
    assert_eq!(
        settle(ledger, &claimed, Ruling::Release).await,
        Settled::Applied
    );
    let again = claim(ledger, claimed.lease.arming, LEASE).await.unwrap();
    assert_eq!((again.attempt.number, again.attempt.crashes), (1, 0));
}

async fn settling_twice_answers_the_same(ledger: &(impl Ledger + Catalog)) {
    for (n, ruling) in [
        Ruling::Complete,
        retry_at(UnixMs(9_000_000_000_000)),
        bury(),
        Ruling::Release,
    ]
    .into_iter()
    .enumerate()
    {
        let claimed = claim_due(ledger, &key("twice", n), LEASE).await;
        for _ in 0..2 {
            assert_eq!(
                settle(ledger, &claimed, ruling.clone()).await,
                Settled::Applied,
                "{ruling:?}"
            );
        }
        let attempts = ledger.find(&claimed.key).await.unwrap().unwrap().attempt;
        assert_eq!(attempts, u16::from(ruling != Ruling::Release), "{ruling:?}");
    }
}

async fn a_fenced_settlement_writes_nothing(ledger: &(impl Ledger + Catalog)) {
    for (n, ruling) in [
        Ruling::Complete,
        retry_at(UnixMs(1)),
        bury(),
        Ruling::Release,
    ]
    .into_iter()
    .enumerate()
    {
        let mut claimed = claim_due(ledger, &key("fenced", n), LEASE).await;
        claimed.lease.owner = lapsed::ledger::Owner::random();
        assert_eq!(settle(ledger, &claimed, ruling).await, Settled::Fenced);
        assert_eq!(state(ledger, &claimed.key).await, State::Running);
    }
}

async fn a_cancelled_task_is_not_claimed(ledger: &(impl Ledger + Catalog)) {
    let key = key("cancel", 1);
    assert_eq!(cancel(ledger, &key).await, CancelAnswer::Unknown);
    let arming = create(ledger, &key, -5).await;
    assert_eq!(cancel(ledger, &key).await, CancelAnswer::Cancelled);
    assert!(claim(ledger, arming, LEASE).await.is_none());
    assert_eq!(state(ledger, &key).await, State::Cancelled);
    assert_eq!(cancel(ledger, &key).await, CancelAnswer::Cancelled);
    let done = claim_due(ledger, &key, LEASE).await;
    settle(ledger, &done, Ruling::Complete).await;
    assert_eq!(
        cancel(ledger, &key).await,
        CancelAnswer::Finished(State::Done)
    );
}

async fn a_cancellation_during_a_run_ends_its_attempts(ledger: &(impl Ledger + Catalog)) {
    for (n, ruling) in [retry_at(UnixMs(1)), bury(), Ruling::Release]
        .into_iter()
        .enumerate()
    {
        let claimed = claim_due(ledger, &key("during", n), LEASE).await;
        assert_eq!(cancel(ledger, &claimed.key).await, CancelAnswer::Running);
        assert!(
            ledger
                .find(&claimed.key)
                .await
                .unwrap()
                .unwrap()
                .cancel_requested
        );
        assert_eq!(settle(ledger, &claimed, ruling).await, Settled::Cancelled);
        assert_eq!(state(ledger, &claimed.key).await, State::Cancelled);
        assert!(claim(ledger, claimed.lease.arming, LEASE).await.is_none());
    }
}

async fn a_cancellation_fences_a_frozen_run(ledger: &(impl Ledger + Catalog)) {
    let claimed = claim_due(ledger, &key("frozen", 1), Duration::from_millis(20)).await;
    pass(ledger, ledger.clock().now().plus(Duration::from_millis(50))).await;
    assert_eq!(cancel(ledger, &claimed.key).await, CancelAnswer::Cancelled);
    assert_eq!(
        settle(ledger, &claimed, Ruling::Complete).await,
        Settled::Fenced
    );
    assert_eq!(state(ledger, &claimed.key).await, State::Cancelled);
}

async fn a_success_after_a_cancellation_is_a_success(ledger: &(impl Ledger + Catalog)) {
    let claimed = claim_due(ledger, &key("late_cancel", 1), LEASE).await;
    cancel(ledger, &claimed.key).await;
    assert_eq!(
        settle(ledger, &claimed, Ruling::Complete).await,
        Settled::Applied
    );
    assert_eq!(state(ledger, &claimed.key).await, State::Done);
}

async fn only_a_pending_task_can_be_rescheduled(ledger: &(impl Ledger + Catalog)) {
    let key = key("reschedule", 1);
    let due = UnixMs(ledger.sync_clock().await.unwrap().0 - 5);
    assert_eq!(
        ledger.reschedule(&key, due).await.unwrap(),
        RescheduleAnswer::Unknown
    );
    let arming = create(ledger, &key, 60_000).await;
    let moved = Arming { due, ..arming };
    assert_eq!(
        ledger.reschedule(&key, due).await.unwrap(),
        RescheduleAnswer::Moved(moved)
    );
    let claimed = claim(ledger, moved, LEASE).await.unwrap();
    assert_eq!(
        ledger.reschedule(&key, due).await.unwrap(),
        RescheduleAnswer::Running
    );
    settle(ledger, &claimed, Ruling::Complete).await;
    assert_eq!(
        ledger.reschedule(&key, due).await.unwrap(),
        RescheduleAnswer::Finished(State::Done)
    );
}

async fn run_now_makes_a_task_due(ledger: &(impl Ledger + Catalog)) {
    let key = key("run_now", 1);
    assert_eq!(ledger.run_now(&key).await.unwrap(), NudgeAnswer::Unknown);
    create(ledger, &key, 60_000).await;
    let NudgeAnswer::Due(arming) = ledger.run_now(&key).await.unwrap() else {
        panic!("refused")
    };
    let claimed = claim(ledger, arming, LEASE).await.unwrap();
    settle(ledger, &claimed, retry_at(UnixMs(9_000_000_000_000))).await;
    assert_eq!(state(ledger, &key).await, State::Waiting);
    assert_eq!(
        ledger.run_now(&key).await.unwrap(),
        NudgeAnswer::Due(arming),
        "a retry keeps its stable id"
    );
    assert_eq!(
        claim(ledger, arming, LEASE).await.unwrap().attempt.number,
        2
    );
}

async fn pages(ledger: &impl Ledger, window: Window, rule: &str) -> Vec<String> {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = ledger
            .scan(DueScan {
                window,
                after,
                limit: 2,
            })
            .await
            .unwrap();
        found.extend(
            page.rows
                .iter()
                .filter(|row| row.key.method() == rule)
                .map(|row| row.key.args().next().unwrap().to_owned()),
        );
        after = page.next;
        if after.is_none() {
            return found;
        }
    }
}

async fn scans_go_by_due_time_in_pages(ledger: &(impl Ledger + Catalog)) {
    for (name, in_ms) in [
        ("c", -1_000),
        ("a", -3_000),
        ("b", -2_000),
        ("far", 3_600_000),
        ("near", 5_000),
    ] {
        create(ledger, &key("scan", name), in_ms).await;
    }
    let leased = create(ledger, &key("scan", "leased"), -2_500).await;
    claim(ledger, leased, LEASE).await.unwrap();
    assert_eq!(
        pages(ledger, Window::OverdueOldest(Duration::ZERO), "scan").await,
        ["a", "b", "c"]
    );
    assert_eq!(
        pages(ledger, Window::OverdueNewest(Duration::ZERO), "scan").await,
        ["c", "b", "a"]
    );
    assert_eq!(
        pages(ledger, Window::Ahead(Duration::from_secs(10)), "scan").await,
        ["near"]
    );
    assert_eq!(
        pages(ledger, Window::Ahead(Duration::from_secs(7200)), "scan").await,
        ["near", "far"]
    );
    assert!(
        pages(
            ledger,
            Window::Deleted {
                back: Duration::from_secs(60),
                ahead: Duration::from_secs(7200)
            },
            "scan"
        )
        .await
        .is_empty()
    );
}

async fn a_scan_for_news_leaves_out_what_is_known(ledger: &(impl Ledger + Catalog)) {
    let mut armings = Vec::new();
    for (name, in_ms) in [("a", 5_000), ("b", 6_000), ("c", 7_000)] {
        armings.push(create(ledger, &key("news", name), in_ms).await);
    }
    let moved = armings[1].due.plus(Duration::from_millis(500));
    ledger.reschedule(&key("news", "b"), moved).await.unwrap();
    let seen: Vec<(u64, UnixMs)> = armings
        .iter()
        .map(|arming| (arming.row, arming.due))
        .collect();
    let known = |row: u64, due: UnixMs| seen.contains(&(row, due));
    let (mut news, mut after) = (Vec::new(), None);
    loop {
        let scan = DueScan {
            window: Window::Ahead(Duration::from_secs(10)),
            after,
            limit: 1,
        };
        let page = ledger.scan_news(scan, &known).await.unwrap();
        let own = page
            .rows
            .into_iter()
            .filter(|row| row.key.method() == "news");
        news.extend(own.map(|row| (row.key, row.due_at)));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(news, [(key("news", "b"), moved)]);
}

async fn lists_are_filtered_and_paged(ledger: &(impl Ledger + Catalog)) {
    let due = ledger.sync_clock().await.unwrap();
    let class = |class: &str, arg: &str| TaskKey::build(class, "list", [arg]).unwrap();
    for n in 0..5 {
        let task = NewTask {
            tag: Some("list_tag".into()),
            ..NewTask::new(class("List_x", &n.to_string()), UnixMs(due.0 + 60_000 + n))
        };
        ledger.create(&[task]).await.unwrap();
    }
    ledger
        .create(&[NewTask::new(class("Listyx", "other"), UnixMs(due.0 - 5))])
        .await
        .unwrap();
    let all = ListFilter {
        class: Some("List_x".into()),
        limit: 100,
        ..ListFilter::default()
    };
    assert_eq!(
        ledger.list(&all).await.unwrap().tasks.len(),
        5,
        "`_` is no wildcard"
    );
    let tagged = ListFilter {
        tag: Some("list_tag".into()),
        limit: 2,
        ..ListFilter::default()
    };
    let first = ledger.list(&tagged).await.unwrap();
    let second = ledger
        .list(&ListFilter {
            cursor: first.next,
            ..tagged.clone()
        })
        .await
        .unwrap();
    let third = ledger
        .list(&ListFilter {
            cursor: second.next,
            ..tagged
        })
        .await
        .unwrap();
    assert_eq!(
        (
            first.tasks.len(),
            second.tasks.len(),
            third.tasks.len(),
            third.next
        ),
        (2, 2, 1, None)
    );
    let overdue = ListFilter {
        states: vec![StateFilter::Overdue],
        method: Some("list".into()),
        limit: 100,
        ..ListFilter::default()
    };
    assert_eq!(ledger.list(&overdue).await.unwrap().tasks.len(), 1);
    let window = ListFilter {
        due_after: Some(UnixMs(due.0 + 60_001)),
        due_before: Some(UnixMs(due.0 + 60_003)),
        ..all
    };
    assert_eq!(ledger.list(&window).await.unwrap().tasks.len(), 2);
    let none = ListFilter {
        states: vec![StateFilter::Is(State::Dead)],
        ..window
    };
    assert!(ledger.list(&none).await.unwrap().tasks.is_empty());
}

async fn answers_come_in_the_order_of_the_questions(ledger: &(impl Ledger + Catalog)) {
    let due = ledger.sync_clock().await.unwrap();
    let tasks: Vec<NewTask> = [3, 1, 2]
        .map(|n| NewTask::new(key("order", n), UnixMs(due.0 - n)))
        .to_vec();
    let created = ledger.create(&tasks).await.unwrap();
    assert_eq!(
        created
            .iter()
            .map(|created| due.0 - created.arming.due.0)
            .collect::<Vec<_>>(),
        [3, 1, 2]
    );
    let keys = [key("order", 2), key("order", "nobody"), key("order", 3)];
    let standings = ledger.look_up(&keys).await.unwrap();
    assert_eq!(standings[0].as_ref().unwrap().arming, created[2].arming);
    assert!(standings[1].is_none());
    assert_eq!(standings[2].as_ref().unwrap().arming, created[0].arming);
    let armings: Vec<Arming> = created.iter().map(|created| created.arming).collect();
    let claims = ledger.claim(&armings, &by(LEASE)).await.unwrap();
    let rulings = [Ruling::Complete, bury(), Ruling::Release];
    let settlements: Vec<Settlement> = claims
        .iter()
        .zip(rulings)
        .map(|(claim, ruling)| Settlement {
            lease: claim.lease,
            ruling,
        })
        .collect();
    ledger.settle(&settlements).await.unwrap();
    for (claim, expected) in claims
        .iter()
        .zip([State::Done, State::Dead, State::Pending])
    {
        assert_eq!(state(ledger, &claim.key).await, expected);
    }
}

async fn long_errors_are_cut(ledger: &(impl Ledger + Catalog)) {
    let claimed = claim_due(ledger, &key("long", 1), LEASE).await;
    settle(
        ledger,
        &claimed,
        bury_for(Reason::Exhausted, &"é".repeat(100_000)),
    )
    .await;
    let error = ledger
        .find(&claimed.key)
        .await
        .unwrap()
        .unwrap()
        .last_error
        .unwrap();
    assert_eq!(error, "é".repeat(1024));
}

async fn a_task_moved_away_and_back_during_its_run_can_be_released(
    ledger: &(impl Ledger + Catalog),
) {
    let key = key("moved", 1);
    let claimed = claim_due(ledger, &key, LEASE).await;
    for due in [
        claimed.lease.arming.due.0 + 5_000,
        claimed.lease.arming.due.0,
    ] {
        let moved = NewTask::new(key.clone(), UnixMs(due));
        ledger.create(&[moved]).await.unwrap();
    }
    let settled = settle(ledger, &claimed, Ruling::Release).await;
    assert_eq!(settled, Settled::Applied);
    let record = ledger.find(&key).await.unwrap().unwrap();
    assert_eq!((record.state, record.attempt), (State::Pending, 0));
}

async fn in_ms(ledger: &impl Ledger, ms: i64) -> UnixMs {
    UnixMs(ledger.sync_clock().await.unwrap().0 + ms)
}

async fn standing(ledger: &impl Ledger, key: &TaskKey) -> Option<Standing> {
    ledger
        .look_up(std::slice::from_ref(key))
        .await
        .unwrap()
        .remove(0)
}

async fn adopt(
    ledger: &impl Ledger,
    key: &TaskKey,
    due: UnixMs,
    over: Option<Standing>,
) -> Adopted {
    let key = key.clone();
    let found = Foundling { key, due, over };
    ledger.adopt(&[found]).await.unwrap().remove(0)
}

fn written(adopted: Adopted) -> Arming {
    match adopted {
        Adopted::Written(arming) => arming,
        other => panic!("expected it to be written, found {other:?}"),
    }
}

async fn a_key_without_a_row_is_adopted_once(ledger: &(impl Ledger + Catalog)) {
    let rule = "a_key_without_a_row_is_adopted_once";
    let due = in_ms(ledger, 60_000).await;
    let keys = [key(rule, 1), key(rule, 2), key(rule, 3)];
    let found = keys.clone().map(|key| Foundling {
        key,
        due,
        over: None,
    });
    let armings: Vec<Arming> = ledger
        .adopt(&found)
        .await
        .unwrap()
        .into_iter()
        .map(written)
        .collect();
    for (key, arming) in keys.iter().zip(armings) {
        let row = standing(ledger, key).await.unwrap();
        assert_eq!((row.arming, row.state), (arming, State::Pending));
        assert_eq!((row.arming.due, row.origin), (due, Origin::Key));
        assert!(ledger.find(key).await.unwrap().unwrap().adopted);
    }
    let again = adopt(ledger, &keys[0], in_ms(ledger, 90_000).await, None).await;
    assert_eq!(again, Adopted::Overtaken);
    assert_eq!(standing(ledger, &keys[0]).await.unwrap().arming.due, due);
}

async fn adopting_over_a_row_that_changed_meanwhile_writes_nothing(
    ledger: &(impl Ledger + Catalog),
) {
    let rule = "adopting_over_a_row_that_changed_meanwhile_writes_nothing";
    let later = in_ms(ledger, 90_000).await;
    // Moved, cancelled, and claimed since it was seen.
    let moved = key(rule, "moved");
    let cancelled = key(rule, "cancelled");
    let claimed = key(rule, "claimed");
    for (key, delay_ms) in [(&moved, 60_000), (&cancelled, 60_000), (&claimed, -10)] {
        let due = in_ms(ledger, delay_ms).await;
        ledger
            .create(&[NewTask::new(key.clone(), due)])
            .await
            .unwrap();
    }
    let mut seen = Vec::new();
    for key in [&moved, &cancelled, &claimed] {
        seen.push(standing(ledger, key).await.unwrap());
    }
    ledger
        .reschedule(&moved, in_ms(ledger, 70_000).await)
        .await
        .unwrap();
    ledger
        .cancel(std::slice::from_ref(&cancelled))
        .await
        .unwrap();
    assert!(claim(ledger, seen[2].arming, LEASE).await.is_some());
    let running = standing(ledger, &claimed).await.unwrap();
    ledger.cancel(std::slice::from_ref(&claimed)).await.unwrap();
    for (key, over) in [&moved, &cancelled, &claimed, &claimed]
        .into_iter()
        .zip(seen.into_iter().chain([running]))
    {
        assert_eq!(
            adopt(ledger, key, later, Some(over)).await,
            Adopted::Overtaken,
            "{key}"
        );
        assert_ne!(standing(ledger, key).await.unwrap().arming.due, later);
    }
}

async fn an_adopted_move_keeps_what_belongs_to_the_task_and_begins_its_counters_anew(
    ledger: &(impl Ledger + Catalog),
) {
    let key = key("an_adopted_move_keeps_what_belongs_to_the_task", 1);
    let task = NewTask {
        payload: Some("{}".into()),
        tag: Some("tag".into()),
        max_attempts: Some(3),
        ..NewTask::new(key.clone(), in_ms(ledger, -10).await)
    };
    ledger.create(&[task]).await.unwrap();
    let seen = standing(ledger, &key).await.unwrap();
    let claim = claim(ledger, seen.arming, LEASE).await.unwrap();
    let at = in_ms(ledger, 60_000).await;
    settle(ledger, &claim, retry_at(at)).await;
    let waiting = standing(ledger, &key).await.unwrap();
    assert_eq!(waiting.state, State::Waiting);
    let due = in_ms(ledger, 30_000).await;
    let arming = written(adopt(ledger, &key, due, Some(waiting)).await);
    assert_eq!((arming.row, arming.due), (seen.arming.row, due));
    let record = ledger.find(&key).await.unwrap().unwrap();
    assert_eq!(
        (record.state, record.due_at, record.attempt),
        (State::Pending, due, 0)
    );
    assert_eq!(
        (record.payload.as_deref(), record.tag.as_deref()),
        (Some("{}"), Some("tag"))
    );
    assert_eq!(
        (record.max_attempts, record.last_error, record.adopted),
        (Some(3), None, true)
    );
}

async fn adopting_during_a_run_supersedes_that_run(ledger: &(impl Ledger + Catalog)) {
    let key = key("adopting_during_a_run_supersedes_that_run", 1);
    let run = claim_due(ledger, &key, LEASE).await;
    let running = standing(ledger, &key).await.unwrap();
    let arming = written(adopt(ledger, &key, in_ms(ledger, 5).await, Some(running)).await);
    pass(ledger, arming.due).await;
    assert!(
        claim(ledger, arming, LEASE).await.is_none(),
        "its lease holds"
    );
    assert_eq!(
        settle(ledger, &run, Ruling::Complete).await,
        Settled::Superseded
    );
    assert!(claim(ledger, arming, LEASE).await.is_some());
}

async fn a_finished_task_that_is_adopted_begins_anew(ledger: &(impl Ledger + Catalog)) {
    let rule = "a_finished_task_that_is_adopted_begins_anew";
    let keys = [key(rule, "done"), key(rule, "dead"), key(rule, "cancelled")];
    for (key, state) in keys
        .iter()
        .zip([State::Done, State::Dead, State::Cancelled])
    {
        let payload = Some("{}".into());
        let task = NewTask {
            payload,
            ..NewTask::new(key.clone(), in_ms(ledger, -10).await)
        };
        ledger.create(&[task]).await.unwrap();
        if state == State::Cancelled {
            ledger.cancel(std::slice::from_ref(key)).await.unwrap();
        } else {
            let seen = standing(ledger, key).await.unwrap();
            let run = claim(ledger, seen.arming, LEASE).await.unwrap();
            let ruling = match state {
                State::Done => Ruling::Complete,
                _ => bury(),
            };
            settle(ledger, &run, ruling).await;
        }
        let finished = standing(ledger, key).await.unwrap();
        assert_eq!(finished.state, state);
        let due = in_ms(ledger, 60_000).await;
        written(adopt(ledger, key, due, Some(finished)).await);
        let record = ledger.find(key).await.unwrap().unwrap();
        assert_eq!(
            (record.state, record.due, record.attempt),
            (State::Pending, due, 0)
        );
        assert_eq!(
            (record.payload, record.finished, record.last_error),
            (None, None, None)
        );
    }
}

async fn only_an_adopted_task_that_is_pending_and_not_about_to_fall_due_is_withdrawn(
    ledger: &(impl Ledger + Catalog),
) {
    let rule = "only_an_adopted_task_is_withdrawn";
    let far = in_ms(ledger, 60_000).await;
    let made = key(rule, "made");
    ledger
        .create(&[NewTask::new(made.clone(), far)])
        .await
        .unwrap();
    let made = standing(ledger, &made).await.unwrap().arming;
    assert!(!ledger.withdraw(made).await.unwrap(), "a program made it");

    let soon = written(adopt(ledger, &key(rule, "soon"), in_ms(ledger, 900).await, None).await);
    assert!(!ledger.withdraw(soon).await.unwrap(), "it may have expired");

    let pending = key(rule, "pending");
    let arming = written(adopt(ledger, &pending, far, None).await);
    let older = Arming {
        due: UnixMs(far.0 - 1),
        ..arming
    };
    assert!(!ledger.withdraw(older).await.unwrap(), "another arming");
    assert!(ledger.withdraw(arming).await.unwrap());
    assert!(!ledger.withdraw(arming).await.unwrap(), "once");
    let row = standing(ledger, &pending).await.unwrap();
    assert_eq!(
        (row.state, row.origin),
        (State::Cancelled, Origin::DeletedKey)
    );
    let again = written(adopt(ledger, &pending, far, Some(row)).await);
    assert_eq!(again, arming);
    let row = standing(ledger, &pending).await.unwrap();
    assert_eq!((row.state, row.origin), (State::Pending, Origin::Key));
}

async fn creating_over_an_adopted_task_makes_it_the_programs(ledger: &(impl Ledger + Catalog)) {
    let rule = "creating_over_an_adopted_task_makes_it_the_programs";
    let key = key(rule, 1);
    written(adopt(ledger, &key, in_ms(ledger, 60_000).await, None).await);
    ledger
        .create(&[NewTask::new(key.clone(), in_ms(ledger, 70_000).await)])
        .await
        .unwrap();
    assert_eq!(standing(ledger, &key).await.unwrap().origin, Origin::Row);
}

/// Asks for `key` in a minute, with another payload, under this policy.
async fn ask_again(ledger: &impl Ledger, key: &TaskKey, policy: IfPending) -> Created {
    let due = UnixMs(ledger.sync_clock().await.unwrap().0 + 60_000);
    let task = NewTask {
        payload: Some("\"again\"".into()),
        if_pending: policy,
        ..NewTask::new(key.clone(), due)
    };
    ledger.create(&[task]).await.unwrap()[0]
}

async fn payload(ledger: &impl Catalog, key: &TaskKey) -> Option<String> {
    ledger.find(key).await.unwrap().unwrap().payload
}

async fn keep_leaves_what_is_pending_or_waits_as_it_is(ledger: &(impl Ledger + Catalog)) {
    let pending = key("keep_pending", 1);
    let arming = create(ledger, &pending, 5_000).await;
    let since = ledger.find(&pending).await.unwrap().unwrap().created;
    for _ in 0..2 {
        let again = ask_again(ledger, &pending, IfPending::Keep).await;
        assert_eq!(
            (again.arming, again.state, again.stands, again.since),
            (arming, State::Pending, Stands::Kept, since)
        );
        assert_eq!(payload(ledger, &pending).await, None);
    }

    let waiting = key("keep_waiting", 1);
    let claimed = claim_due(ledger, &waiting, LEASE).await;
    let at = ledger.clock().now().plus(Duration::from_secs(60));
    settle(ledger, &claimed, retry_at(at)).await;
    let again = ask_again(ledger, &waiting, IfPending::Keep).await;
    assert_eq!(
        (again.arming, again.state, again.stands),
        (claimed.lease.arming, State::Waiting, Stands::Kept)
    );
    let record = ledger.find(&waiting).await.unwrap().unwrap();
    assert_eq!((record.attempt, record.due_at), (1, at), "its retry stays");

    // What was moved by the default since then is not taken for moved by this.
    let moved = create(ledger, &pending, 70_000).await;
    let again = ask_again(ledger, &pending, IfPending::Keep).await;
    assert_eq!((again.arming, again.stands), (moved, Stands::Kept));
}

async fn keep_asks_for_another_run_behind_one_in_progress(ledger: &(impl Ledger + Catalog)) {
    let key = key("keep_running", 1);
    let running = claim_due(ledger, &key, LEASE).await;
    let next = ask_again(ledger, &key, IfPending::Keep).await;
    assert_eq!(
        (
            next.stands,
            next.older_run,
            next.arming == running.lease.arming
        ),
        (Stands::Asked, true, false)
    );
    assert_eq!(payload(ledger, &key).await.as_deref(), Some("\"again\""));
    // The next one is pending, whatever runs.
    pass(ledger, ledger.clock().now()).await;
    let third = ask_again(ledger, &key, IfPending::Keep).await;
    assert_eq!(
        (third.arming, third.stands, third.older_run),
        (next.arming, Stands::Kept, true)
    );
    assert_eq!(
        settle(ledger, &running, Ruling::Complete).await,
        Settled::Superseded
    );
    assert_eq!(state(ledger, &key).await, State::Pending);
}

async fn refuse_leaves_what_is_pending_or_running_as_it_is(ledger: &(impl Ledger + Catalog)) {
    let pending = key("refuse", 1);
    let arming = create(ledger, &pending, 5_000).await;
    let again = ask_again(ledger, &pending, IfPending::Refuse).await;
    assert_eq!(
        (again.arming, again.state, again.stands),
        (arming, State::Pending, Stands::Refused)
    );
    assert_eq!(payload(ledger, &pending).await, None);

    let running = key("refuse", 2);
    let claimed = claim_due(ledger, &running, LEASE).await;
    let again = ask_again(ledger, &running, IfPending::Refuse).await;
    assert_eq!(
        (again.arming, again.state, again.stands),
        (claimed.lease.arming, State::Running, Stands::Refused)
    );
    // Called off, but it runs still.
    cancel(ledger, &running).await;
    let again = ask_again(ledger, &running, IfPending::Refuse).await;
    assert_eq!(again.stands, Stands::Refused);
    assert!(
        ledger
            .find(&running)
            .await
            .unwrap()
            .unwrap()
            .cancel_requested,
        "the cancellation stands"
    );
    assert_eq!(
        settle(ledger, &claimed, Ruling::Complete).await,
        Settled::Applied
    );
    let again = ask_again(ledger, &running, IfPending::Refuse).await;
    assert_eq!((again.state, again.stands), (State::Pending, Stands::Asked));
}

async fn a_crashed_run_counts_as_pending_for_every_policy(ledger: &(impl Ledger + Catalog)) {
    for (policy, stands) in [
        (IfPending::Move, Stands::Asked),
        (IfPending::Keep, Stands::Kept),
        (IfPending::Refuse, Stands::Refused),
    ] {
        let key = key("policy_crash", policy.as_str());
        let claimed = claim_due(ledger, &key, SHORT_LEASE).await;
        pass(ledger, ledger.clock().now().plus(SHORT_LEASE)).await;
        let again = ask_again(ledger, &key, policy).await;
        let keeps = again.arming == claimed.lease.arming;
        assert_eq!(
            (again.stands, keeps),
            (stands, policy != IfPending::Move),
            "{policy:?}"
        );
    }
}

async fn the_same_due_time_again_changes_nothing_under_any_policy(
    ledger: &(impl Ledger + Catalog),
) {
    for policy in IfPending::ALL {
        let key = key("policy_same", policy.as_str());
        let first = ask_again(ledger, &key, policy).await;
        assert_eq!(first.stands, Stands::Asked);
        for other in IfPending::ALL {
            let task = NewTask {
                payload: Some("2".into()),
                if_pending: other,
                ..NewTask::new(key.clone(), first.arming.due)
            };
            let second = ledger.create(&[task]).await.unwrap()[0];
            assert_eq!(
                (second.arming, second.stands),
                (first.arming, Stands::Asked)
            );
            assert_eq!(payload(ledger, &key).await.as_deref(), Some("\"again\""));
        }
    }
}

async fn what_is_over_begins_anew_under_every_policy(ledger: &(impl Ledger + Catalog)) {
    for policy in IfPending::ALL {
        for over in ["done", "dead", "cancelled"] {
            let key = key("policy_over", format!("{}-{over}", policy.as_str()));
            let claimed = claim_due(ledger, &key, LEASE).await;
            let (ruling, expected) = match over {
                "done" => (Ruling::Complete, State::Done),
                "dead" => (bury(), State::Dead),
                _ => (retry_at(claimed.due_at), State::Cancelled),
            };
            if over == "cancelled" {
                cancel(ledger, &key).await;
            }
            settle(ledger, &claimed, ruling).await;
            assert_eq!(state(ledger, &key).await, expected);
            let again = ask_again(ledger, &key, policy).await;
            assert_eq!(
                (again.state, again.stands, again.older_run),
                (State::Pending, Stands::Asked, false),
                "{policy:?} {over}"
            );
            let record = ledger.find(&key).await.unwrap().unwrap();
            assert_eq!(
                (record.attempt, record.last_error, record.finished),
                (0, None, None)
            );
            assert_eq!(record.payload.as_deref(), Some("\"again\""));
            assert!(again.arming.due > claimed.lease.arming.due);
        }
    }
}

async fn a_call_may_mix_policies(ledger: &(impl Ledger + Catalog)) {
    let due = ledger.sync_clock().await.unwrap();
    let task = |n: usize, in_ms: i64, policy| NewTask {
        if_pending: policy,
        ..NewTask::new(key("mixed", n), UnixMs(due.0 + in_ms))
    };
    let tasks: Vec<NewTask> = (0..9).map(|n| task(n, 10_000, IfPending::Keep)).collect();
    ledger.create(&tasks).await.unwrap();
    let policies = IfPending::ALL.into_iter().cycle().take(12).enumerate();
    let again: Vec<NewTask> = policies
        .map(|(n, policy)| task(n, 20_000, policy))
        .collect();
    let created = ledger.create(&again).await.unwrap();
    let stands: Vec<Stands> = created.iter().map(|created| created.stands).collect();
    let there = [Stands::Asked, Stands::Kept, Stands::Refused];
    assert_eq!(stands[..9], there.repeat(3));
    assert_eq!(stands[9..], [Stands::Asked; 3]);
}

async fn one_call_may_ask_twice_for_a_key(ledger: &(impl Ledger + Catalog)) {
    for (policy, stands) in [
        (IfPending::Keep, Stands::Kept),
        (IfPending::Refuse, Stands::Refused),
    ] {
        let key = key("twice", policy.as_str());
        let done = claim_due(ledger, &key, LEASE).await;
        settle(ledger, &done, Ruling::Complete).await;
        let tasks = [10_000, 20_000].map(|in_ms| NewTask {
            if_pending: policy,
            ..NewTask::new(key.clone(), UnixMs(done.due_at.0 + in_ms))
        });
        let created = ledger.create(&tasks).await.unwrap();
        assert_eq!(
            (created[0].arming.due, created[0].stands, created[1].stands),
            (tasks[0].due, Stands::Asked, stands),
            "{policy:?}"
        );
    }
}

/// Calls off all that fit; the keys of those that were, and how many run.
async fn cancel_all(ledger: &impl Ledger, filter: &CancelFilter) -> (Vec<TaskKey>, usize) {
    let (mut cancelled, mut running, mut before) = (Vec::new(), 0, None);
    loop {
        let page = ledger.cancel_page(filter, before, false).await.unwrap();
        cancelled.extend(page.cancelled);
        running += page.running;
        assert_eq!(page.locked, 0);
        before = page.next;
        if before.is_none() {
            cancelled.sort();
            return (cancelled, running);
        }
    }
}

async fn create_tagged(ledger: &impl Ledger, key: &TaskKey, in_ms: i64, tag: &str) -> Arming {
    let due = UnixMs(ledger.sync_clock().await.unwrap().0 + in_ms);
    let task = NewTask {
        tag: Some(tag.into()),
        ..NewTask::new(key.clone(), due)
    };
    ledger.create(&[task]).await.unwrap()[0].arming
}

async fn tasks_are_cancelled_by_tag_each_as_if_alone(ledger: &(impl Ledger + Catalog)) {
    let names = [
        "pending", "waiting", "running", "crashed", "done", "dead", "other", "none",
    ];
    let [pending, waiting, running, crashed, done, dead, other, none] =
        names.map(|name| key("tagged", name));
    let tag = "conformance_tag";
    create_tagged(ledger, &pending, 60_000, tag).await;
    create_tagged(ledger, &other, 60_000, "conformance_tag2").await;
    create(ledger, &none, 60_000).await;
    let mut claims = Vec::new();
    for key in [&waiting, &running, &done, &dead] {
        let arming = create_tagged(ledger, key, -5, tag).await;
        claims.push(claim(ledger, arming, LEASE).await.unwrap());
    }
    let arming = create_tagged(ledger, &crashed, -5, tag).await;
    let thawed = claim(ledger, arming, SHORT_LEASE).await.unwrap();
    let at = ledger.clock().now().plus(Duration::from_secs(60));
    settle(ledger, &claims[0], retry_at(at)).await;
    settle(ledger, &claims[2], Ruling::Complete).await;
    settle(ledger, &claims[3], bury()).await;
    pass(ledger, ledger.clock().now().plus(SHORT_LEASE)).await;

    let filter = CancelFilter::tag(tag);
    let mut expected = vec![crashed.clone(), pending.clone(), waiting.clone()];
    expected.sort();
    assert_eq!(cancel_all(ledger, &filter).await, (expected, 1));
    let states = [
        (&pending, State::Cancelled),
        (&waiting, State::Cancelled),
        (&crashed, State::Cancelled),
        (&running, State::Running),
        (&done, State::Done),
        (&dead, State::Dead),
        (&other, State::Pending),
        (&none, State::Pending),
    ];
    for (key, expected) in states {
        assert_eq!(state(ledger, key).await, expected, "{key}");
    }
    assert_eq!(
        settle(ledger, &thawed, Ruling::Complete).await,
        Settled::Fenced
    );
    // No further attempt of what runs.
    assert_eq!(
        settle(ledger, &claims[1], retry_at(at)).await,
        Settled::Cancelled
    );
    assert_eq!(cancel_all(ledger, &filter).await, (Vec::new(), 0));
}

async fn tasks_are_cancelled_by_prefix_and_by_class(ledger: &(impl Ledger + Catalog)) {
    let names = [
        "Cancel_x@m",
        "Cancel_x@m@1",
        "Cancel_x@m@12",
        "Cancel_x@mm@1",
        "Cancel_xy@m@1",
        "Cancelyx@m@1",
    ];
    let keys = names.map(|name| TaskKey::parse(name).unwrap());
    let of = |numbers: &[usize]| -> (Vec<TaskKey>, usize) {
        (numbers.iter().map(|n| keys[*n].clone()).collect(), 0)
    };
    let cases = [
        (CancelFilter::class("Cancel_x"), of(&[0, 1, 2, 3])),
        (CancelFilter::class("Cancel_x").method("m"), of(&[0, 1, 2])),
        (CancelFilter::prefix("Cancel_x@m@1"), of(&[1, 2])),
        (CancelFilter::prefix("Cancel_x@m@1@"), of(&[])),
        (CancelFilter::prefix("Cancel_x@m@1 "), of(&[])),
        (CancelFilter::prefix("Cancel_x"), of(&[0, 1, 2, 3, 4])),
    ];
    for (filter, expected) in cases {
        for key in &keys {
            create(ledger, key, 60_000).await;
        }
        assert_eq!(cancel_all(ledger, &filter).await, expected, "{filter:?}");
    }
    create(ledger, &keys[0], 70_000).await;
    let mut both = CancelFilter::class("Cancel_x");
    both.tag = Some("nobody has this".into());
    assert_eq!(cancel_all(ledger, &both).await, of(&[]));
    let all = CancelFilter::default();
    assert!(ledger.cancel_page(&all, None, false).await.is_err());
}

async fn a_dry_run_cancels_nothing(ledger: &(impl Ledger + Catalog)) {
    let tag = "dry_tag";
    let (one, other) = (key("dry", 1), key("dry", 2));
    create_tagged(ledger, &one, 60_000, tag).await;
    let arming = create_tagged(ledger, &other, -5, tag).await;
    claim(ledger, arming, LEASE).await.unwrap();
    let filter = CancelFilter::tag(tag);
    let page = ledger.cancel_page(&filter, None, true).await.unwrap();
    assert_eq!((page.cancelled, page.running), (vec![one.clone()], 1));
    assert_eq!(state(ledger, &one).await, State::Pending);
    let running = ledger.find(&other).await.unwrap().unwrap();
    assert!(!running.cancel_requested);
}

async fn many_are_cancelled_page_by_page(ledger: &(impl Ledger + Catalog)) {
    const MANY: usize = 5_000;
    let due = UnixMs(ledger.sync_clock().await.unwrap().0 + 60_000);
    let task = |n: usize| NewTask {
        tag: Some("many_tag".into()),
        ..NewTask::new(
            TaskKey::build("Pages", "many", [n.to_string()]).unwrap(),
            due,
        )
    };
    let tasks: Vec<NewTask> = (0..MANY).map(task).collect();
    for filter in [
        CancelFilter::tag("many_tag"),
        CancelFilter::prefix("Pages@many@"),
    ] {
        ledger.create(&tasks).await.unwrap();
        let (mut cancelled, running) = cancel_all(ledger, &filter).await;
        cancelled.dedup();
        assert_eq!((cancelled.len(), running), (MANY, 0), "{filter:?}");
    }
}

async fn a_payload_that_is_too_long_is_not_read(ledger: &(impl Ledger + Catalog)) {
    let due = ledger.sync_clock().await.unwrap();
    // Two bytes a character: what counts is bytes.
    let text = |bytes: usize| {
        format!(
            "\"{}{}\"",
            "x".repeat(bytes % 2),
            "\u{e4}".repeat(bytes / 2 - 1)
        )
    };
    let tasks = [PAYLOAD_READ_MAX, PAYLOAD_READ_MAX + 1].map(|bytes| NewTask {
        payload: Some(text(bytes)),
        ..NewTask::new(key("payload", bytes), UnixMs(due.0 - 5))
    });
    let created = ledger.create(&tasks).await.unwrap();
    let longest = claim(ledger, created[0].arming, LEASE).await.unwrap();
    assert_eq!(
        (longest.payload, longest.oversize),
        (tasks[0].payload.clone(), None)
    );
    let too_long = claim(ledger, created[1].arming, LEASE).await.unwrap();
    let bytes = tasks[1].payload.as_ref().unwrap().len() as u64;
    assert_eq!((too_long.payload, too_long.oversize), (None, Some(bytes)));
    let none = claim_due(ledger, &key("payload", "none"), LEASE).await;
    assert_eq!((none.payload, none.oversize), (None, None));
}

/// Every hour, due 10 ms ago.
async fn hourly(ledger: &impl Ledger, key: &TaskKey) -> Arming {
    let due = UnixMs(ledger.sync_clock().await.unwrap().0 - 10);
    let every = Recurrence::every(Duration::from_secs(3600)).unwrap();
    let task = NewTask {
        recurrence: Some(every.starting(due)),
        payload: Some("{\"a\":1}".into()),
        ..NewTask::new(key.clone(), due)
    };
    let arming = ledger.recur(&task, None).await.unwrap();
    arming.expect("there was no row")
}

async fn series(ledger: &impl Ledger, key: &TaskKey) -> SeriesRow {
    ledger.series(key).await.unwrap().unwrap()
}

async fn recurrence(ledger: &impl Ledger, key: &TaskKey) -> Recurrence {
    let stored = series(ledger, key).await.recurrence;
    stored.unwrap().parse().unwrap()
}

fn go_on(next: UnixMs, error: Option<&str>) -> Ruling {
    Ruling::GoOn {
        next,
        ran: true,
        error: error.map(str::to_owned),
        mishap: error.map(|error| mishap(How::Failed, 1, error)),
        result: error.is_none().then(|| "7".to_owned()),
    }
}

async fn a_series_remembers_what_failed_and_the_result_of_its_latest_run(
    ledger: &(impl Ledger + Catalog),
) {
    let key = key("series-history", 1);
    let mut arming = hourly(ledger, &key).await;
    let snoozed = Mishap {
        snoozes: 1,
        ..mishap(How::Snoozed, 1, "")
    };
    for (error, result) in [(None, Some("7")), (Some("no"), None), (None, Some("7"))] {
        let claimed = claim(ledger, arming, LEASE).await.unwrap();
        assert_eq!(claimed.attempt.snoozes, 0, "each occurrence counts its own");
        let ruling = Ruling::Snooze {
            at: arming.due,
            mishap: snoozed.clone(),
        };
        settle(ledger, &claimed, ruling).await;
        let claimed = claim(ledger, arming, LEASE).await.unwrap();
        assert_eq!(claimed.attempt.snoozes, 1);
        let next = UnixMs(arming.due.0 + 1);
        assert_eq!(
            settle(ledger, &claimed, go_on(next, error)).await,
            Settled::Applied
        );
        let record = ledger.find(&key).await.unwrap().unwrap();
        assert_eq!(record.result.as_deref(), result);
        assert_eq!(record.last_error.as_deref(), error);
        arming.due = next;
    }
    let history = ledger.find(&key).await.unwrap().unwrap().history;
    assert_eq!(history, [mishap(How::Failed, 1, "no")]);
}

async fn a_series_goes_on_with_its_next_arming(ledger: &(impl Ledger + Catalog)) {
    let key = key("series-goes-on", 1);
    let first = hourly(ledger, &key).await;
    let claimed = claim(ledger, first, LEASE).await.unwrap();
    let read = claimed.recurrence.as_deref().unwrap().as_ref().unwrap();
    assert_eq!(read.next(first.due), Some(UnixMs(first.due.0 + 3_600_000)));

    let next = UnixMs(first.due.0 + 20);
    let ruling = go_on(next, Some("not today"));
    assert_eq!(settle(ledger, &claimed, ruling).await, Settled::Applied);
    let record = ledger.find(&key).await.unwrap().unwrap();
    assert_eq!((record.due, record.state), (next, State::Pending));
    assert_eq!((record.attempt, record.crashes), (0, 0));
    assert_eq!(record.last_error.as_deref(), Some("not today"));
    assert_eq!(record.payload.as_deref(), Some("{\"a\":1}"));

    pass(ledger, next).await;
    let second = Arming {
        row: first.row,
        due: next,
    };
    let claimed = claim(ledger, second, LEASE).await.unwrap();
    assert_eq!((claimed.lease.arming, claimed.attempt.number), (second, 1));
    let next = UnixMs(next.0 + 3_600_000);
    settle(ledger, &claimed, go_on(next, None)).await;
    let record = ledger.find(&key).await.unwrap().unwrap();
    assert_eq!((record.due, record.last_error), (next, None));
}

async fn a_series_that_goes_on_twice_answers_the_same(ledger: &(impl Ledger + Catalog)) {
    let key = key("series-goes-on-twice", 1);
    let claimed = {
        let arming = hourly(ledger, &key).await;
        claim(ledger, arming, LEASE).await.unwrap()
    };
    let next = UnixMs(claimed.lease.arming.due.0 + 3_600_000);
    for _ in 0..2 {
        let settled = settle(ledger, &claimed, go_on(next, None)).await;
        assert_eq!(settled, Settled::Applied);
    }
    assert_eq!(ledger.find(&key).await.unwrap().unwrap().due, next);
}

async fn a_series_cancelled_during_a_run_ends_with_it(ledger: &(impl Ledger + Catalog)) {
    for (error, ends) in [(None, State::Done), (Some("no"), State::Cancelled)] {
        let key = key("series-ends", ends);
        let arming = hourly(ledger, &key).await;
        let claimed = claim(ledger, arming, LEASE).await.unwrap();
        assert_eq!(cancel(ledger, &key).await, CancelAnswer::Running);
        let next = UnixMs(arming.due.0 + 3_600_000);
        // There is nothing to arm.
        let ended = error.map_or(Settled::Ended, |_| Settled::Cancelled);
        for _ in 0..2 {
            let settled = settle(ledger, &claimed, go_on(next, error)).await;
            assert_eq!(settled, ended);
        }
        let record = ledger.find(&key).await.unwrap().unwrap();
        assert_eq!((record.state, record.due), (ends, arming.due));
    }
}

async fn a_series_created_anew_during_a_run_is_not_moved_by_it(ledger: &(impl Ledger + Catalog)) {
    let key = key("series-anew", 1);
    let arming = hourly(ledger, &key).await;
    let claimed = claim(ledger, arming, LEASE).await.unwrap();
    let newer = create(ledger, &key, 60_000).await;
    let next = UnixMs(arming.due.0 + 3_600_000);
    let settled = settle(ledger, &claimed, go_on(next, None)).await;
    assert_eq!(settled, Settled::Superseded);
    assert_eq!(ledger.find(&key).await.unwrap().unwrap().due, newer.due);
}

async fn an_occurrence_that_was_moved_is_remembered_until_the_series_goes_on(
    ledger: &(impl Ledger + Catalog),
) {
    let key = key("series-moved", 1);
    let arming = hourly(ledger, &key).await;
    let now = ledger.sync_clock().await.unwrap();
    for delay in [7_000, 8_000] {
        let moved = ledger
            .reschedule(&key, UnixMs(now.0 + delay))
            .await
            .unwrap();
        assert!(matches!(moved, RescheduleAnswer::Moved(_)), "{moved:?}");
    }
    let moved = recurrence(ledger, &key).await;
    assert_eq!(moved.goes_on_behind(UnixMs(0)), arming.due, "the first one");

    let moved = ledger.reschedule(&key, now).await.unwrap();
    let RescheduleAnswer::Moved(present) = moved else {
        panic!("{moved:?}")
    };
    pass(ledger, now).await;
    let claimed = claim(ledger, present, LEASE).await.unwrap();
    let read = claimed.recurrence.as_deref().unwrap().as_ref().unwrap();
    assert_eq!(read.goes_on_behind(UnixMs(0)), arming.due);
    let next = UnixMs(arming.due.0 + 3_600_000);
    settle(ledger, &claimed, go_on(next, None)).await;
    let settled = recurrence(ledger, &key).await;
    assert_eq!(settled.goes_on_behind(UnixMs(0)), UnixMs(0));
    assert_eq!(settled, moved_back(&settled));
}

async fn an_occurrence_that_is_run_now_comes_at_its_own_time_too(ledger: &(impl Ledger + Catalog)) {
    let key = key("series-run-now", 1);
    let first = hourly(ledger, &key).await;
    let begun = ledger.find(&key).await.unwrap().unwrap().created;
    pass(ledger, UnixMs(begun.0 + 1)).await;
    // Overdue: there is nothing besides.
    ledger.run_now(&key).await.unwrap();
    let wanted = ledger.find(&key).await.unwrap().unwrap().created;
    assert!(wanted > begun, "what it was missed by counts from now");
    let claimed = claim(ledger, first, LEASE).await.unwrap();
    let read = claimed.recurrence.as_deref().unwrap().as_ref().unwrap();
    assert_eq!(read.goes_on_behind(first.due), first.due);
    let next = UnixMs(first.due.0 + 3_600_000);
    settle(ledger, &claimed, go_on(next, None)).await;

    let NudgeAnswer::Due(now) = ledger.run_now(&key).await.unwrap() else {
        panic!("it was pending")
    };
    assert!(now.due < next);
    let claimed = claim(ledger, now, LEASE).await.unwrap();
    let read = claimed.recurrence.as_deref().unwrap().as_ref().unwrap();
    assert_eq!(read.next(read.goes_on_behind(now.due)), Some(next));
}

/// As it is when nothing was moved.
fn moved_back(recurrence: &Recurrence) -> Recurrence {
    recurrence.clone().settled()
}

async fn a_series_is_written_only_over_what_was_seen(ledger: &(impl Ledger + Catalog)) {
    let key = key("series-seen", 1);
    let arming = hourly(ledger, &key).await;
    let every = Recurrence::every(Duration::from_secs(60)).unwrap();
    let other = NewTask {
        recurrence: Some(every),
        ..NewTask::new(key.clone(), UnixMs(arming.due.0 + 60_000))
    };
    assert_eq!(ledger.recur(&other, None).await.unwrap(), None, "it exists");
    let seen = series(ledger, &key).await;
    let claimed = claim(ledger, arming, LEASE).await.unwrap();
    assert_eq!(
        ledger.recur(&other, Some(&seen)).await.unwrap(),
        None,
        "it runs"
    );
    settle(ledger, &claimed, Ruling::Release).await;
    ledger
        .reschedule(&key, UnixMs(arming.due.0 + 5))
        .await
        .unwrap();
    assert_eq!(
        ledger.recur(&other, Some(&seen)).await.unwrap(),
        None,
        "it was moved"
    );

    let seen = series(ledger, &key).await;
    let written = ledger.recur(&other, Some(&seen)).await.unwrap();
    assert_eq!(written.map(|arming| arming.due), Some(other.due));
    assert_eq!(Some(recurrence(ledger, &key).await), other.recurrence);
    cancel(ledger, &key).await;
    assert_eq!(
        ledger.recur(&other, Some(&seen)).await.unwrap(),
        None,
        "it is off"
    );
    let seen = series(ledger, &key).await;
    assert!(ledger.recur(&other, Some(&seen)).await.unwrap().is_some());
    assert_eq!(state(ledger, &key).await, State::Pending);
}

async fn a_series_changed_without_being_moved_keeps_its_arming(ledger: &(impl Ledger + Catalog)) {
    let key = key("series-kept", 1);
    let arming = hourly(ledger, &key).await;
    let claimed = claim(ledger, arming, LEASE).await.unwrap();
    settle(ledger, &claimed, retry_at(arming.due)).await;
    let seen = series(ledger, &key).await;
    let task = NewTask {
        recurrence: Some(Recurrence::cron("@hourly").unwrap()),
        tag: Some("changed".into()),
        ..NewTask::new(key.clone(), arming.due)
    };
    assert_eq!(
        ledger.recur(&task, Some(&seen)).await.unwrap(),
        Some(arming)
    );
    let record = ledger.find(&key).await.unwrap().unwrap();
    assert_eq!((record.due, record.attempt), (arming.due, 1));
    assert_eq!(record.tag.as_deref(), Some("changed"));
    assert_eq!(Some(recurrence(ledger, &key).await), task.recurrence);
}

async fn a_task_created_over_a_series_runs_once(ledger: &(impl Ledger + Catalog)) {
    let key = key("series-over", 1);
    hourly(ledger, &key).await;
    create(ledger, &key, 60_000).await;
    assert_eq!(series(ledger, &key).await.recurrence, None);
    let every = ListFilter {
        class: Some("Conformance".into()),
        method: Some("series-over".into()),
        recurring: true,
        limit: 10,
        ..ListFilter::default()
    };
    assert_eq!(ledger.list(&every).await.unwrap().tasks, []);
}

async fn a_series_that_is_dead_goes_on_when_it_is_redriven(ledger: &(impl Ledger + Catalog)) {
    let key = key("series-redriven", 1);
    let arming = hourly(ledger, &key).await;
    let claimed = claim(ledger, arming, LEASE).await.unwrap();
    settle(ledger, &claimed, bury()).await;
    assert_eq!(
        ledger.redrive(&key).await.unwrap(),
        NudgeAnswer::Due(arming)
    );
    let claimed = claim(ledger, arming, LEASE).await.unwrap();
    assert!(claimed.recurrence.is_some());
    let next = UnixMs(arming.due.0 + 3_600_000);
    assert_eq!(
        settle(ledger, &claimed, go_on(next, None)).await,
        Settled::Applied
    );
}

async fn a_run_of_a_series_that_is_released_counts_as_an_attempt(ledger: &(impl Ledger + Catalog)) {
    let key = key("series-released", 1);
    let arming = hourly(ledger, &key).await;
    for number in 1..4 {
        let claimed = claim(ledger, arming, LEASE).await.unwrap();
        assert_eq!(claimed.attempt.number, number);
        let settled = settle(ledger, &claimed, Ruling::Release).await;
        assert_eq!(settled, Settled::Applied);
    }
}

async fn a_series_that_has_ended_is_pruned_unless_a_configuration_wants_it(
    ledger: &(impl Ledger + Catalog),
) {
    for wanted in [false, true] {
        let keys = ["done", "dead", "cancelled"]
            .map(|end| key("series-pruned", format!("{end}-{wanted}")));
        let ended = prune_ended(ledger, &keys, wanted).await;
        assert_eq!(ended, [wanted; 3], "which are there still");
    }
}

/// Series that are done, dead and called off, and old enough to be pruned: which of them stay.
async fn prune_ended(
    ledger: &(impl Ledger + Catalog),
    keys: &[TaskKey; 3],
    wanted: bool,
) -> Vec<bool> {
    for (key, ruling) in keys.iter().zip([Ruling::Complete, bury()]) {
        let arming = hourly(ledger, key).await;
        let claimed = claim(ledger, arming, LEASE).await.unwrap();
        settle(ledger, &claimed, ruling).await;
    }
    hourly(ledger, &keys[2]).await;
    cancel(ledger, &keys[2]).await;
    if wanted {
        for key in keys {
            // Ended already when a daemon sees it for the first time.
            let seen = series(ledger, key).await;
            assert!(ledger.note_standing(&seen).await.unwrap());
        }
    }
    let finished = ledger.find(&keys[2]).await.unwrap().unwrap().finished;
    pass(ledger, UnixMs(finished.unwrap().0 + 60)).await;
    for state in [State::Done, State::Dead, State::Cancelled] {
        let prune = Prune {
            state,
            age: Some(Duration::from_millis(50)),
            surplus: 1_000,
            after: None,
            limit: 100,
            dry_run: false,
        };
        prune_all(ledger, prune).await;
    }
    let mut there = Vec::new();
    for key in keys {
        there.push(ledger.find(key).await.unwrap().is_some());
    }
    there
}

async fn noting_that_a_configuration_wants_a_series_changes_nothing_else(
    ledger: &(impl Ledger + Catalog),
) {
    let key = key("series-noted", 1);
    let arming = hourly(ledger, &key).await;
    let before = ledger.find(&key).await.unwrap().unwrap();
    let seen = series(ledger, &key).await;
    assert!(ledger.note_standing(&seen).await.unwrap());
    assert!(
        !ledger.note_standing(&seen).await.unwrap(),
        "it is not what was seen any more"
    );
    let noted = recurrence(ledger, &key).await;
    assert!(noted.is_standing());
    let after = ledger.find(&key).await.unwrap().unwrap();
    assert_eq!(
        TaskRecord {
            recurrence: before.recurrence.clone(),
            ..after
        },
        before
    );
    // Over moves and occurrences it stays noted.
    assert!(matches!(
        ledger
            .reschedule(&key, UnixMs(arming.due.0 - 1))
            .await
            .unwrap(),
        RescheduleAnswer::Moved(_)
    ));
    let arming = standing(ledger, &key).await.unwrap().arming;
    let claimed = claim(ledger, arming, LEASE).await.unwrap();
    let next = UnixMs(arming.due.0 + 3_600_000);
    settle(ledger, &claimed, go_on(next, None)).await;
    assert_eq!(recurrence(ledger, &key).await, noted);
}

async fn a_series_whose_key_is_deleted_is_not_called_off(ledger: &(impl Ledger + Catalog)) {
    let key = key("series-withdrawn", 1);
    hourly(ledger, &key).await;
    let over = standing(ledger, &key).await;
    let due = in_ms(ledger, 60_000).await;
    let arming = written(adopt(ledger, &key, due, over).await);
    assert!(!ledger.withdraw(arming).await.unwrap());
    assert_eq!(state(ledger, &key).await, State::Pending);
}

async fn an_occurrence_that_was_not_run_leaves_what_is_known_of_the_one_before(
    ledger: &(impl Ledger + Catalog),
) {
    let key = key("series-not-run", 1);
    let mut arming = hourly(ledger, &key).await;
    let missed = |next| Ruling::GoOn {
        next,
        ran: false,
        error: None,
        mishap: None,
        result: None,
    };
    for ruling in [go_on as fn(UnixMs, Option<&str>) -> Ruling, |next, _| {
        go_on(next, Some("no"))
    }] {
        let mut known = Vec::new();
        for missed in [None, Some(missed)] {
            let claimed = claim(ledger, arming, LEASE).await.unwrap();
            arming.due = UnixMs(arming.due.0 + 1);
            let ruling = missed.map_or_else(|| ruling(arming.due, None), |it| it(arming.due));
            let settled = settle(ledger, &claimed, ruling).await;
            assert_eq!(settled, Settled::Applied);
            let record = ledger.find(&key).await.unwrap().unwrap();
            known.push((record.last_error, record.result));
        }
        assert_eq!(known[0], known[1]);
        assert_ne!(known[0], (None, None));
    }
}

/// A series as it is wanted.
fn wanted(key: &TaskKey, every_secs: u64) -> NewTask {
    NewTask {
        recurrence: Some(Recurrence::every(Duration::from_secs(every_secs)).unwrap()),
        ..NewTask::new(key.clone(), UnixMs(0))
    }
}

async fn a_configured_series_stays_as_it_is_and_is_changed_when_it_does_not_run(
    ledger: &(impl Ledger + Catalog),
) {
    let key = key("series-configured", 1);
    let (seldom, often) = (wanted(&key, 86_400), wanted(&key, 43_200));
    let standing = Insistence::Standing;
    let begun = establish(ledger, &seldom, standing).await.unwrap();
    let Established::Begun(arming) = begun else {
        panic!("{begun:?}")
    };
    assert_eq!(arming.due.0 % 86_400_000, 0, "counted from the epoch");
    let again = establish(ledger, &seldom, standing).await.unwrap();
    assert_eq!(again, Established::Unchanged(arming, State::Pending));

    let NudgeAnswer::Due(now) = ledger.run_now(&key).await.unwrap() else {
        panic!("it was pending")
    };
    let claimed = claim(ledger, now, LEASE).await.unwrap();
    let left = establish(ledger, &often, standing).await.unwrap();
    assert_eq!(left, Established::Running(now));
    let settled = settle(ledger, &claimed, go_on(arming.due, None)).await;
    assert_eq!(settled, Settled::Applied, "its result counts");
    let changed = establish(ledger, &often, standing).await.unwrap();
    assert!(
        matches!(changed, Established::Changed { .. }),
        "{changed:?}"
    );
    let noted = often.recurrence.map(Recurrence::standing);
    assert_eq!(Some(recurrence(ledger, &key).await), noted);
}

async fn a_configured_series_that_was_ended_stays_ended_until_it_is_another_one(
    ledger: &(impl Ledger + Catalog),
) {
    let key = key("series-ended", 1);
    let standing = Insistence::Standing;
    let begun = establish(ledger, &wanted(&key, 86_400), standing).await;
    assert!(matches!(begun, Ok(Established::Begun(_))));
    cancel(ledger, &key).await;
    let ended = establish(ledger, &wanted(&key, 86_400), standing).await;
    let Ok(Established::Ended(_, State::Cancelled)) = ended else {
        panic!("{ended:?}")
    };
    assert_eq!(state(ledger, &key).await, State::Cancelled);
    let other = establish(ledger, &wanted(&key, 3_600), standing).await;
    assert!(matches!(other, Ok(Established::Begun(_))), "{other:?}");
    assert_eq!(state(ledger, &key).await, State::Pending);
}

async fn a_series_that_a_configuration_finds_says_so_from_then_on(
    ledger: &(impl Ledger + Catalog),
) {
    let key = key("series-found", 1);
    let wanted = wanted(&key, 3_600);
    establish(ledger, &wanted, Insistence::Now).await.unwrap();
    assert!(!recurrence(ledger, &key).await.is_standing());
    cancel(ledger, &key).await;
    for _ in 0..2 {
        let ended = establish(ledger, &wanted, Insistence::Standing).await;
        assert!(matches!(ended, Ok(Established::Ended(_, State::Cancelled))));
        assert!(recurrence(ledger, &key).await.is_standing());
    }
    let begun = establish(ledger, &wanted, Insistence::Now).await;
    let Ok(Established::Begun(arming)) = begun else {
        panic!("{begun:?}")
    };
    assert!(recurrence(ledger, &key).await.is_standing());
    let found = establish(ledger, &wanted, Insistence::Standing).await;
    assert_eq!(
        found.unwrap(),
        Established::Unchanged(arming, State::Pending)
    );
}

async fn a_series_that_somebody_wants_now_begins_anew_and_is_moved_while_it_runs(
    ledger: &(impl Ledger + Catalog),
) {
    let key = key("series-now", 1);
    let before = ledger.sync_clock().await.unwrap();
    let begun = establish(ledger, &wanted(&key, 3_600), Insistence::Now).await;
    let Ok(Established::Begun(first)) = begun else {
        panic!("{begun:?}")
    };
    let ahead = first.due.0 - before.0;
    assert!(
        (3_600_000..3_620_000).contains(&ahead),
        "counted from now: {ahead}"
    );
    cancel(ledger, &key).await;
    let anew = establish(ledger, &wanted(&key, 3_600), Insistence::Now).await;
    assert!(matches!(anew, Ok(Established::Begun(_))), "{anew:?}");

    let NudgeAnswer::Due(now) = ledger.run_now(&key).await.unwrap() else {
        panic!("it was pending")
    };
    let claimed = claim(ledger, now, LEASE).await.unwrap();
    let moved = establish(ledger, &wanted(&key, 7_200), Insistence::Now).await;
    let Ok(Established::Changed {
        older_run: true, ..
    }) = moved
    else {
        panic!("{moved:?}")
    };
    let settled = settle(ledger, &claimed, go_on(first.due, None)).await;
    assert_eq!(settled, Settled::Superseded);
}

fn scope(name: &str) -> Scope {
    name.parse().unwrap()
}

async fn paused(ledger: &impl Pauses) -> Vec<(PauseKind, String)> {
    let all = ledger.all().await.unwrap().into_iter();
    all.map(|pause| (pause.kind, pause.scope.to_string()))
        .collect()
}

async fn a_pause_stands_until_it_is_lifted(ledger: &(impl Ledger + Pauses)) {
    let before = ledger.sync_clock().await.unwrap();
    for name in ["Order", "Order@close"] {
        ledger.set(&scope(name), "me", "because").await.unwrap();
        pass(ledger, ledger.sync_clock().await.unwrap()).await;
    }
    ledger.set(&Scope::EVERYTHING, "me", "").await.unwrap();
    let expected = ["Order", "Order@close", "everything"];
    let expected = expected.map(|name| (PauseKind::Pause, name.to_owned()));
    assert_eq!(paused(ledger).await, expected);
    let all = ledger.all().await.unwrap();
    assert!(all[0].since >= before && all[0].since < all[1].since);
    assert_eq!(
        (&all[0].by[..], &all[0].reason[..], all[0].due_before),
        ("me", "because", None)
    );

    assert_eq!(
        ledger.lift(&scope("Orders")).await.unwrap(),
        None,
        "names are exact"
    );
    let lifted = ledger.lift(&scope("Order")).await.unwrap();
    assert_eq!(lifted.as_ref(), Some(&all[0]));
    assert_eq!(ledger.lift(&scope("Order")).await.unwrap(), None);
    assert_eq!(paused(ledger).await, expected[1..]);
    ledger.lift(&Scope::EVERYTHING).await.unwrap().unwrap();
    ledger.lift(&scope("Order@close")).await.unwrap().unwrap();
    assert_eq!(paused(ledger).await, []);
}

async fn pausing_twice_changes_nothing_and_says_who_was_first(ledger: &(impl Ledger + Pauses)) {
    let name = scope("Twice");
    let first = ledger.set(&name, "one", "first").await.unwrap();
    assert!(!first.already);
    let long = "two".repeat(100);
    let second = ledger.set(&name, &long, "second").await.unwrap();
    let PauseAnswer { pause, already } = second;
    assert!(already);
    assert_eq!(pause, first.pause);
    assert_eq!(paused(ledger).await.len(), 1);
    ledger.lift(&name).await.unwrap();
    assert_eq!(
        ledger.set(&name, &long, "").await.unwrap().pause.by.len(),
        128
    );
    ledger.lift(&name).await.unwrap();
}

async fn a_reason_that_is_too_long_is_refused(ledger: &(impl Ledger + Pauses)) {
    let name = scope("Reason");
    let most = "ü".repeat(REASON_CHARS_MAX);
    let refused = ledger.set(&name, "me", &format!("{most}!")).await;
    assert_eq!(
        refused.unwrap_err().to_string(),
        "reason has 256 characters, expected at most 255"
    );
    assert_eq!(paused(ledger).await, []);
    let kept = ledger.set(&name, "me", &most).await.unwrap().pause;
    assert_eq!(kept.reason, most);
    ledger.lift(&name).await.unwrap();
}

async fn a_hold_is_about_what_was_due_before_it_and_is_let_go_in_parts(
    ledger: &(impl Ledger + Pauses),
) {
    let name = scope("Order@close");
    let none = ledger.release(&name, "me").await.unwrap();
    assert_eq!(none, ReleaseAnswer::NoHold);
    let before = ledger.sync_clock().await.unwrap();
    pass(ledger, before).await;
    let first = ledger.hold("me", "restored").await.unwrap();
    let hold = first.pause.clone();
    assert!(!first.already && hold.due_before == Some(hold.since) && hold.since > before);
    pass(ledger, hold.since).await;
    let again = ledger.hold("other", "").await.unwrap();
    assert!(again.already);
    assert_eq!(again.pause, hold);

    let released = ledger.release(&name, "me").await.unwrap();
    assert_eq!(released, ReleaseAnswer::Released(hold.clone()));
    let again = ledger.release(&name, "me").await.unwrap();
    assert_eq!(again, ReleaseAnswer::Already(hold.clone()));
    let known = Paused::of(&ledger.all().await.unwrap());
    let task = TaskKey::parse("Order@close@1").unwrap();
    assert_eq!(known.held_before_of(&task), None);
    let task = TaskKey::parse("Order@closed@1").unwrap();
    assert_eq!(known.held_before_of(&task), hold.due_before);

    ledger.set(&scope("Order"), "me", "").await.unwrap();
    let over = ledger.release(&Scope::EVERYTHING, "me").await.unwrap();
    assert_eq!(over, ReleaseAnswer::Released(hold));
    assert_eq!(
        paused(ledger).await,
        [(PauseKind::Pause, "Order".to_owned())],
        "a pause is no part of the hold"
    );
    ledger.lift(&scope("Order")).await.unwrap();
}

async fn a_release_says_nothing_about_the_next_hold(ledger: &(impl Ledger + Pauses)) {
    ledger.hold("me", "").await.unwrap();
    ledger.release(&scope("Order"), "me").await.unwrap();
    ledger.release(&Scope::EVERYTHING, "me").await.unwrap();
    ledger.hold("me", "").await.unwrap();
    assert_eq!(
        paused(ledger).await,
        [(PauseKind::Hold, "everything".to_owned())]
    );
    ledger.release(&Scope::EVERYTHING, "me").await.unwrap();
    let none = ledger.release(&Scope::EVERYTHING, "me").await.unwrap();
    assert_eq!(none, ReleaseAnswer::NoHold);
}

/// The arguments of what a scan around the pauses finds of class `Around`, `Arounds` or `Aside`, page by page.
async fn around(ledger: &(impl Ledger + Pauses), window: Window) -> Vec<String> {
    let paused = Paused::of(&ledger.all().await.unwrap());
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let scan = DueScan {
            window,
            after,
            limit: 2,
        };
        let page = ledger.scan_unpaused(scan, &paused).await.unwrap();
        let rows = page.rows.into_iter().map(|row| row.key);
        let rows = rows.filter(|key| key.class().starts_with('A'));
        found.extend(rows.map(|key| key.args().next().unwrap().to_owned()));
        after = page.next;
        if after.is_none() {
            return found;
        }
    }
}

async fn a_scan_goes_around_what_is_paused_and_held(ledger: &(impl Ledger + Pauses)) {
    let (oldest, newest) = (
        Window::OverdueOldest(Duration::ZERO),
        Window::OverdueNewest(Duration::ZERO),
    );
    for (task, in_ms) in [
        ("Around@go@1", -9_000),
        ("Around@go@2", -8_000),
        ("Around@goes@3", -7_000),
        ("Arounds@go@4", -6_000),
        ("around@go@x", -5_500),
        ("Aside@go@5", -5_000),
        ("Around@go@6", -4_000),
        ("Aside@stop@7", -3_000),
    ] {
        create(ledger, &TaskKey::parse(task).unwrap(), in_ms).await;
    }
    assert_eq!(
        around(ledger, oldest).await,
        ["1", "2", "3", "4", "5", "6", "7"]
    );
    ledger.set(&scope("Around@go"), "me", "").await.unwrap();
    assert_eq!(around(ledger, oldest).await, ["3", "4", "5", "7"]);
    assert_eq!(around(ledger, newest).await, ["7", "5", "4", "3"]);
    ledger.set(&scope("Around"), "me", "").await.unwrap();
    assert_eq!(around(ledger, oldest).await, ["4", "5", "7"]);
    ledger.set(&scope("Aside@go"), "me", "").await.unwrap();
    assert_eq!(around(ledger, newest).await, ["7", "4"]);

    ledger.hold("me", "").await.unwrap();
    let none: [&str; 0] = [];
    assert_eq!(around(ledger, oldest).await, none);
    create(ledger, &TaskKey::parse("Aside@stop@8").unwrap(), 0).await;
    pass(ledger, ledger.sync_clock().await.unwrap()).await;
    assert_eq!(around(ledger, oldest).await, ["8"], "due after the hold");
    ledger.release(&scope("Aside"), "me").await.unwrap();
    assert_eq!(around(ledger, oldest).await, ["7", "8"]);
    ledger.release(&scope("Arounds@go"), "me").await.unwrap();
    assert_eq!(around(ledger, oldest).await, ["4", "7", "8"]);
    ledger.set(&Scope::EVERYTHING, "me", "").await.unwrap();
    assert_eq!(around(ledger, newest).await, none);

    for pause in ledger.all().await.unwrap() {
        ledger.lift(&pause.scope).await.unwrap();
    }
    ledger.release(&Scope::EVERYTHING, "me").await.unwrap();
    assert_eq!(paused(ledger).await, []);
    assert_eq!(around(ledger, oldest).await.len(), 8);
}

async fn run_now_lets_a_held_task_go(ledger: &(impl Ledger + Catalog + Pauses)) {
    let [held, released, later] =
        ["HeldNow@go", "FreeNow@go", "HeldNow@later"].map(|key| TaskKey::parse(key).unwrap());
    let old = create(ledger, &held, -5_000).await;
    let kept = create(ledger, &released, -5_000).await;
    let hold = ledger.hold("me", "").await.unwrap().pause;
    ledger.release(&scope("FreeNow"), "me").await.unwrap();
    create(ledger, &later, 60_000).await;
    let paused = Paused::of(&ledger.all().await.unwrap());
    assert!(paused.hinders(&held, old.due).is_some());

    let NudgeAnswer::Due(arming) = ledger.run_now(&held).await.unwrap() else {
        panic!("refused")
    };
    assert!(arming.due >= hold.due_before.unwrap());
    assert_eq!(paused.hinders(&held, arming.due), None);
    let answer = ledger.run_now(&released).await.unwrap();
    assert_eq!(answer, NudgeAnswer::Due(kept), "it was not held");
    let NudgeAnswer::Due(arming) = ledger.run_now(&later).await.unwrap() else {
        panic!("refused")
    };
    assert_eq!(paused.hinders(&later, arming.due), None);
    ledger.release(&Scope::EVERYTHING, "me").await.unwrap();
}

async fn there_is_an_end_to_pauses_and_a_way_back_from_it(ledger: &(impl Ledger + Pauses)) {
    let name = |number: usize| scope(&format!("Many{number}"));
    ledger.hold("me", "").await.unwrap();
    for number in 1..PAUSES_MAX {
        ledger.set(&name(number), "me", "").await.unwrap();
    }
    let refused =
        "1000 pauses stand, expected fewer than 1000: resume some, or pause whole classes";
    let more = ledger.set(&name(PAUSES_MAX), "me", "").await.unwrap_err();
    assert_eq!(more.to_string(), refused);
    let more = ledger.release(&name(1), "me").await.unwrap_err();
    assert_eq!(more.to_string(), refused);
    assert!(ledger.set(&name(1), "me", "").await.unwrap().already);
    // However many are paused, a scan is one statement.
    let paused = Paused::of(&ledger.all().await.unwrap());
    let scan = DueScan {
        window: Window::OverdueNewest(Duration::ZERO),
        after: None,
        limit: 10,
    };
    ledger.scan_unpaused(scan, &paused).await.unwrap();
    ledger.release(&Scope::EVERYTHING, "me").await.unwrap();
    for number in 1..PAUSES_MAX {
        ledger.lift(&name(number)).await.unwrap().unwrap();
    }
    assert_eq!(ledger.all().await.unwrap(), []);
}
