//! Configuration sections. Each is read completely, so that all problems are reported.

use std::time::Duration;

use super::reader::{Problems, Reader, Span};
use super::server_url::without_stray_at;
use super::{Config, RespConfig, Secret, TimerKind};
use super::{
    alerts, http, import, ledger, otel, recurring, resp, retention, retry, routes, sorted_set,
    wheel,
};
use crate::task::KEY_BYTES_MAX;

/// `[redis]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisConfig {
    /// URL with credentials; the password is redacted when shown.
    pub url: Secret,
    /// Prefix of every key, as frameworks set it.
    pub key_prefix: String,
    /// Time limit for connecting.
    pub connect_timeout: Duration,
    /// Time limit for one answer.
    pub response_timeout: Duration,
    /// Tasks due later than this from now are not armed yet; `None`: all tasks are armed.
    pub arm_horizon: Option<Duration>,
}

/// `[sentinel]`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SentinelConfig {
    /// Number of sentinel keys.
    pub count: u16,
    /// Interval between their expiries.
    pub interval: Duration,
}

/// `[nudge]`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NudgeConfig {
    /// Whether keys are nudged at their due millisecond.
    pub enabled: bool,
    /// How far ahead due times are read from the ledger.
    pub horizon: Duration,
}

/// `[ledger_poll]`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LedgerPollConfig {
    /// How often the ledger is asked for tasks that are due now and that no program has announced; `None`: only the
    /// look-ahead and the sweep find them.
    pub probe: Option<Duration>,
}

/// `[adopt]`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdoptConfig {
    /// Whether bare keys become tasks, unless their route says otherwise.
    pub enabled: bool,
}

/// `[sweep]`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SweepConfig {
    /// Whether the sweep runs; switched off only to measure the other nets.
    pub enabled: bool,
    /// Interval between sweeps.
    pub interval: Duration,
}

/// `[engine]`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EngineConfig {
    /// Maximum number of concurrent runs.
    pub concurrency: usize,
    /// Length of a lease.
    pub lease: Duration,
    /// Time limit for one run.
    pub timeout: Duration,
    /// How long a graceful shutdown waits for runs.
    pub drain_timeout: Duration,
    /// Whether tasks that are overdue at the start are held for review.
    pub hold_overdue: bool,
}

/// `[fleet]`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FleetConfig {
    /// Whether daemons divide the tasks between them and take turns at audits.
    pub share: bool,
}

/// Reads all sections before it fails, so that all problems are reported.
pub(super) fn config(mut root: Reader, p: &mut Problems) -> Option<Config> {
    let timer: Option<TimerKind> = root.take("timer", p);
    let redis = redis(root.section("redis", p), p);
    let ledger = ledger::ledger(root.section("ledger", p), p);
    let sorted_set = sorted_set::sorted_set(root.section("sorted_set", p), p);
    let wheel = wheel::wheel(root.section("wheel", p), p);
    let sentinel = sentinel(root.section("sentinel", p), p);
    let nudge = nudge(root.section("nudge", p), p);
    let ledger_poll = ledger_poll(root.section("ledger_poll", p), p);
    let adopt = adopt(root.section("adopt", p), p);
    let sweep = sweep(root.section("sweep", p), p);
    let engine = engine(root.section("engine", p), p);
    let fleet = fleet(root.section("fleet", p), p);
    let retry = retry::retry(root.section("retry", p), p);
    let retention = retention::retention(root.section("retention", p), p);
    let http = http::http(root.section("http", p), p);
    let resp = resp::resp(root.section("resp", p), p);
    let alerts = alerts::alerts(root.section("alerts", p), p);
    let otel = otel::otel(root.section("otel", p), p);
    let key_prefix = redis.as_ref().map_or("", |redis| redis.key_prefix.as_str());
    let routes = routes::routes(&mut root, retry.as_ref(), key_prefix, p);
    let recurring = recurring::recurring(&mut root, &routes, p);
    let import = import::import(&mut root, p);
    if let (Some(timer), Some(ledger)) = (timer, &ledger)
        && let Err(problem) = ledger.check_timer(timer)
    {
        p.0.extend(problem.problems);
    }
    root.done(p);
    let (http, resp) = (http?, resp?);
    let redis = redis?;
    let resp = RespConfig {
        key_prefix: redis.key_prefix.clone(),
        mask_payloads: http.mask_payloads.clone(),
        mask_arguments: http.mask_arguments.clone(),
        ..resp
    };
    Some(Config {
        timer: timer?,
        redis,
        ledger: ledger?,
        sorted_set: sorted_set?,
        wheel: wheel?,
        sentinel: sentinel?,
        nudge: nudge?,
        ledger_poll: ledger_poll?,
        adopt: adopt?,
        sweep: sweep?,
        engine: engine?,
        fleet: fleet?,
        retry: retry?.policy(),
        retention: retention?,
        http,
        resp,
        alerts: alerts?,
        otel: otel?,
        routes,
        recurring,
        import,
    })
}

