//! Configuration sections. Each is read completely, so that all problems are reported.

use std::time::Duration;

use super::reader::{Problems, Reader, Span};
use super::{Config, Secret};
use crate::task::{KEY_BYTES_MAX, TableName};

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

/// `[ledger]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerConfig {
    /// URL with credentials; the password is redacted when shown.
    pub url: Secret,
    /// The table's name.
    pub table: String,
    /// Maximum number of connections.
    pub max_connections: u32,
    /// Time limit for one statement.
    pub statement_timeout: Duration,
    /// Time limit for statements of `list`, `stats`, `redrive`, `discard`, `prune` and `sweep`.
    pub command_timeout: Duration,
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

/// `[http]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpConfig {
    /// Address to listen on; `None`: HTTP is off.
    pub listen: Option<std::net::SocketAddr>,
    /// Bearer tokens.
    pub tokens: Vec<Secret>,
}

/// How to write reserved characters of a user or password in a URL.
pub(crate) const ENCODE: &str = "in a user or password write `@` as %40, `#` as %23, `/` as %2F, `?` as %3F, `:` as %3A and `%` as %25";

impl Reader {
    /// Reads all sections before it fails, so that all problems are reported.
    pub(super) fn config(mut self, p: &mut Problems) -> Option<Config> {
        let timer = self.take("timer", p);
        let redis = self.section("redis", p).redis(p);
        let ledger = self.section("ledger", p).ledger(p);
        let sentinel = self.section("sentinel", p).sentinel(p);
        let nudge = self.section("nudge", p).nudge(p);
        let adopt = self.section("adopt", p).adopt(p);
        let sweep = self.section("sweep", p).sweep(p);
        let engine = self.section("engine", p).engine(p);
        let fleet = self.section("fleet", p).fleet(p);
        let retry = self.section("retry", p).retry(p);
        let retention = self.section("retention", p).retention(p);
        let http = self.section("http", p).http(p);
        let key_prefix = redis.as_ref().map_or("", |redis| redis.key_prefix.as_str());
        let routes = self.routes(retry.as_ref(), key_prefix, p);
        let recurring = self.recurring(&routes, p);
        self.done(p);
        Some(Config {
            timer: timer?,
            redis: redis?,
            ledger: ledger?,
            sentinel: sentinel?,
            nudge: nudge?,
            adopt: adopt?,
            sweep: sweep?,
            engine: engine?,
            fleet: fleet?,
            retry: retry?.policy(),
            retention: retention?,
            http: http?,
            routes,
            recurring,
        })
    }

    fn redis(mut self, p: &mut Problems) -> Option<RedisConfig> {
        let schemes = ["redis://", "rediss://", "unix://", "redis+unix://"];
        let url = self.checked(
            "url",
            p,
            |url: &String| schemes.iter().any(|s| url.starts_with(s)),
            "redis://, rediss:// or unix://",
        );
        let url = self.without_stray_at(url, p);
        let key_prefix = self.checked(
            "key_prefix",
            p,
            |prefix: &String| prefix.len() < KEY_BYTES_MAX,
            "fewer than 255 bytes",
        );
        let connect_timeout = self.duration("connect_timeout", p, Duration::from_millis(1));
        let response_timeout = self.duration("response_timeout", p, Duration::from_millis(1));
        let arm_horizon = self.arm_horizon(p);
        self.done(p);
        Some(RedisConfig {
            url: Secret::from(url?),
            key_prefix: key_prefix?,
            connect_timeout: connect_timeout?,
            response_timeout: response_timeout?,
            arm_horizon: arm_horizon?,
        })
    }

    /// Refuses a URL with an unencoded `/` or `#` in its password: the password would end there and another server
    /// would be contacted.
    fn without_stray_at(&self, url: Option<String>, p: &mut Problems) -> Option<String> {
        let url = url?;
        let (scheme, rest) = url.split_once("://")?;
        let behind_host = rest.find(['/', '?', '#']).map_or("", |end| &rest[end..]);
        // `@` is allowed in a query: `?ssl-ca=/a@b.pem`.
        let query = behind_host.find('?').filter(|_| !behind_host.contains('#'));
        let path = query.map_or(behind_host, |query| &behind_host[..query]);
        if scheme.contains("unix") || !path.contains('@') {
            return Some(url);
        }
        p.add(
            &self.at("url"),
            format!("has an `@` behind the host: {ENCODE}"),
        );
        None
    }

