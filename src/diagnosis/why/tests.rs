use super::*;
use crate::membership::Capabilities;
use crate::task::{After, AttemptError, IfDead, Scope};

const NOW: UnixMs = UnixMs(1_800_000_000_000);

fn ago(secs: u64) -> UnixMs {
    NOW.minus(Duration::from_secs(secs))
}

fn able(routes: &[&str], idle: &[u16]) -> Arc<Capabilities> {
    Arc::new(Capabilities {
        routes: routes.iter().map(|route| (*route).to_owned()).collect(),
        idle: idle.to_vec(),
        ..Capabilities::default()
    })
}

/// A daemon that runs `Mail@` and `Order@`; `idle_since` says when workers asked for `Mail@` last, if none asks now.
fn daemon(id: u64, idle_since: Option<&[UnixMs]>) -> Member {
    Member {
        id: MemberId(id),
        name: format!("host:{id}"),
        version: String::new(),
        since: ago(3_600),
        readiness: Readiness::Ready,
        listening: true,
        expired_only: false,
        timer: String::new(),
        capabilities: able(
            &["^Mail@", "^Order@"],
            &[0][..usize::from(idle_since.is_some())],
        ),
        idle_since: idle_since.unwrap_or_default().to_vec(),
        queues: Default::default(),
        is_this: false,
    }
}

fn facts(live: Vec<Member>, gone: Vec<GoneMember>) -> WhyFacts {
    WhyFacts {
        daemons: Daemons::new(live, gone),
        pauses: Vec::new(),
        ledger_gone: None,
        now: NOW,
    }
}

fn key(text: &str) -> TaskKey {
    TaskKey::parse(text).unwrap()
}

fn route(queue: Option<&str>, limit: Option<WhyCause>) -> RouteFacts {
    RouteFacts {
        queue: queue.map(Arc::from),
        visibility: Duration::from_secs(60),
        max_attempts: 16,
        limit,
    }
}

fn mail(facts: &WhyFacts) -> WhyCause {
    facts.of_due(
        &key("Mail@send@1"),
        ago(600),
        Some(&route(Some("mail"), None)),
    )
}

fn no_worker(since: Option<UnixMs>) -> WhyCause {
    WhyCause::NoWorker(Some(Arc::from("mail")), since)
}

#[test]
fn a_queue_for_which_no_worker_asks_any_daemon_is_named_with_the_time_of_the_last_one() {
    let never = [UnixMs(0)];
    let of = |live| mail(&facts(live, Vec::new()));
    let two = of(vec![
        daemon(1, Some(&[ago(300)])),
        daemon(2, Some(&[ago(900)])),
    ]);
    assert_eq!(two, no_worker(Some(ago(300))));
    let one_asks = of(vec![daemon(1, Some(&[ago(300)])), daemon(2, None)]);
    assert_eq!(one_asks, WhyCause::Unknown, "workers ask the other daemon");
    let busy = of(vec![
        daemon(1, Some(&[ago(59)])),
        daemon(2, Some(&[ago(900)])),
    ]);
    assert_eq!(busy, WhyCause::Unknown, "the worker may have a task");
    let started = of(vec![daemon(1, Some(&never))]);
    assert_eq!(started, no_worker(Some(ago(3_600))), "since the start");
    let older = of(vec![daemon(1, Some(&[])), daemon(2, Some(&never))]);
    assert_eq!(older, no_worker(None), "an older program does not say");
    let other = facts(vec![daemon(1, Some(&never))], Vec::new());
    let other = other.of_due(&key("Order@close@1"), ago(600), Some(&route(None, None)));
    assert_eq!(other, WhyCause::Unknown, "another route");
}

