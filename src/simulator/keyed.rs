//! The model of Redis, and the timer of the product on it.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use lapsed::Config;
use lapsed::config::TimerKind as ConfiguredTimer;
use lapsed::engine::Metrics;
use lapsed::limiter::RateLimiter;
use lapsed::limiter::redis_limiter::RedisLimiter;
use lapsed::membership::{Membership, RedisMembership};
use lapsed_core::clock::LedgerClock;
use lapsed_core::task::UnixMs;
use lapsed_core::timer::Timer;
use lapsed_core::timer::ledger_poll::LedgerPoll;
use lapsed_model_redis::{Keep, Link, ModelRedis};
use lapsed_redis::timer::key_expiry::{Events, KeyExpiry};
use lapsed_redis::timer::sorted_set::SortedSet;
use lapsed_redis::timer::wheel::Wheel;
use lapsed_redis::{Endpoint, LedgerName};
use tokio::time::sleep;

use crate::plan::{Fault, FaultKind, Plan, QUEUE, Series, TimerKind, Verb};

/// How far the clock of Redis is set.
pub const STEP_MS: i64 = 3_000;

fn name() -> LedgerName {
    LedgerName::new("simulated", Arc::new(OnceLock::new()))
}

/// The set into which programs write.
pub const SET: &str = "tasks";

/// The most attempts of a task of a pull queue.
pub const PULLED_ATTEMPTS: u16 = 4;

/// The configuration of every process, with these recurring tasks.
pub fn config(plan: &Plan, series: &[Series]) -> Config {
    let age = if plan.prunes { "1m" } else { "none" };
    let series: Vec<String> = series.iter().map(ToString::to_string).collect();
    let text = format!(
        "timer = '{}'
engine = {{ concurrency = {}, lease = '{}s', drain_timeout = '5s', timeout = '2m' }}
retry = {{ max_attempts = {PULLED_ATTEMPTS} }}
sorted_set = {{ keys = ['{SET}'], unit = 'milliseconds' }}
routes = [{{ match = '^Pull@', pull = {{ queue = '{QUEUE}', visibility = '{}s' }} }}]
recurring = [{}]
wheel = {{ slots = {} }}
ledger_poll = {{ probe = '{}ms' }}
retention = {{ done = '{age}', cancelled = '{age}', archive = {} }}
",
        plan.timer.name(),
        plan.concurrency,
        plan.lease.as_secs(),
        plan.lease.as_secs(),
        series.join(", "),
        plan.slots,
        plan.probe.as_millis(),
        plan.archives,
    );
    Config::from_toml(&text).expect("a valid configuration")
}

/// The timer of a process: on Redis if there is one.
pub fn timer(
    link: Option<&Arc<Link>>,
    config: &Config,
    clock: LedgerClock,
    metrics: &Arc<Metrics>,
) -> Arc<dyn Timer> {
    let Some(link) = link else {
        return Arc::new(LedgerPoll::new(clock));
    };
    let (endpoint, redis, metrics) = (endpoint(link, config), &config.redis, Arc::clone(metrics));
    match config.timer {
        ConfiguredTimer::SortedSet => {
            let sets = config.sorted_set.clone();
            Arc::new(SortedSet::on(endpoint, redis, sets, clock, metrics, name()))
        }
        ConfiguredTimer::Wheel => {
            let adopts = config.adopts_any();
            Arc::new(Wheel::on(
                endpoint,
                redis,
                &config.wheel,
                adopts,
                clock,
                metrics,
            ))
        }
        ConfiguredTimer::KeyExpiry | ConfiguredTimer::LedgerPoll => Arc::new(KeyExpiry::on(
            endpoint,
            redis,
            config.sentinel,
            config.nudge,
            Events::wanted_by(config),
            name(),
            clock,
            metrics,
        )),
    }
}

/// What a program sends to arm a task, to move it, or to remove it.
pub fn command(timer: TimerKind, verb: &Verb, key: &str, now: UnixMs) -> Vec<String> {
    let ms = |delay: Duration| delay.as_millis().max(1).to_string();
    let at = |delay: Duration| now.plus(delay).0.to_string();
    let words: Vec<String> = match (timer, verb) {
        (TimerKind::SortedSet, Verb::KeySet { delay }) => {
            vec!["ZADD".into(), SET.into(), at(*delay), key.into()]
        }
        (TimerKind::SortedSet, Verb::KeyExpire { delay }) => {
            vec![
                "ZADD".into(),
                SET.into(),
                "XX".into(),
                at(*delay),
                key.into(),
            ]
        }
        (TimerKind::SortedSet, _) => vec!["ZREM".into(), SET.into(), key.into()],
        (_, Verb::KeySet { delay }) => vec!["PSETEX".into(), key.into(), ms(*delay), String::new()],
        (_, Verb::OldCreate { seconds }) => {
            vec![
                "SETEX".into(),
                key.into(),
                seconds.to_string(),
                String::new(),
            ]
        }
        (_, Verb::KeyExpire { delay }) => vec!["PEXPIRE".into(), key.into(), ms(*delay)],
        (_, Verb::KeyPersist) => vec!["PERSIST".into(), key.into()],
        _ => vec!["DEL".into(), key.into()],
    };
    words
}

