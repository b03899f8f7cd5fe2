//! What can be wrong with Redis.

use std::time::Duration;

use super::checkup::{Checkup, Silent, words};
use super::clocks::Reading;
use super::units::{bytes, count, span};
use super::{Finding, Severity};
use crate::config::{Config, TimerKind};
use crate::redis::{
    Commands, Connected, Endpoint, EventKind, Events, Facts, Inspection, Listeners, Names,
    Notifications, NotifyFlags, RedisError, ensure_notifications,
};

const REACHABLE: &str = "redis.reachable";
const VERSION: &str = "redis.version";
const ROLE: &str = "redis.role";
const CLUSTER: &str = "redis.cluster";
const NOTIFICATIONS: &str = "redis.notifications";
const RESTART: &str = "redis.restart";
const EVICTION: &str = "redis.eviction";
const OUTPUT_BUFFER: &str = "redis.output_buffer";
const LISTENERS: &str = "redis.listeners";
const RIGHTS: &str = "redis.rights";
const ADOPTION: &str = "redis.adoption";
const LATENESS: &str = "redis.lateness";
const PERSISTENCE: &str = "redis.persistence";
const CLOCK: &str = "redis.clock";
const FIX: &str = "fix";

const FLAGS: &str = "notify-keyspace-events";
const BUFFER_LIMIT: &str = "client-output-buffer-limit";
const EFFORT: &str = "active-expire-effort";

/// What one expired event of a key of usual length takes in a subscriber's output buffer; measured.
const EVENT_BYTES: u64 = 118;

/// A reader that cannot fall behind by so many events is cut by an ordinary burst.
const EVENTS_MIN: u64 = 100_000;

/// A reader may stall for so long, when its host is busy.
const STALL_SECONDS: u64 = 5;

/// Bare events that are later than this make somebody ask.
const LATE: Duration = Duration::from_secs(1);

/// Examines the server that the timer uses; answers its clock.
pub(super) async fn examine(config: &Config, checkup: &mut Checkup) -> Option<Reading> {
    if config.timer == TimerKind::LedgerPoll {
        let unused = "not used: the timer is `ledger_poll`";
        checkup.add([Finding::ok(REACHABLE, unused)]);
        return None;
    }
    let endpoint = match Endpoint::new(&config.redis) {
        Ok(endpoint) => endpoint,
        Err(error) => {
            checkup.add([unreachable(&error)]);
            return None;
        }
    };
    examine_server(config, endpoint, checkup)
        .await
        .unwrap_or_default()
}

async fn examine_server(
    config: &Config,
    endpoint: Endpoint,
    checkup: &mut Checkup,
) -> Result<Option<Reading>, Silent> {
    let commands = Commands::new(endpoint.clone());
    let server = Inspection::new(commands);
    let found = checkup.bounded(server.time()).await;
    let reachable = reachable(&endpoint, found);
    let usable = reachable.severity == Severity::Ok;
    checkup.add([reachable]);
    if !usable {
        return Ok(None);
    }

    let of_info = [VERSION, ROLE, CLUSTER, EVICTION, PERSISTENCE, LATENESS];
    let info = checkup.learn(&of_info, server.info()).await?;
    if let Some(info) = &info {
        checkup.add([version(info), role(info), cluster(info)]);
    }

    let flags = server.settings(&[FLAGS]);
    if let Some(settings) = checkup.learn(&[NOTIFICATIONS], flags).await? {
        checkup.add(notifications(settings.raw(FLAGS), events(config)));
    }
    let channel = endpoint.channel(EventKind::Expired);
    // Before this program listens itself.
    let listeners = checkup.learn(&[LISTENERS], server.listeners(&channel));
    if let Some(listeners) = listeners.await? {
        checkup.add([judge_listeners(&channel, &listeners)]);
    }
    let refused = refused(&server, &endpoint, &config.redis.key_prefix);
    if let Some(refused) = checkup.learn(&[RIGHTS], refused).await? {
        checkup.add(rights(&channel, &refused));
    }
    if events(config) == Events::ExpiredAndArmings {
        let refused = refused_to_adopt(&server, &endpoint);
        if let Some(refused) = checkup.learn(&[ADOPTION], refused).await? {
            checkup.add([adoption(&endpoint, refused.as_ref())]);
        }
    }
    if let Some(info) = &info {
        checkup.add([eviction(info)]);
    }
    let limit = server.settings(&[BUFFER_LIMIT]);
    if let Some(settings) = checkup.learn(&[OUTPUT_BUFFER], limit).await? {
        checkup.add([output_buffer(settings.raw(BUFFER_LIMIT))]);
    }
    if let Some(info) = &info {
        // Where it may not be asked, the default stands; `INFO` tells `hz` itself.
        let effort = match checkup.bounded(server.settings(&[EFFORT])).await {
            Some(Ok(settings)) => settings.number(EFFORT),
            _ => None,
        };
        checkup.add([
            lateness(info, effort, endpoint.database(), config.nudge.enabled),
            persistence(info),
        ]);
    }
    let reading = checkup.learn(&[CLOCK], Reading::take(server.time()));
    reading.await
}