#[test]
fn a_task_without_a_daemon_that_can_run_it_says_which_one_could() {
    let of = |live, gone| {
        let facts = facts(live, gone);
        facts.of_due(&key("Report@build@1"), ago(600), None)
    };
    let gone = |name: &str, routes: &[&str]| GoneMember {
        name: name.to_owned(),
        capabilities: able(routes, &[]),
    };
    let leaving = Member {
        readiness: Readiness::Away,
        capabilities: able(&["^Report@"], &[]),
        ..daemon(7, None)
    };
    assert_eq!(of(Vec::new(), Vec::new()), WhyCause::NoDaemon);
    assert_eq!(of(vec![daemon(1, None)], Vec::new()), WhyCause::NoRoute);
    let unlike = vec![gone("b:2", &["^Mail@"])];
    assert_eq!(of(vec![daemon(1, None)], unlike), WhyCause::NoRoute);
    let names = |names: &[&str]| WhyCause::Away(names.iter().map(|it| (*it).to_owned()).collect());
    let dead = vec![gone("b:2", &["^Report@"])];
    assert_eq!(
        of(vec![daemon(1, None), leaving], dead),
        names(&["host:7", "b:2"])
    );
    let mut unheard = facts(vec![daemon(1, None)], Vec::new());
    unheard.daemons = unheard.daemons.with_unlisted(Unlisted::Unheard);
    let report = unheard.of_due(&key("Report@build@1"), ago(600), None);
    assert_eq!(report, WhyCause::Unheard, "another daemon may have a route");
}

#[test]
fn daemons_that_do_not_know_of_each_other_speak_for_themselves() {
    let mut alone = facts(vec![daemon(1, Some(&[ago(300)]))], Vec::new());
    alone.daemons = alone.daemons.with_unlisted(Unlisted::Unknown);
    let of = |name: &str| alone.of_due(&key(name), ago(600), Some(&route(Some("mail"), None)));
    let no_worker = WhyCause::NoWorkerHere(Some(Arc::from("mail")));
    assert_eq!(of("Mail@send@1"), no_worker);
    assert_eq!(of("Report@build@1"), WhyCause::NoRouteHere);
    assert_eq!(of("Order@close@1"), WhyCause::Unknown);
    assert_eq!(
        no_worker.text(),
        "No worker asks the daemon that answers for the queue `mail`, and the daemons of this ledger do not know of each other."
    );
    assert_eq!(
        (no_worker.as_str(), no_worker.is_trouble()),
        ("no_worker", true)
    );
    // Workers of another daemon may ask for it when it is due.
    let later = TaskRecord {
        key: key("Mail@send@1"),
        ..task(State::Pending, NOW.plus(Duration::from_secs(60)), 0)
    };
    let why = alone.of_task(&later, Some(&route(Some("mail"), None)));
    assert_eq!(why.then, None);
}

#[test]
fn a_pause_comes_before_what_else_hinders_and_says_by_whom() {
    let mut facts = facts(Vec::new(), Vec::new());
    let pause = Pause {
        kind: PauseKind::Pause,
        scope: "Mail".parse().unwrap(),
        since: ago(60),
        due_before: None,
        until: None,
        by: "ann".to_owned(),
        reason: "provider is down".to_owned(),
    };
    let hold = Pause {
        kind: PauseKind::Hold,
        scope: Scope::EVERYTHING,
        due_before: Some(ago(500)),
        ..pause.clone()
    };
    facts.pauses = vec![hold.clone(), pause.clone()];
    facts.ledger_gone = Some(None);
    assert_eq!(mail(&facts), WhyCause::Paused(pause.clone()));
    let text = WhyCause::Paused(pause).text();
    assert!(text.starts_with("`Mail` is paused since "), "{text}");
    assert!(
        text.ends_with(". By ann. Reason: provider is down."),
        "{text}"
    );
    let order = |due| facts.of_due(&key("Order@close@1"), due, None);
    assert_eq!(order(ago(600)), WhyCause::Held(hold));
    assert_eq!(
        order(ago(400)),
        WhyCause::Ledger(None),
        "due after the hold"
    );
}

#[test]
fn limits_are_named_where_a_daemon_can_start_the_task() {
    let full = |id| Member {
        readiness: Readiness::Full,
        ..daemon(id, None)
    };
    let of = |live, limit| {
        let facts = facts(live, Vec::new());
        facts.of_due(&key("Order@close@1"), ago(600), Some(&route(None, limit)))
    };
    let limit = WhyCause::Concurrency(4);
    assert_eq!(of(vec![daemon(1, None)], Some(limit.clone())), limit);
    assert_eq!(of(vec![full(1), full(2)], None), WhyCause::NoSlot);
    assert_eq!(of(vec![full(1), daemon(2, None)], None), WhyCause::Unknown);
    assert_eq!(of(Vec::new(), Some(limit)), WhyCause::NoDaemon);
}

