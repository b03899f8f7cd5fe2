//! Configuration sections. Each is read completely, so that all problems are reported.

use std::time::Duration;

use super::reader::{Problems, Reader, Span};
use super::rules::{any, at_least, at_least_or_none, checked, section, within};
use super::server_url::without_stray_at;
use super::{
    AlertsConfig, Config, HttpConfig, LedgerConfig, OtelConfig, RespConfig, RetentionConfig,
    Secret, SortedSetConfig, TimerKind, WheelConfig,
};
use super::{
    ClusterUrl, SentinelUrl, access, cluster_url, import, on_cluster, recurring, retry, routes,
    sentinel_url,
};
use crate::task::KEY_BYTES_MAX;

const MILLISECOND: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

section! {
    /// `[redis]`
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct RedisConfig {
        /// URL with credentials; the password is redacted when shown.
        pub url: Secret = redis_url,
        /// Prefix of every key, as frameworks set it.
        pub key_prefix: String = checked(|prefix: &String| prefix.len() < KEY_BYTES_MAX, "fewer than 255 bytes"),
        /// Time limit for connecting.
        pub connect_timeout: Duration = at_least(MILLISECOND),
        /// Time limit for one answer.
        pub response_timeout: Duration = at_least(MILLISECOND),
        /// Tasks due later than this from now are not armed yet; `None`: all tasks are armed.
        pub arm_horizon: Option<Duration> = arm_horizon,
    }
}

section! {
    /// `[sentinel]`
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct SentinelConfig {
        /// Number of sentinel keys.
        pub count: u16 = within(1..=1000),
        /// Interval between their expiries.
        pub interval: Duration = at_least(100 * MILLISECOND),
    }
}

section! {
    /// `[nudge]`
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct NudgeConfig {
        /// Whether keys are nudged at their due millisecond.
        pub enabled: bool = any,
        /// How far ahead due times are read from the ledger.
        pub horizon: Duration = at_least(2 * SECOND),
    }
}

section! {
    /// `[ledger_poll]`
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct LedgerPollConfig {
        /// How often the ledger is asked for tasks that are due now and that no program has announced; `None`: only the
        /// look-ahead and the sweep find them.
        pub probe: Option<Duration> = at_least_or_none(MILLISECOND),
    }
}

section! {
    /// `[adopt]`
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct AdoptConfig {
        /// Whether bare keys become tasks, unless their route says otherwise.
        pub enabled: bool = any; live,
    }
}

section! {
    /// `[sweep]`
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct SweepConfig {
        /// Whether the sweep runs; switched off only to measure the other nets.
        pub enabled: bool = any,
        /// Interval between sweeps.
        pub interval: Duration = at_least(50 * MILLISECOND),
    }
}

section! {
    /// `[engine]`
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct EngineConfig {
        /// Maximum number of concurrent runs.
        pub concurrency: usize = within(1..=100_000),
        /// Length of a lease.
        pub lease: Duration = at_least(SECOND),
        /// Time limit for one run.
        pub timeout: Duration = at_least(MILLISECOND); live,
        /// How long a graceful shutdown waits for runs.
        pub drain_timeout: Duration = at_least(Duration::ZERO),
        /// Whether tasks that are overdue at the start are held for review. Applies to one start, and is also an option of
        /// the command line.
        pub hold_overdue: bool = any; live,
    }
}

section! {
    /// `[fleet]`
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct FleetConfig {
        /// Whether daemons divide the tasks between them and take turns at audits.
        pub share: bool = any,
    }
}