/// What the daemon listens to.
fn events(config: &Config) -> Events {
    match config.hears_armings() {
        true => Events::ExpiredAndArmings,
        false => Events::Expired,
    }
}

/// Adds the notification flags that are missing, and says what it did.
pub(super) async fn add_flags(config: &Config) -> Finding {
    if config.timer == TimerKind::LedgerPoll {
        return Finding::ok(FIX, "nothing to do: the timer is `ledger_poll`");
    }
    let endpoint = match Endpoint::new(&config.redis) {
        Ok(endpoint) => endpoint,
        Err(error) => return Finding::error(FIX, words(&error)).remedy("mend `redis.url`"),
    };
    match ensure_notifications(&Commands::new(endpoint), events(config)).await {
        Ok(Notifications::On) => {
            Finding::ok(FIX, "nothing to do: all events that are needed are announced")
        }
        Ok(Notifications::Added(flags)) => Finding::ok(
            FIX,
            format!("set `{FLAGS}` to `{flags}`, until the server restarts"),
        )
        .remedy(persist(&flags)),
        Ok(Notifications::ExpiredOnly { flags, refusal }) => Finding::warning(
            FIX,
            format!(
                "`{FLAGS}` is `{flags}`, without `g`, and this user may not change it: {}",
                words(&refusal)
            ),
        )
        .remedy(persist(&flags.with(events(config)))),
        Ok(Notifications::Off { flags, refusal }) => Finding::error(
            FIX,
            format!(
                "`{FLAGS}` is `{flags}`, and this user may not change it: {}",
                words(&refusal)
            ),
        )
        .remedy(persist(&flags.with(events(config)))),
        Ok(Notifications::Unknown) => Finding::note(
            FIX,
            format!("nothing was changed: this server shows nobody its `{FLAGS}`"),
        )
        .remedy(format!(
            "set `{FLAGS}` to at least `{}` where the server is configured, such as its provider's console",
            events(config).flags()
        )),
        Err(error) => Finding::error(FIX, format!("nothing was changed: {}", words(&error)))
            .remedy("see below, then run `lapsed doctor --fix` again"),
    }
}

fn persist(flags: &NotifyFlags) -> String {
    format!(
        "write `{FLAGS} {flags}` into redis.conf (or the provider's parameter group), of replicas too: what was set at run time is gone after a restart or a failover"
    )
}

/// What of the daemon's work is refused.
async fn refused(
    server: &Inspection,
    endpoint: &Endpoint,
    key_prefix: &str,
) -> Result<Vec<RedisError>, RedisError> {
    let mut refused = server.refused_verbs(&Names::new(key_prefix)).await?;
    let subscribed = match Connected::open(endpoint).await {
        Ok(mut connected) => connected.hear(EventKind::Expired).await,
        Err(error) => Err(error),
    };
    match subscribed {
        Ok(()) => {}
        Err(error @ RedisError::Unreachable(_)) => return Err(error),
        Err(error) => refused.push(error),
    }
    Ok(refused)
}

/// What of taking over keys without a row is refused first.
async fn refused_to_adopt(
    server: &Inspection,
    endpoint: &Endpoint,
) -> Result<Option<RedisError>, RedisError> {
    let tried = async {
        let mut connected = Connected::open(endpoint).await?;
        for kind in EventKind::OF_ARMINGS {
            connected.hear(kind).await?;
        }
        server.try_scan().await
    };
    match tried.await {
        Ok(()) => Ok(None),
        Err(error @ RedisError::Unreachable(_)) => Err(error),
        Err(refused) => Ok(Some(refused)),
    }
}