fn redis(mut section: Reader, p: &mut Problems) -> Option<RedisConfig> {
    let schemes = ["redis://", "rediss://", "unix://", "redis+unix://"];
    let url = section.checked(
        "url",
        p,
        |url: &String| schemes.iter().any(|s| url.starts_with(s)),
        "redis://, rediss:// or unix://",
    );
    let url = without_stray_at(&section, url, p);
    let key_prefix = section.checked(
        "key_prefix",
        p,
        |prefix: &String| prefix.len() < KEY_BYTES_MAX,
        "fewer than 255 bytes",
    );
    let connect_timeout = section.duration("connect_timeout", p, Duration::from_millis(1));
    let response_timeout = section.duration("response_timeout", p, Duration::from_millis(1));
    let arm_horizon = arm_horizon(&mut section, p);
    section.done(p);
    Some(RedisConfig {
        url: Secret::from(url?),
        key_prefix: key_prefix?,
        connect_timeout: connect_timeout?,
        response_timeout: response_timeout?,
        arm_horizon: arm_horizon?,
    })
}

/// A duration, or none.
fn arm_horizon(section: &mut Reader, p: &mut Problems) -> Option<Option<Duration>> {
    const LEAST: Duration = Duration::from_secs(60);
    let value: toml::Value = section.take("arm_horizon", p)?;
    if value.as_str() == Some("unlimited") {
        return Some(None);
    }
    let span = value.try_into::<Span>().ok().map(|span| span.0);
    let horizon = span.filter(|span| *span >= LEAST);
    if horizon.is_none() {
        let expected = "expected \"unlimited\", or a duration of at least a minute, such as \"6h\"";
        p.add(&section.at("arm_horizon"), expected.to_owned());
    }
    horizon.map(Some)
}

fn sentinel(mut section: Reader, p: &mut Problems) -> Option<SentinelConfig> {
    let count = section.checked("count", p, |n| (1..=1000).contains(n), "1 to 1000");
    let interval = section.duration("interval", p, Duration::from_millis(100));
    section.done(p);
    Some(SentinelConfig {
        count: count?,
        interval: interval?,
    })
}

fn nudge(mut section: Reader, p: &mut Problems) -> Option<NudgeConfig> {
    let enabled = section.take("enabled", p);
    let horizon = section.duration("horizon", p, Duration::from_secs(2));
    section.done(p);
    Some(NudgeConfig {
        enabled: enabled?,
        horizon: horizon?,
    })
}

fn ledger_poll(mut section: Reader, p: &mut Problems) -> Option<LedgerPollConfig> {
    let probe = section.duration_or_none("probe", p, Duration::from_millis(1));
    section.done(p);
    Some(LedgerPollConfig { probe: probe? })
}

fn adopt(mut section: Reader, p: &mut Problems) -> Option<AdoptConfig> {
    let enabled = section.take("enabled", p);
    section.done(p);
    Some(AdoptConfig { enabled: enabled? })
}

fn sweep(mut section: Reader, p: &mut Problems) -> Option<SweepConfig> {
    let enabled = section.take("enabled", p);
    let interval = section.duration("interval", p, Duration::from_millis(50));
    section.done(p);
    Some(SweepConfig {
        enabled: enabled?,
        interval: interval?,
    })
}

fn engine(mut section: Reader, p: &mut Problems) -> Option<EngineConfig> {
    let concurrency = section.checked(
        "concurrency",
        p,
        |n| (1..=100_000).contains(n),
        "1 to 100000",
    );
    let lease = section.duration("lease", p, Duration::from_secs(1));
    let timeout = section.duration("timeout", p, Duration::from_millis(1));
    let drain_timeout = section.duration("drain_timeout", p, Duration::ZERO);
    let hold_overdue = section.take("hold_overdue", p);
    section.done(p);
    Some(EngineConfig {
        concurrency: concurrency?,
        lease: lease?,
        timeout: timeout?,
        drain_timeout: drain_timeout?,
        hold_overdue: hold_overdue?,
    })
}

fn fleet(mut section: Reader, p: &mut Problems) -> Option<FleetConfig> {
    let share = section.take("share", p);
    section.done(p);
    Some(FleetConfig { share: share? })
}
