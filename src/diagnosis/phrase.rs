//! Phrases: every sentence of a condition, a cause or a remedy, in English. The dashboard translates them by name.

macro_rules! phrases {
    ($($name:ident: $english:literal;)+) => {
        /// What is said of a condition or a cause, without its values.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[allow(missing_docs)] // its English says what it means
        pub enum Phrase { $($name),+ }

        impl Phrase {
            /// Every phrase.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// The English text, with a place `{}` for each value. A statement begins with a small letter, since it may
            /// follow other words; an advice is one or more whole sentences.
            pub const fn english(self) -> &'static str {
                match self { $(Self::$name => $english),+ }
            }
        }
    };
}

phrases! {
    // Conditions, and what to do about them.
    LedgerFails: "the ledger does not answer";
    LedgerFailsSince: "the ledger does not answer since {}";
    LedgerUnread: "the ledger has not answered yet";
    LedgerLate: "no answer within {}";
    LedgerDo: "No task starts until it does; none is lost. Check the database server and `ledger.url`.";
    AllPaused: "everything is paused";
    AllPausedDo: "No task starts until it is resumed.";
    Overdue: "a due task has not been started for {}";
    OverdueDo: "`lapsed list --state overdue` shows the tasks, and `lapsed why KEY` why one does not start.";
    OverdueTasks: "overdue tasks: {}, the oldest by {}";
    OverdueOnly: "All are {}.";
    OverdueMostly: "Most are {}.";
    OverdueFirst: "Those that fell due first are {}.";
    Late: "tasks start late: p99 is {} over {} runs in the last {}, expected at most {}";
    LateDo: "Usual causes: an outage that has just ended, all slots are taken, limits of routes, or a slow ledger.";
    ClockAhead: "the clock of the ledger jumped ahead by {}, {} ago";
    ClockAheadDo: "It was set, or the machine was suspended. Tasks that fell due in between start now. If the time is wrong, pause everything, set the clock of the database server right, and resume.";
    ClockBack: "the clock of the ledger went back by {}, {} ago";
    ClockBackDo: "It was set. Tasks wait longer by as much. If the time is wrong, set the clock of the database server right.";
    NoEvents: "no events arrive from Redis";
    NoEventsDo: "Tasks may start up to 2 s late. Check the Redis server and `redis.url`.";
    NoEventsAdoptDo: "Tasks may start up to 2 s late. A bare SETEX is found only by an audit, and lost if it expires before. Check the Redis server and `redis.url`.";
    DaemonLost: "a daemon is lost: {}";
    DaemonLostDo: "It ended without deregistering, and no other has taken its place. Look at its host and its log, and start it again. The others run its tasks.";
    Hold: "old overdue tasks are held";
    HoldDo: "They wait for review, and do not start until they are released.";
    BackgroundFails: "a background task fails: {}";
    BackgroundFailsDo: "It is repeated.";
    Malformed: "rows with an invalid key: {}";
    MalformedDo: "They never run. A program writes them: expected `Class@method@argument`.";
    Swept: "the sweep alone started {} of {} tasks in the last {}, up to 2 s late";
    KeysLost: "Redis lost the keys of {} tasks in the last {}; they are armed again";
    RedisDo: "`lapsed doctor` checks the notifications, the memory and the clock of Redis.";
    CancelledByKey: "{} adopted tasks were cancelled in the last {}, many at once, because their entries or keys were missing";
    CancelledByKeyDo: "`lapsed list --state cancelled` shows them. If no program has removed their entries or keys, create them again.";
    SentinelSilent: "no sentinel key was heard for {}, expected one every {}: events of Redis are lost";
    RetentionBehind: "retention cannot delete finished tasks as fast as they pass their age: the table grows";
    RetentionBehindDo: "Raise `retention.rate`, or keep finished tasks for longer.";
    Died: "tasks died in the last {}: {}";
    DiedDo: "`lapsed list --state dead` shows their errors. Mend the cause, then `lapsed redrive --error TEXT`, with a part of the error.";
    Stopping: "the daemon is stopping";
    StoppingDo: "Runs end, and no further task starts here. Others, or its successor, go on.";
    Pauses: "pauses: {}";
    PausesDo: "Their tasks fall due but do not start.";
    Dead: "dead tasks: {}";
    DeadDo: "They failed for good and wait for a decision: redrive or discard.";

    // Why a task, or several, have not run.
    Ended: "it has ended: it is {}";
    EndedSince: "it has ended: it is {} since {}";
    EndedDo: "Mend the cause of its error, then redrive it.";
    Running: "it runs now, on {}";
    OlderRuns: "it starts when the run of its older arming has ended, on {}";
    NotDue: "it is not due until {}";
    Retry: "it waits until {} for attempt {}";
    RetryOf: "it waits until {} for attempt {} of {}";
    After: "it starts when all tasks with tag `{}` have ended, and looks again at {}";
    AfterDo: "`lapsed list --tag TAG` shows them.";
    AfterDead: "it starts when all tasks with tag `{}` have ended, and one of them is dead; it looks again at {}";
    AfterDeadDo: "Redrive or discard it: `lapsed list --tag TAG --state dead`.";
    Starting: "it fell due a moment ago and is about to start";
    Paused: "`{}` is paused since {}";
    EverythingPaused: "everything is paused since {}";
    PausedDo: "Resume it when it is time.";
    Held: "held for review since {}";
    HeldDo: "Release it when it is time: `lapsed resume --held`.";
    PausedUntil: "Until {}.";
    PausedBy: "By {}.";
    PausedReason: "Reason: {}.";
    CheckLedger: "Check the database server and `ledger.url`.";
    NoDaemon: "no daemon is running: nothing starts";
    NoDaemonDo: "Start `lapsed listen`.";
    NoRoute: "no daemon has a matching handler or route";
    NoRouteHere: "the daemon that answers has no matching handler or route, and the daemons of this ledger do not know of each other";
    NoRouteDo: "Add a route that matches and reload the daemons, or cancel what must not run.";
    Away: "only daemons that are lost, or accept no task, have a matching route";
    AwayNamed: "only daemons that are lost, or accept no task, have a matching route: {}";
    AwayDo: "Start these daemons again, or give another one their routes.";
    NoWorker: "no worker asks any daemon for the queue";
    NoWorkerOf: "no worker asks any daemon for the queue `{}`";
    NoWorkerSince: "no worker asks any daemon for the queue `{}` since {}";
    NoWorkerHere: "no worker asks the daemon that answers for the queue, and the daemons of this ledger do not know of each other";
    NoWorkerHereOf: "no worker asks the daemon that answers for the queue `{}`, and the daemons of this ledger do not know of each other";
    NoWorkerDo: "Start the workers of the queue.";
    Concurrency: "the route runs as many tasks as it may at the same time: {} on each daemon";
    ConcurrencyDo: "Wait, or raise `concurrency` of the route; look for runs that hang.";
    NoSlot: "all slots of the daemons with a matching route are taken";
    NoSlotDo: "Wait, raise `engine.concurrency`, or start another daemon; look for runs that hang.";
    Rate: "other tasks of the route start first, at most {}";
    RateDo: "Wait, or raise `rate` of the route.";
    Unheard: "the daemon that answers has no matching route, and cannot hear the other daemons: Redis does not answer";
    UnheardDo: "Check the Redis server and `redis.url`.";
    Unknown: "a daemon can run it, and has not started it. Usual causes: its concurrency or rate is used up, all slots or workers are busy, or the ledger is slow";
    UnknownDo: "Look at the log of the daemons, and run `lapsed doctor`.";
}