fn reachable<T>(endpoint: &Endpoint, answer: Option<Result<T, RedisError>>) -> Finding {
    let (node, database) = (endpoint.node(), endpoint.database());
    match answer {
        // Refusing this one question, it is there and lets us in.
        Some(
            Ok(_)
            | Err(RedisError::NoPermission {
                command: "TIME", ..
            }),
        ) => Finding::ok(REACHABLE, format!("{node}, database {database}")),
        Some(Err(error)) => {
            let finding = unreachable(&error);
            Finding {
                found: format!("{node}: {}", finding.found),
                ..finding
            }
        }
        None => Finding::error(REACHABLE, format!("{node}: no answer in time")).remedy(
            "see whether the server hangs, and whether a firewall drops what is sent to it",
        ),
    }
}

fn unreachable(error: &RedisError) -> Finding {
    let remedy = match error {
        RedisError::Url(_) => "mend `redis.url`, as in `redis://127.0.0.1:6379/0`",
        RedisError::Credentials(_) => {
            "put the right user and password into `redis.url`, as in `redis://user:password@host:6379/0`, or into the file that `LAPSED__REDIS__URL_FILE` names"
        }
        RedisError::Loading(_) => "wait until the server has loaded its data",
        RedisError::NoPermission { .. } => {
            "let the user of `redis.url` connect and select the database: `+hello +auth +select +ping +client|setinfo`"
        }
        RedisError::Unreachable(_) => {
            "start redis, or mend `redis.url`: host, port, and `rediss://` exactly if the server speaks TLS"
        }
        _ => "mend `redis.url`: does the server have this database",
    };
    Finding::error(REACHABLE, words(error)).remedy(remedy)
}

fn version(info: &Facts) -> Finding {
    let valkey = info.get("valkey_version");
    let Some(version) = valkey.or_else(|| info.get("redis_version")) else {
        return Finding::unknown(VERSION, "the server does not say");
    };
    let name = if valkey.is_some() { "valkey" } else { "redis" };
    let mut numbers = version.split('.').map_while(|number| number.parse().ok());
    let number: (u32, u32) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if number < (6, 2) {
        return Finding::warning(
            VERSION,
            format!("{name} {version}, expected 6.2 or newer: what is older was never tried"),
        )
        .remedy("upgrade the server");
    }
    Finding::ok(VERSION, format!("{name} {version}"))
}

fn role(info: &Facts) -> Finding {
    match info.get("role") {
        Some("master") => Finding::ok(ROLE, "master"),
        Some(role) => Finding::error(
            ROLE,
            format!(
                "`{role}`, expected `master`: a replica takes no writes and never says `expired`"
            ),
        )
        .remedy(match (info.get("master_host"), info.get("master_port")) {
            (Some(host), Some(port)) => format!("name the master, {host}:{port}, in `redis.url`"),
            _ => "name the master in `redis.url`".to_owned(),
        }),
        None => Finding::unknown(ROLE, "the server does not say"),
    }
}

fn cluster(info: &Facts) -> Finding {
    match info.get("cluster_enabled") {
        Some("1") => Finding::error(
            CLUSTER,
            "the server is part of a cluster, which this version does not support: each node announces only its own keys",
        )
        .remedy("use a server without `cluster-enabled`, or `timer = \"ledger_poll\"`"),
        Some(_) => Finding::ok(CLUSTER, "not part of a cluster"),
        None => Finding::unknown(CLUSTER, "the server does not say"),
    }
}