/// Reads all sections before it fails, so that all problems are reported.
pub(super) fn config(mut root: Reader, p: &mut Problems) -> Option<Config> {
    let timer: Option<TimerKind> = root.take("timer", p);
    let redis = RedisConfig::read(root.section("redis", p), p);
    let ledger = LedgerConfig::read(root.section("ledger", p), p);
    let sorted_set = SortedSetConfig::read(root.section("sorted_set", p), p);
    let wheel = WheelConfig::read(root.section("wheel", p), p);
    let sentinel = SentinelConfig::read(root.section("sentinel", p), p);
    let nudge = NudgeConfig::read(root.section("nudge", p), p);
    let ledger_poll = LedgerPollConfig::read(root.section("ledger_poll", p), p);
    let adopt = AdoptConfig::read(root.section("adopt", p), p);
    let sweep = SweepConfig::read(root.section("sweep", p), p);
    let engine = EngineConfig::read(root.section("engine", p), p);
    let fleet = FleetConfig::read(root.section("fleet", p), p);
    let retry = retry::retry(root.section("retry", p), p);
    let retention = RetentionConfig::read(root.section("retention", p), p);
    let mut http = root.section("http", p);
    let masks = access::masks(root.section("access", p), &mut http, p).unwrap_or_default();
    let http = HttpConfig::read(http, &masks, p);
    let key_prefix = redis.as_ref().map_or("", |redis| redis.key_prefix.as_str());
    let resp = RespConfig::read(root.section("resp", p), key_prefix, &masks, p);
    let alerts = AlertsConfig::read(root.section("alerts", p), p);
    let otel = OtelConfig::read(root.section("otel", p), p);
    #[cfg(feature = "rows")]
    let mut routes = super::delayed_sets::routes(&mut root, key_prefix, ledger.as_ref(), p);
    // A program that only creates tasks may read the file of a daemon.
    #[cfg(not(feature = "rows"))]
    let mut routes = Vec::from_iter(root.remove("delayed_sets").and(None));
    routes.extend(routes::routes(&mut root, retry.as_ref(), key_prefix, p));
    let recurring = recurring::recurring(&mut root, &routes, p);
    let import = import::import(&mut root, p);
    if let (Some(timer), Some(ledger)) = (timer, &ledger)
        && let Err(problem) = ledger.check_timer(timer)
    {
        p.0.extend(problem.problems);
    }
    root.done(p);
    let config = Config {
        timer: timer?,
        redis: redis?,
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
        http: http?,
        resp: resp?,
        alerts: alerts?,
        otel: otel?,
        routes,
        recurring,
        import,
    };
    on_cluster::check(&config, p);
    Some(config)
}

fn redis_url(section: &mut Reader, key: &str, p: &mut Problems) -> Option<Secret> {
    const SCHEMES: [&str; 4] = ["redis://", "rediss://", "unix://", "redis+unix://"];
    let is_redis = |url: &String| {
        SCHEMES.iter().any(|scheme| url.starts_with(scheme))
            || SentinelUrl::is_one(url)
            || ClusterUrl::is_one(url)
    };
    let expected = "redis://, rediss://, redis+sentinel://, redis+cluster:// or unix://";
    let url = section.checked(key, p, is_redis, expected);
    let url = without_stray_at(section, url, p)?;
    if SentinelUrl::is_one(&url) && SentinelUrl::parse(&url).is_none() {
        p.add(&section.at(key), sentinel_url::EXPECTED);
        return None;
    }
    if ClusterUrl::is_one(&url) && ClusterUrl::parse(&url).is_none() {
        p.add(&section.at(key), cluster_url::EXPECTED);
        return None;
    }
    Some(Secret::from(url))
}

/// A duration, or `"unlimited"`.
fn arm_horizon(section: &mut Reader, key: &str, p: &mut Problems) -> Option<Option<Duration>> {
    const LEAST: Duration = Duration::from_secs(60);
    let value: toml::Value = section.take(key, p)?;
    if value.as_str() == Some("unlimited") {
        return Some(None);
    }
    let span = value.try_into::<Span>().ok().map(|span| span.0);
    let horizon = span.filter(|span| *span >= LEAST);
    if horizon.is_none() {
        let expected = "expected \"unlimited\", or a duration of at least a minute, such as \"6h\"";
        p.add(&section.at(key), expected);
    }
    horizon.map(Some)
}