    /// A duration, or none.
    fn arm_horizon(&mut self, p: &mut Problems) -> Option<Option<Duration>> {
        const LEAST: Duration = Duration::from_secs(60);
        let value: toml::Value = self.take("arm_horizon", p)?;
        if value.as_str() == Some("unlimited") {
            return Some(None);
        }
        let span = value.try_into::<Span>().ok().map(|span| span.0);
        let horizon = span.filter(|span| *span >= LEAST);
        if horizon.is_none() {
            let expected =
                "expected \"unlimited\", or a duration of at least a minute, such as \"6h\"";
            p.add(&self.at("arm_horizon"), expected.to_owned());
        }
        horizon.map(Some)
    }

    fn ledger(mut self, p: &mut Problems) -> Option<LedgerConfig> {
        let schemes = ["mysql://", "mariadb://"];
        let url = self.checked(
            "url",
            p,
            |url: &String| schemes.iter().any(|s| url.starts_with(s)),
            "mysql://user:password@host:port/database",
        );
        let url = self.without_stray_at(url, p);
        let table = self.checked(
            "table",
            p,
            |table: &String| TableName::new(table).is_ok(),
            "1 to 55 letters, digits or `_`",
        );
        let max_connections = self.checked(
            "max_connections",
            p,
            |n| (2..=1000).contains(n),
            "2 to 1000",
        );
        let statement_timeout = self.duration("statement_timeout", p, Duration::from_millis(100));
        let command_timeout = self.duration("command_timeout", p, Duration::from_millis(100));
        self.done(p);
        Some(LedgerConfig {
            url: Secret::from(url?),
            table: table?,
            max_connections: max_connections?,
            statement_timeout: statement_timeout?,
            command_timeout: command_timeout?,
        })
    }

    fn sentinel(mut self, p: &mut Problems) -> Option<SentinelConfig> {
        let count = self.checked("count", p, |n| (1..=1000).contains(n), "1 to 1000");
        let interval = self.duration("interval", p, Duration::from_millis(100));
        self.done(p);
        Some(SentinelConfig {
            count: count?,
            interval: interval?,
        })
    }

    fn nudge(mut self, p: &mut Problems) -> Option<NudgeConfig> {
        let enabled = self.take("enabled", p);
        let horizon = self.duration("horizon", p, Duration::from_secs(2));
        self.done(p);
        Some(NudgeConfig {
            enabled: enabled?,
            horizon: horizon?,
        })
    }

    fn adopt(mut self, p: &mut Problems) -> Option<AdoptConfig> {
        let enabled = self.take("enabled", p);
        self.done(p);
        Some(AdoptConfig { enabled: enabled? })
    }

    fn sweep(mut self, p: &mut Problems) -> Option<SweepConfig> {
        let enabled = self.take("enabled", p);
        let interval = self.duration("interval", p, Duration::from_millis(50));
        self.done(p);
        Some(SweepConfig {
            enabled: enabled?,
            interval: interval?,
        })
    }

    fn engine(mut self, p: &mut Problems) -> Option<EngineConfig> {
        let concurrency = self.checked(
            "concurrency",
            p,
            |n| (1..=100_000).contains(n),
            "1 to 100000",
        );
        let lease = self.duration("lease", p, Duration::from_secs(1));
        let timeout = self.duration("timeout", p, Duration::from_millis(1));
        let drain_timeout = self.duration("drain_timeout", p, Duration::ZERO);
        let hold_overdue = self.take("hold_overdue", p);
        self.done(p);
        Some(EngineConfig {
            concurrency: concurrency?,
            lease: lease?,
            timeout: timeout?,
            drain_timeout: drain_timeout?,
            hold_overdue: hold_overdue?,
        })
    }

    fn fleet(mut self, p: &mut Problems) -> Option<FleetConfig> {
        let share = self.take("share", p);
        self.done(p);
        Some(FleetConfig { share: share? })
    }

    fn http(mut self, p: &mut Problems) -> Option<HttpConfig> {
        let text: Option<String> = self.take("listen", p);
        let tokens: Option<Vec<String>> = self.take("tokens", p);
        let listen = text.and_then(|text| match text.as_str() {
            "" => Some(None),
            address => match address.parse::<std::net::SocketAddr>() {
                Ok(address) => Some(Some(address)),
                Err(_) => {
                    p.add(
                        &self.at("listen"),
                        format!("`{address}` is not an address, expected `127.0.0.1:8787` or \"\""),
                    );
                    None
                }
            },
        });
        let (listen, tokens) = (listen, tokens);
        if let (Some(Some(address)), Some(tokens)) = (&listen, &tokens)
            && !address.ip().is_loopback()
            && tokens.is_empty()
        {
            p.add(
                &self.at("tokens"),
                format!("expected at least one, because `{address}` is not a loopback address"),
            );
        }
        self.done(p);
        let tokens = tokens?.into_iter().map(Secret::from).collect();
        Some(HttpConfig {
            listen: listen?,
            tokens,
        })
    }
}