/// `None`: the server has no such setting to show.
fn notifications(flags: Option<&str>, wanted: Events) -> Vec<Finding> {
    let Some(text) = flags else {
        let unsaid = Finding::unknown(NOTIFICATIONS, format!("the server does not show `{FLAGS}`"));
        let least = wanted.flags();
        let remedy =
            format!("see that `{FLAGS}` is at least `{least}` where the server is configured");
        return vec![unsaid.remedy(remedy)];
    };
    let flags = NotifyFlags::parse(text);
    if !flags.announce(Events::Expired) {
        let off = Finding::error(
            NOTIFICATIONS,
            format!(
                "`{FLAGS}` is `{text}`, expected at least `Ex`: expired events are not announced"
            ),
        );
        let remedy = format!(
            "run `lapsed doctor --fix`, and {}",
            persist(&flags.with(wanted))
        );
        return vec![off.remedy(remedy)];
    }
    if !flags.announce(wanted) {
        let expired_only = Finding::warning(
            NOTIFICATIONS,
            format!(
                "`{FLAGS}` is `{text}`, expected `g` too: nobody hears that keys are armed, so a bare `SETEX` is taken over late, and delays below a second may start late"
            ),
        );
        let remedy = format!(
            "run `lapsed doctor --fix`, and {}",
            persist(&flags.with(wanted))
        );
        return vec![expired_only.remedy(remedy)];
    }
    vec![
        Finding::ok(
            NOTIFICATIONS,
            format!("`{FLAGS}` is `{text}`: the events that are needed are announced"),
        ),
        Finding::note(
            RESTART,
            format!("whether `{FLAGS}` outlives a restart cannot be seen from here"),
        )
        .remedy(persist(&flags)),
    ]
}

fn judge_listeners(channel: &str, listeners: &Listeners) -> Finding {
    let Listeners {
        by_name,
        patterns,
        by_pattern,
    } = listeners;
    let others = match by_pattern {
        Some(clients) => by_name + clients.len() as u64,
        None => by_name + patterns,
    };
    if others == 0 {
        return Finding::ok(LISTENERS, format!("nobody else listens to `{channel}`"));
    }
    let who = match (by_name, by_pattern) {
        (0, None) => format!("clients listen to {patterns} patterns"),
        (_, None) => format!(
            "{by_name} other clients listen to `{channel}`, and some to {patterns} patterns"
        ),
        (_, Some(_)) if others == 1 => {
            format!("1 other client listens to `{channel}` or to a pattern")
        }
        (_, Some(_)) => format!("{others} other clients listen to `{channel}` or to patterns"),
    };
    let named = by_pattern.iter().flatten().take(5).map(|client| {
        let name = client.name.as_deref().unwrap_or("no name");
        format!("{} ({name})", client.address)
    });
    let named: Vec<String> = named.collect();
    let named = if named.is_empty() {
        String::new()
    } else {
        format!(": {}", named.join(", "))
    };
    Finding::note(LISTENERS, who + &named).remedy(
        "daemons of lapsed may be among them and may stay; an old listener (the PHP one) must be stopped, or it runs the same tasks",
    )
}

fn rights(channel: &str, refused: &[RedisError]) -> Vec<Finding> {
    if refused.is_empty() {
        let found = "this user may arm, ask for and delete keys, and listen";
        return vec![Finding::ok(RIGHTS, found)];
    }
    let finding = |error: &RedisError| {
        let remedy = match error {
            RedisError::NoPermission { .. } => format!(
                "let the user of `redis.url` do it: `ACL SETUSER <user> +set +get +getrange +pttl +del +scan +hset +hgetall +hdel +psubscribe +ping ~* &{channel}`"
            ),
            RedisError::Replica(_) => "name the master in `redis.url`".to_owned(),
            RedisError::Refused { .. } => {
                "mend what the server complains about: memory, or its disk".to_owned()
            }
            _ => "mend `redis.url`".to_owned(),
        };
        Finding::error(RIGHTS, words(error)).remedy(remedy)
    };
    refused.iter().map(finding).collect()
}

fn adoption(endpoint: &Endpoint, refused: Option<&RedisError>) -> Finding {
    let Some(error) = refused else {
        return Finding::ok(
            ADOPTION,
            "this user may hear that keys are armed, and go through them",
        );
    };
    let channels = EventKind::OF_ARMINGS.map(|kind| format!("&{}", endpoint.channel(kind)));
    Finding::warning(
        ADOPTION,
        format!("a bare `SETEX` is taken over late, and delays below a second may start late: {}", words(error)),
    )
    .remedy(format!(
        "let the user of `redis.url` do it: `ACL SETUSER <user> +scan +psubscribe +info {}`; or set `adopt.enabled = false`",
        channels.join(" ")
    ))
}