fn task(state: State, due_at: UnixMs, attempt: u16) -> TaskRecord {
    TaskRecord {
        id: "1-1".to_owned(),
        key: key("Order@close@1"),
        state,
        due: due_at,
        due_at,
        created: ago(900),
        attempt,
        crashes: 0,
        max_attempts: None,
        daemon: "host:1".to_owned(),
        lease_until: None,
        started: None,
        progress: None,
        cancel_requested: false,
        tag: None,
        payload: None,
        after: None,
        traceparent: None,
        recurrence: None,
        latest_occurrence: None,
        last_error: None,
        reason: None,
        history: Vec::new(),
        result: None,
        finished: None,
        adopted: false,
        archived: false,
    }
}

#[test]
fn the_state_of_the_row_comes_first_and_what_would_hinder_it_is_told_before_it_is_due() {
    let well = facts(vec![daemon(1, None)], Vec::new());
    let later = NOW.plus(Duration::from_secs(60));
    let known = route(None, Some(WhyCause::NoSlot));
    let of = |facts: &WhyFacts, task: &TaskRecord| facts.of_task(task, Some(&known));
    let only = |cause| Why { cause, then: None };
    for (state, attempt, cause) in [
        (State::Pending, 0, WhyCause::NotDue(later)),
        (State::Waiting, 2, WhyCause::Retry(later, 3, Some(16))),
        (State::Running, 1, WhyCause::Running("host:1".to_owned())),
        (State::Running, 0, WhyCause::OlderRuns("host:1".to_owned())),
        (State::Dead, 5, WhyCause::Ended(State::Dead, None)),
    ] {
        assert_eq!(of(&well, &task(state, later, attempt)), only(cause));
    }
    let none = facts(Vec::new(), Vec::new());
    let expected = Why {
        cause: WhyCause::NotDue(later),
        then: Some(WhyCause::NoDaemon),
    };
    assert_eq!(of(&none, &task(State::Pending, later, 0)), expected);
    let due = |secs| {
        well.of_task(&task(State::Pending, ago(secs), 0), None)
            .cause
    };
    assert_eq!((due(2), due(4)), (WhyCause::Starting, WhyCause::Unknown));
}

#[test]
fn a_task_that_was_found_to_wait_for_others_says_for_which() {
    let well = facts(vec![daemon(1, None)], Vec::new());
    let again = NOW.plus(Duration::from_secs(60));
    let tag = || "import-7".to_owned();
    let after = After {
        tag: tag(),
        if_dead: IfDead::Wait,
    };
    let waits = |error: &str| {
        let mut task = task(State::Waiting, again, 0);
        task.after = Some(after.clone());
        task.history = vec![AttemptError {
            how: How::Snoozed,
            attempt: 0,
            started: None,
            at: NOW,
            error: error.to_owned(),
            daemon: String::new(),
            crashes: 0,
            snoozes: 0,
        }];
        well.of_task(&task, None).cause
    };
    let dead = waits(&after.waits_for(State::Dead));
    assert_eq!(dead, WhyCause::AfterDead(tag(), again));
    assert!(dead.is_trouble());
    let running = waits(&after.waits_for(State::Running));
    assert_eq!(running, WhyCause::After(tag(), again));
    assert!(!running.is_trouble());
    // Its handler was called, and has postponed it.
    assert_eq!(waits(""), WhyCause::Retry(again, 1, None));
}

#[test]
fn the_daemon_with_the_smallest_id_of_those_that_can_run_a_key_is_the_first() {
    let other = Member {
        capabilities: able(&["^Report@"], &[]),
        ..daemon(1, None)
    };
    let daemons = Daemons::new(vec![daemon(3, None), other, daemon(2, None)], Vec::new());
    assert_eq!(
        daemons.first_that_runs(&key("Mail@send")),
        Some(MemberId(2))
    );
    assert_eq!(daemons.first_that_runs(&key("Report@x")), Some(MemberId(1)));
    assert_eq!(daemons.first_that_runs(&key("None@x")), None);
}