/// What a program sends to push the entry of an operation into its slot.
pub fn push(delay: Duration, payload: &str, now: UnixMs, slots: u32) -> Vec<String> {
    let slots = i64::from(slots);
    let (second, now) = (now.plus(delay).0 / 1_000, now.0 / 1_000);
    let slot = second % slots;
    let rounds = (second - now) / slots;
    let entry = format!(r#"{{"method":"ok","params":{payload},"cycle_num":{rounds}}}"#);
    vec!["RPUSH".into(), format!("task_{slot}"), entry]
}

/// The members that a process finds in Redis.
pub fn members(link: &Arc<Link>, config: &Config) -> Arc<dyn Membership> {
    Arc::new(RedisMembership::on(
        endpoint(link, config),
        &config.redis,
        name(),
    ))
}

/// The buckets of rates that a process finds in Redis.
pub fn limiter(link: &Arc<Link>, config: &Config) -> Arc<dyn RateLimiter> {
    Arc::new(RedisLimiter::on(
        endpoint(link, config),
        &config.redis,
        name(),
    ))
}

fn endpoint(link: &Arc<Link>, config: &Config) -> Endpoint {
    Endpoint::over(&config.redis, Arc::clone(link) as _).expect("a valid URL")
}

/// Begins a fault of Redis, or of the way there. It ends by itself.
pub fn begin(redis: &Arc<ModelRedis>, link: &Arc<Link>, fault: &Fault, keys: &[String]) {
    let (redis, link) = (Arc::clone(redis), Arc::clone(link));
    let Fault {
        kind,
        length,
        percent,
        ..
    } = *fault;
    let part = percent as f64 / 100.0;
    match kind {
        FaultKind::RedisHangs => redis.pause(),
        FaultKind::RedisRefuses => {
            redis.refuse(true);
            redis.kill_connections(|_| true);
        }
        FaultKind::RedisRestartsEmpty => return redis.restart(Keep::Nothing),
        FaultKind::RedisRestartsOlder => redis.snapshot(),
        FaultKind::RedisFlushed => return redis.flush_all(),
        FaultKind::RedisFlagsCleared => return redis.set_flags(""),
        FaultKind::RedisClockSteps => redis.step_clock(STEP_MS),
        FaultKind::EventsLost => redis.drop_events(part),
        FaultKind::EventsTwice => redis.duplicate_events(part),
        FaultKind::EventsLate => redis.delay_events(part, Duration::from_secs(4)),
        FaultKind::EventsForged => {
            for key in keys {
                redis.forge_event(0, key);
            }
            return;
        }
        FaultKind::LinkCut => return link.kill(),
        FaultKind::LinkRefused => {
            link.refuse(true);
            link.kill();
        }
        FaultKind::LinkRequestsHeld => link.hold_requests(true),
        FaultKind::LinkRepliesHeld => link.hold_replies(true),
        _ => return,
    }
    tokio::spawn(async move {
        sleep(length).await;
        end(&redis, &link, kind);
    });
}

fn end(redis: &Arc<ModelRedis>, link: &Arc<Link>, kind: FaultKind) {
    match kind {
        FaultKind::RedisHangs => redis.resume(),
        FaultKind::RedisRefuses => redis.refuse(false),
        FaultKind::RedisRestartsOlder => redis.restart(Keep::Snapshot),
        FaultKind::RedisClockSteps => redis.step_clock(-STEP_MS),
        FaultKind::EventsLost => redis.drop_events(0.0),
        FaultKind::EventsTwice => redis.duplicate_events(0.0),
        FaultKind::EventsLate => redis.delay_events(0.0, Duration::ZERO),
        FaultKind::LinkRefused => link.refuse(false),
        FaultKind::LinkRequestsHeld => link.hold_requests(false),
        FaultKind::LinkRepliesHeld => link.hold_replies(false),
        _ => {}
    }
}

/// Ends all faults of the server.
pub fn heal(redis: &Arc<ModelRedis>) {
    redis.resume();
    redis.refuse(false);
    redis.drop_events(0.0);
    redis.duplicate_events(0.0);
    redis.delay_events(0.0, Duration::ZERO);
}