fn eviction(info: &Facts) -> Finding {
    let Some(policy) = info.get("maxmemory_policy") else {
        return Finding::unknown(EVICTION, "the server does not say");
    };
    let limit: u64 = info.number("maxmemory").unwrap_or(0);
    let used: u64 = info.number("used_memory").unwrap_or(0);
    if policy != "noeviction" {
        let when = match limit {
            0 => "as soon as `maxmemory` is set".to_owned(),
            limit => format!("above {}, of which {} are used", bytes(limit), bytes(used)),
        };
        return Finding::warning(
            EVICTION,
            format!("`maxmemory-policy` is `{policy}`: armed keys are thrown away {when}, and their tasks wait for the sweep"),
        )
        .remedy("set `maxmemory-policy noeviction`, or give the tasks a server of their own");
    }
    if limit > 0 && used > limit / 10 * 9 {
        return Finding::warning(
            EVICTION,
            format!("{} of {} are used: when they are full, keys cannot be armed, and tasks wait for the sweep", bytes(used), bytes(limit)),
        )
        .remedy("raise `maxmemory`, or give the tasks a server of their own");
    }
    Finding::ok(
        EVICTION,
        "`maxmemory-policy` is `noeviction`: nothing is thrown away",
    )
}

/// `setting` as in `normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60`.
fn output_buffer(setting: Option<&str>) -> Finding {
    let words: Vec<&str> = setting.unwrap_or_default().split(' ').collect();
    let limits = words.chunks_exact(4).find(|class| class[0] == "pubsub");
    let limits = limits.map(|class| [1, 2, 3].map(|index| class[index].parse::<u64>().ok()));
    let Some([Some(hard), Some(soft), Some(seconds)]) = limits else {
        return Finding::unknown(
            OUTPUT_BUFFER,
            format!("the server does not show `{BUFFER_LIMIT}`"),
        );
    };
    let soft_cuts = soft > 0 && seconds < STALL_SECONDS;
    let limit = match (hard, soft_cuts) {
        (0, false) => {
            return Finding::ok(
                OUTPUT_BUFFER,
                "no limit for subscribers: one that stalls is never cut, and the server's memory grows meanwhile",
            );
        }
        (0, true) => soft,
        (hard, true) => hard.min(soft),
        (hard, false) => hard,
    };
    let events = limit / EVENT_BYTES;
    let mut found = format!(
        "a reader that stalls is cut off when about {} events wait for it",
        count(events)
    );
    if soft > 0 && soft < limit {
        let soft_events = count(soft / EVENT_BYTES);
        found += &format!(", or {soft_events} for {seconds} s");
    }
    if events < EVENTS_MIN {
        return Finding::warning(
            OUTPUT_BUFFER,
            format!("{found}: an ordinary burst can do that, and tasks then wait for the sweep"),
        )
        .remedy(format!(
            "set `{BUFFER_LIMIT} \"pubsub 32mb 8mb 60\"` or more, also in redis.conf"
        ));
    }
    Finding::ok(OUTPUT_BUFFER, found)
}

/// How long Redis takes to walk once over all keys that expire: so late is the latest event, and the mean half.
fn lap(expiring: u64, hz: u64, effort: u64) -> Duration {
    let per_second = hz.max(1) * (20 + 5 * effort.clamp(1, 10).saturating_sub(1));
    Duration::from_secs_f64(expiring as f64 / per_second as f64)
}

fn lateness(info: &Facts, effort: Option<u64>, database: i64, nudge: bool) -> Finding {
    let hz = info.number("configured_hz").or_else(|| info.number("hz"));
    let expiring = info.expiring_keys(database);
    let late = lap(expiring, hz.unwrap_or(10), effort.unwrap_or(1));
    let or_default = |value: Option<u64>, default: u64| match value {
        Some(value) => value.to_string(),
        None => format!("{default} (assumed)"),
    };
    let found = format!(
        "{} keys expire (hz {}, {EFFORT} {}): a bare event comes up to {} late, half of that on average",
        count(expiring),
        or_default(hz, 10),
        or_default(effort, 1),
        span(late),
    );
    if late < LATE {
        return Finding::ok(LATENESS, found);
    }
    if nudge {
        return Finding::note(
            LATENESS,
            format!(
                "{found}; a daemon that runs makes its own tasks' punctual, by asking for each key when it is due"
            ),
        );
    }
    Finding::warning(LATENESS, format!("{found}; tasks then wait for the sweep")).remedy(format!(
        "set `nudge.enabled = true`; else raise `hz` (to 100) and `{EFFORT}` (to 10)"
    ))
}

fn persistence(info: &Facts) -> Finding {
    let failed = |name| matches!(info.get(name), Some(status) if status != "ok");
    if failed("rdb_last_bgsave_status") || failed("aof_last_write_status") {
        return Finding::warning(
            PERSISTENCE,
            "the server could not write to its disk: it may refuse to arm keys, and tasks then wait for the sweep",
        )
        .remedy("see the server's log: disk full, or no right to write there");
    }
    match info.get("aof_enabled") {
        Some("1") => Finding::note(
            PERSISTENCE,
            "an append-only file is kept: armed keys outlive a restart",
        ),
        Some(_) => Finding::note(
            PERSISTENCE,
            "no append-only file is kept: keys armed since the last snapshot, if there are snapshots, are gone after a restart; a daemon arms them again",
        ),
        None => Finding::unknown(PERSISTENCE, "the server does not say"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::Client;

    #[track_caller]
    fn assert_is(finding: &Finding, severity: Severity, part: &str) {
        assert_eq!(finding.severity, severity, "{finding:?}");
        assert!(finding.found.contains(part), "{finding:?}");
        let bad = severity >= Severity::Warning;
        assert!(!bad || finding.remedy.is_some(), "{finding:?}");
    }

    #[test]
    fn the_predicted_lateness_is_the_measured_law() {
        let seconds = |keys, hz, effort| lap(keys, hz, effort).as_secs_f64();
        assert_eq!(seconds(100_000, 10, 1), 500.0);
        // Measured: 33.4 s.
        assert!((seconds(1_012_000, 500, 10) - 31.1).abs() < 0.1);
        assert_eq!(seconds(0, 0, 0), 0.0);
    }

    #[test]
    fn late_events_matter_only_where_nobody_nudges() {
        let info = Facts::from([("configured_hz", "10"), ("db0", "keys=9,expires=100000")]);
        let judged = lateness(&info, Some(1), 0, true);
        assert_is(
            &judged,
            Severity::Note,
            "100 000 keys expire (hz 10, active-expire-effort 1)",
        );
        assert!(judged.found.contains("up to 8 min 20 s late"));
        assert_is(
            &lateness(&info, None, 0, false),
            Severity::Warning,
            "1 (assumed)",
        );
        assert_is(&lateness(&info, None, 3, false), Severity::Ok, "0 keys");
    }

    #[test]
    fn only_a_master_will_do() {
        assert_is(
            &role(&Facts::from([("role", "master")])),
            Severity::Ok,
            "master",
        );
        let info = Facts::from([
            ("role", "slave"),
            ("master_host", "10.0.0.7"),
            ("master_port", "6379"),
        ]);
        let replica = role(&info);
        assert_is(&replica, Severity::Error, "never says `expired`");
        assert!(replica.remedy.unwrap().contains("10.0.0.7:6379"));
        assert_is(
            &role(&Facts::default()),
            Severity::Note,
            "could not be checked",
        );
    }

    #[test]
    fn servers_are_told_apart_by_name_and_age() {
        let told = [
            (
                Facts::from([("redis_version", "7.0.15")]),
                Severity::Ok,
                "redis 7.0.15",
            ),
            (
                Facts::from([("redis_version", "7.2.4"), ("valkey_version", "8.0.1")]),
                Severity::Ok,
                "valkey 8.0.1",
            ),
            (
                Facts::from([("redis_version", "5.0.14")]),
                Severity::Warning,
                "expected 6.2",
            ),
        ];
        for (info, severity, part) in told {
            assert_is(&version(&info), severity, part);
        }
    }

    #[test]
    fn a_cluster_is_refused() {
        let info = |value| Facts::from([("cluster_enabled", value)]);
        assert_is(&cluster(&info("1")), Severity::Error, "does not support");
        assert_is(&cluster(&info("0")), Severity::Ok, "not part");
    }

    #[test]
    fn any_flags_that_include_expired_events_are_enough() {
        for text in ["Ex", "AKE", "xEg"] {
            assert_is(
                &notifications(Some(text), Events::Expired)[0],
                Severity::Ok,
                text,
            );
        }
        for text in ["Exg", "AKE", "xEg"] {
            assert_is(
                &notifications(Some(text), Events::ExpiredAndArmings)[0],
                Severity::Ok,
                text,
            );
        }
        let deaf = &notifications(Some("Ex"), Events::ExpiredAndArmings)[0];
        assert_is(deaf, Severity::Warning, "expected `g` too");
        assert!(deaf.remedy.as_deref().unwrap().contains("Exg"), "{deaf:?}");
        let off = notifications(Some("Kg"), Events::ExpiredAndArmings);
        assert_is(&off[0], Severity::Error, "`notify-keyspace-events` is `Kg`");
        assert!(
            off[0]
                .remedy
                .as_deref()
                .unwrap()
                .contains("notify-keyspace-events KgEx")
        );
        assert_is(
            &notifications(None, Events::Expired)[0],
            Severity::Note,
            "does not show",
        );
    }

    #[test]
    fn every_policy_but_noeviction_throws_armed_keys_away() {
        let info = |policy, limit| {
            Facts::from([
                ("maxmemory_policy", policy),
                ("maxmemory", limit),
                ("used_memory", "950000"),
            ])
        };
        for policy in ["allkeys-lru", "volatile-ttl", "volatile-lru", "allkeys-lfu"] {
            assert_is(&eviction(&info(policy, "0")), Severity::Warning, policy);
            assert_is(
                &eviction(&info(policy, "1048576")),
                Severity::Warning,
                "above 1 MiB",
            );
        }
        assert_is(&eviction(&info("noeviction", "0")), Severity::Ok, "nothing");
        assert_is(
            &eviction(&info("noeviction", "1000000")),
            Severity::Warning,
            "cannot be armed",
        );
        assert_is(
            &eviction(&info("noeviction", "2000000")),
            Severity::Ok,
            "nothing",
        );
    }

    #[test]
    fn the_output_buffer_is_counted_in_events() {
        let default = "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60";
        let judged = output_buffer(Some(default));
        assert_is(
            &judged,
            Severity::Ok,
            "about 284 359 events wait for it, or 71 089 for 60 s",
        );
        let told = [
            ("pubsub 262144 131072 60", Severity::Warning, "2 221 events"),
            (
                "pubsub 33554432 131072 1",
                Severity::Warning,
                "1 110 events",
            ),
            ("pubsub 0 131072 1", Severity::Warning, "1 110 events"),
            ("pubsub 0 0 0", Severity::Ok, "never cut"),
            ("normal 0 0 0", Severity::Note, "does not show"),
        ];
        for (setting, severity, part) in told {
            assert_is(&output_buffer(Some(setting)), severity, part);
        }
    }

    #[test]
    fn other_listeners_are_counted_and_named() {
        let judge = |listeners| judge_listeners("__keyevent@0__:expired", &listeners);
        assert_is(&judge(Listeners::default()), Severity::Ok, "nobody else");
        let php = Client {
            address: "10.0.0.5:4433".into(),
            name: None,
        };
        let seen = judge(Listeners {
            by_name: 1,
            patterns: 1,
            by_pattern: Some(vec![php]),
        });
        assert_is(&seen, Severity::Note, "2 other clients listen");
        assert!(seen.found.ends_with("10.0.0.5:4433 (no name)"), "{seen:?}");
        let unseen = judge(Listeners {
            patterns: 2,
            ..Listeners::default()
        });
        assert_is(&unseen, Severity::Note, "listen to 2 patterns");
    }

    #[test]
    fn a_disk_that_failed_is_told_from_no_persistence() {
        let judge = |pairs: [(&str, &str); 2]| persistence(&Facts::from(pairs));
        let failed = judge([("aof_enabled", "0"), ("rdb_last_bgsave_status", "err")]);
        assert_is(&failed, Severity::Warning, "could not write");
        let none = judge([("aof_enabled", "0"), ("rdb_last_bgsave_status", "ok")]);
        assert_is(&none, Severity::Note, "arms them again");
    }
}
