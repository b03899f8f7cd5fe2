//! The configuration: `config/default.toml`, under a file, under the environment.
//!
//! Sections mirror modules. Unknown keys are refused, and *all* problems are reported at once, each
//! with the path of its key and what was expected.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use regex::Regex;
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, Error as _};
use toml::{Table, Value};

use crate::task::{Backoff, KEY_BYTES_MAX, RetryPolicy};

/// The defaults, as people read them.
pub const DEFAULT_TOML: &str = include_str!("../config/default.toml");

/// Where a configuration is looked for when none is named.
pub const SEARCH_PATHS: [&str; 2] = ["./config/lapsed.toml", "/etc/lapsed/lapsed.toml"];

const ENV_PREFIX: &str = "LAPSED__";

/// Everything that can be set.
#[derive(Debug, Clone)]
pub struct Config {
    /// Which timer.
    pub timer: TimerKind,
    /// `[redis]`
    pub redis: RedisConfig,
    /// `[ledger]`
    pub ledger: LedgerConfig,
    /// `[sentinel]`
    pub sentinel: SentinelConfig,
    /// `[nudge]`
    pub nudge: NudgeConfig,
    /// `[sweep]`
    pub sweep: SweepConfig,
    /// `[engine]`
    pub engine: EngineConfig,
    /// `[retry]`
    pub retry: RetryPolicy,
    /// `[http]`
    pub http: HttpConfig,
    /// `[[routes]]`, in order.
    pub routes: Vec<RouteConfig>,
}

/// Where signals come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TimerKind {
    /// Expiring Redis keys.
    KeyExpiry,
    /// The ledger alone: no Redis.
    LedgerPoll,
}

/// `[redis]`
#[derive(Debug, Clone)]
pub struct RedisConfig {
    /// With credentials: shown only with the password struck out.
    pub url: Secret,
    /// What a framework puts before every key.
    pub key_prefix: String,
    /// Bound on connecting.
    pub connect_timeout: Duration,
    /// Bound on one answer.
    pub response_timeout: Duration,
}

/// `[ledger]`
#[derive(Debug, Clone)]
pub struct LedgerConfig {
    /// With credentials: shown only with the password struck out.
    pub url: Secret,
    /// The table's name.
    pub table: String,
    /// Connections at most.
    pub max_connections: u32,
    /// Bound on one statement.
    pub statement_timeout: Duration,
}

/// `[sentinel]`
#[derive(Debug, Clone, Copy)]
pub struct SentinelConfig {
    /// How many.
    pub count: u16,
    /// How far apart they expire.
    pub interval: Duration,
}

/// `[nudge]`
#[derive(Debug, Clone, Copy)]
pub struct NudgeConfig {
    /// Whether keys are asked for at their due millisecond.
    pub enabled: bool,
    /// How far ahead due times are known.
    pub horizon: Duration,
}

/// `[sweep]`
#[derive(Debug, Clone, Copy)]
pub struct SweepConfig {
    /// How often.
    pub interval: Duration,
}

/// `[engine]`
#[derive(Debug, Clone, Copy)]
pub struct EngineConfig {
    /// Runs at a time.
    pub concurrency: usize,
    /// Length of a lease.
    pub lease: Duration,
    /// Bound on one run.
    pub timeout: Duration,
    /// How long a graceful stop waits for runs.
    pub drain_timeout: Duration,
}

/// `[http]`
#[derive(Debug, Clone)]
pub struct HttpConfig {
    /// `None`: no HTTP.
    pub listen: Option<std::net::SocketAddr>,
    /// Bearer tokens.
    pub tokens: Vec<Secret>,
}

/// One of `[[routes]]`.
#[derive(Debug, Clone)]
pub struct RouteConfig {
    /// Which keys.
    pub matches: Regex,
    /// What runs them.
    pub target: TargetConfig,
    /// Bound on one run.
    pub timeout: Option<Duration>,
    /// Over `[retry]`.
    pub retry: Option<RetryPolicy>,
}

/// What a route runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TargetConfig {
    /// A program.
    Exec(ExecConfig),
    /// A log line.
    Log,
}

/// `exec = [..]` and the keys beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecConfig {
    /// Program and arguments, with placeholders.
    pub argv: Vec<String>,
    /// Whether an argument of a task may begin with `-`.
    pub allow_dash: bool,
    /// Names of environment variables that are handed on.
    pub env: Vec<String>,
}

/// Environment variables that `exec` hands on unless the route has its own list.
pub const EXEC_ENV: [&str; 4] = ["PATH", "HOME", "LANG", "TZ"];

/// A text that must not be shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The text itself, for whoever needs it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for Secret {
    /// A URL without its password, or nothing at all.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((scheme, rest)) = self.0.split_once("://") else {
            return f.write_str("[redacted]");
        };
        match rest.rsplit_once('@') {
            Some((user_info, host)) => {
                let user = user_info.split(':').next().unwrap_or_default();
                write!(f, "{scheme}://{user}:[redacted]@{}", without_password(host))
            }
            None => write!(f, "{scheme}://{}", without_password(rest)),
        }
    }
}

/// `unix:///path?pass=x` has its password behind the question mark.
fn without_password(rest: &str) -> String {
    match rest.split_once('?') {
        Some((path, query)) if query.contains("pass") => format!("{path}?[redacted]"),
        _ => rest.to_owned(),
    }
}

impl Config {
    /// Reads the configuration as the program does: the file named, else `LAPSED_CONFIG`, else the
    /// first of [`SEARCH_PATHS`] that exists, over the defaults; then the environment over that.
    ///
    /// # Errors
    /// [`ConfigError`] has every problem found.
    pub fn load(file: Option<&Path>) -> Result<Self, ConfigError> {
        let env = std::env::vars().collect();
        let path = file
            .map(Path::to_owned)
            .or_else(|| std::env::var_os("LAPSED_CONFIG").map(PathBuf::from));
        let path = path.or_else(|| {
            SEARCH_PATHS
                .iter()
                .map(PathBuf::from)
                .find(|path| path.exists())
        });
        let text = match &path {
            None => String::new(),
            Some(path) => std::fs::read_to_string(path).map_err(|error| {
                ConfigError::one("", format!("cannot read `{}`: {error}", path.display()))
            })?,
        };
        Self::from_toml_and_env(&text, &env)
    }

    /// Reads a configuration from TOML alone, over the defaults.
    ///
    /// ```
    /// let config = lapsed::Config::from_toml(r#"engine.lease = "5s""#)?;
    /// assert_eq!(config.engine.lease.as_secs(), 5);
    /// # Ok::<(), lapsed::ConfigError>(())
    /// ```
    ///
    /// # Errors
    /// [`ConfigError`] has every problem found.
    pub fn from_toml(text: &str) -> Result<Self, ConfigError> {
        Self::from_toml_and_env(text, &BTreeMap::new())
    }

    /// Reads a configuration from TOML and an environment, over the defaults.
    ///
    /// # Errors
    /// [`ConfigError`] has every problem found.
    pub fn from_toml_and_env(
        text: &str,
        env: &BTreeMap<String, String>,
    ) -> Result<Self, ConfigError> {
        let defaults: Table = DEFAULT_TOML.parse().expect("a test reads the defaults");
        let mut table = defaults.clone();
        let file: Table = text
            .parse()
            .map_err(|error: toml::de::Error| ConfigError::one("", error.to_string()))?;
        let mut problems = Problems::default();
        overlay_file(&mut table, file);
        overlay_env(&mut table, &defaults, env, &mut problems);
        let config = Reader {
            table,
            path: String::new(),
        }
        .config(&mut problems);
        match config {
            Some(config) if problems.0.is_empty() => Ok(config),
            _ => Err(ConfigError {
                problems: problems.0,
            }),
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self::from_toml("").expect("a test reads the defaults")
    }
}

/// Sections are merged key by key; everything else replaces.
fn overlay_file(table: &mut Table, file: Table) {
    for (key, value) in file {
        match (table.get_mut(&key), value) {
            (Some(Value::Table(below)), Value::Table(above)) => overlay_file(below, above),
            (_, value) => {
                table.insert(key, value);
            }
        }
    }
}

/// `LAPSED__SECTION__KEY=value`, or `LAPSED__SECTION__KEY_FILE=path of a file that holds the value`.
/// The type of the default decides how the text is read: a string is taken as it is.
fn overlay_env(
    table: &mut Table,
    defaults: &Table,
    env: &BTreeMap<String, String>,
    problems: &mut Problems,
) {
    for (name, value) in env {
        let Some(path) = name.strip_prefix(ENV_PREFIX) else {
            continue;
        };
        let path = path.to_lowercase().replace("__", ".");
        let direct = lookup(defaults, &path);
        let (path, default, text) = match (direct, path.strip_suffix("_file")) {
            (Some(default), _) => (path.as_str(), default, value.clone()),
            (None, Some(stem)) if lookup(defaults, stem).is_some() => {
                match std::fs::read_to_string(value) {
                    Ok(text) => (
                        stem,
                        lookup(defaults, stem).expect("just found"),
                        text.trim_end().to_owned(),
                    ),
                    Err(error) => {
                        problems.add(name, format!("cannot read `{value}`: {error}"));
                        continue;
                    }
                }
            }
            _ => {
                problems.add(name, "is not the name of a setting".to_owned());
                continue;
            }
        };
        match read_as(default, &text) {
            Ok(value) => insert(table, path, value),
            Err(expected) => problems.add(name, format!("expected {expected}")),
        }
    }
}

fn lookup<'a>(table: &'a Table, path: &str) -> Option<&'a Value> {
    let (head, rest) = path.split_once('.').unwrap_or((path, ""));
    match (table.get(head)?, rest) {
        (Value::Table(table), rest) if !rest.is_empty() => lookup(table, rest),
        (Value::Table(_), _) => None,
        (value, "") => Some(value),
        _ => None,
    }
}

fn insert(table: &mut Table, path: &str, value: Value) {
    match path.split_once('.') {
        None => {
            table.insert(path.to_owned(), value);
        }
        Some((head, rest)) => {
            if let Some(Value::Table(table)) = table.get_mut(head) {
                insert(table, rest, value);
            }
        }
    }
}

fn read_as(default: &Value, text: &str) -> Result<Value, &'static str> {
    match default {
        Value::String(_) => Ok(Value::String(text.to_owned())),
        Value::Integer(_) => text
            .parse()
            .map(Value::Integer)
            .map_err(|_| "a whole number"),
        Value::Float(_) => text.parse().map(Value::Float).map_err(|_| "a number"),
        Value::Boolean(_) => text
            .parse()
            .map(Value::Boolean)
            .map_err(|_| "`true` or `false`"),
        Value::Array(_) => {
            let table: Result<Table, _> = format!("value = {text}").parse();
            match table.ok().and_then(|mut table| table.remove("value")) {
                Some(value @ Value::Array(_)) => Ok(value),
                _ => Err("a TOML array such as `[\"a\", \"b\"]`"),
            }
        }
        Value::Datetime(_) | Value::Table(_) => {
            Err("nothing: this cannot be set from the environment")
        }
    }
}

/// Takes keys out of a table one by one; what is left at the end is unknown.
struct Reader {
    table: Table,
    path: String,
}

#[derive(Default)]
struct Problems(Vec<Problem>);

impl Problems {
    fn add(&mut self, path: &str, message: String) {
        self.0.push(Problem {
            path: path.to_owned(),
            message,
        });
    }
}

impl Reader {
    fn at(&self, key: &str) -> String {
        if self.path.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.path)
        }
    }

    fn optional<T: DeserializeOwned>(&mut self, key: &str, problems: &mut Problems) -> Option<T> {
        let value = self.table.remove(key)?;
        value
            .try_into()
            .map_err(|error: toml::de::Error| {
                problems.add(&self.at(key), error.message().to_owned())
            })
            .ok()
    }

    fn take<T: DeserializeOwned>(&mut self, key: &str, problems: &mut Problems) -> Option<T> {
        if !self.table.contains_key(key) {
            problems.add(&self.at(key), "is missing".to_owned());
        }
        self.optional(key, problems)
    }

    /// As `take`, with a condition that says what it expects.
    fn checked<T: DeserializeOwned>(
        &mut self,
        key: &str,
        problems: &mut Problems,
        holds: impl FnOnce(&T) -> bool,
        expected: &str,
    ) -> Option<T> {
        let value = self.take(key, problems)?;
        if holds(&value) {
            return Some(value);
        }
        problems.add(&self.at(key), format!("expected {expected}"));
        None
    }

    fn duration(
        &mut self,
        key: &str,
        problems: &mut Problems,
        least: Duration,
    ) -> Option<Duration> {
        let expected = format!("at least {} ms", least.as_millis());
        Some(
            self.checked::<Span>(key, problems, |span| span.0 >= least, &expected)?
                .0,
        )
    }

    fn section(&mut self, key: &str, problems: &mut Problems) -> Self {
        let path = self.at(key);
        let table = match self.table.remove(key) {
            Some(Value::Table(table)) => table,
            Some(_) => {
                problems.add(&path, "expected a section".to_owned());
                Table::new()
            }
            None => Table::new(),
        };
        Self { table, path }
    }

    fn done(self, problems: &mut Problems) {
        for key in self.table.keys() {
            problems.add(&self.at(key), "is not the name of a setting".to_owned());
        }
    }

    /// Reads everything before it gives up on anything, so that all problems are found.
    fn config(mut self, p: &mut Problems) -> Option<Config> {
        let timer = self.take("timer", p);
        let redis = self.section("redis", p).redis(p);
        let ledger = self.section("ledger", p).ledger(p);
        let sentinel = self.section("sentinel", p).sentinel(p);
        let nudge = self.section("nudge", p).nudge(p);
        self.section("adopt", p).adopt(p);
        let sweep = self.section("sweep", p).sweep(p);
        let engine = self.section("engine", p).engine(p);
        let retry = self.section("retry", p).ladder(p);
        let http = self.section("http", p).http(p);
        let routes = self.routes(retry.as_ref(), p);
        self.done(p);
        Some(Config {
            timer: timer?,
            redis: redis?,
            ledger: ledger?,
            sentinel: sentinel?,
            nudge: nudge?,
            sweep: sweep?,
            engine: engine?,
            retry: retry?,
            http: http?,
            routes,
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
        let key_prefix = self.checked(
            "key_prefix",
            p,
            |prefix: &String| prefix.len() < KEY_BYTES_MAX,
            "fewer than 255 bytes",
        );
        let connect_timeout = self.duration("connect_timeout", p, Duration::from_millis(1));
        let response_timeout = self.duration("response_timeout", p, Duration::from_millis(1));
        self.done(p);
        Some(RedisConfig {
            url: Secret(url?),
            key_prefix: key_prefix?,
            connect_timeout: connect_timeout?,
            response_timeout: response_timeout?,
        })
    }

    fn ledger(mut self, p: &mut Problems) -> Option<LedgerConfig> {
        let schemes = ["mysql://", "mariadb://"];
        let url = self.checked(
            "url",
            p,
            |url: &String| schemes.iter().any(|s| url.starts_with(s)),
            "mysql://user:password@host:port/database",
        );
        let table = self.checked(
            "table",
            p,
            |table: &String| crate::ledger::migrate::Table::new(table).is_ok(),
            "1 to 55 letters, digits or `_`",
        );
        let max_connections = self.checked(
            "max_connections",
            p,
            |n| (2..=1000).contains(n),
            "2 to 1000",
        );
        let statement_timeout = self.duration("statement_timeout", p, Duration::from_millis(100));
        self.done(p);
        Some(LedgerConfig {
            url: Secret(url?),
            table: table?,
            max_connections: max_connections?,
            statement_timeout: statement_timeout?,
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

    fn adopt(mut self, p: &mut Problems) {
        self.checked(
            "enabled",
            p,
            |enabled: &bool| !enabled,
            "`false`: this version does not take over keys without a row",
        );
        self.done(p);
    }

    fn sweep(mut self, p: &mut Problems) -> Option<SweepConfig> {
        let interval = self.duration("interval", p, Duration::from_millis(50));
        self.done(p);
        Some(SweepConfig {
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
        self.done(p);
        Some(EngineConfig {
            concurrency: concurrency?,
            lease: lease?,
            timeout: timeout?,
            drain_timeout: drain_timeout?,
        })
    }

    /// `[retry]`
    fn ladder(mut self, p: &mut Problems) -> Option<RetryPolicy> {
        let rungs: Option<Vec<Span>> = self.checked(
            "ladder",
            p,
            |rungs: &Vec<Span>| !rungs.is_empty(),
            "at least one rung",
        );
        let max_attempts = self.checked("max_attempts", p, |n| *n >= 1, "at least 1");
        let jitter = self.checked("jitter", p, |jitter| (0.0..=1.0).contains(jitter), "0 to 1");
        self.done(p);
        let backoff = Backoff::Ladder(rungs?.into_iter().map(|span| span.0).collect());
        Some(RetryPolicy {
            backoff,
            max_attempts: max_attempts?,
            jitter: jitter?,
        })
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
        let tokens = tokens?.into_iter().map(Secret).collect();
        Some(HttpConfig {
            listen: listen?,
            tokens,
        })
    }

    fn routes(&mut self, retry: Option<&RetryPolicy>, p: &mut Problems) -> Vec<RouteConfig> {
        let tables: Vec<Table> = self.optional("routes", p).unwrap_or_default();
        let readers = tables.into_iter().enumerate().map(|(index, table)| Self {
            table,
            path: format!("routes[{index}]"),
        });
        readers
            .filter_map(|reader| reader.route(retry, p))
            .collect()
    }

    fn route(mut self, retry: Option<&RetryPolicy>, p: &mut Problems) -> Option<RouteConfig> {
        let pattern: Option<String> = self.take("match", p);
        let matches = pattern.and_then(|pattern| match Regex::new(&pattern) {
            Ok(regex) => Some(regex),
            Err(error) => {
                p.add(
                    &self.at("match"),
                    format!("is not a regular expression: {error}"),
                );
                None
            }
        });
        let timeout = self
            .table
            .contains_key("timeout")
            .then(|| self.duration("timeout", p, Duration::from_millis(1)));
        let retry = match self.table.contains_key("retry") {
            true => self.section("retry", p).route_retry(retry, p).map(Some),
            false => Some(None),
        };
        let target = self.target(p);
        self.done(p);
        Some(RouteConfig {
            matches: matches?,
            target: target?,
            timeout: timeout.flatten(),
            retry: retry?,
        })
    }

    fn target(&mut self, p: &mut Problems) -> Option<TargetConfig> {
        let has = |key| self.table.contains_key(key);
        match (has("exec"), has("log")) {
            (true, false) => {
                let argv = self.checked(
                    "exec",
                    p,
                    |argv: &Vec<String>| {
                        argv.first()
                            .is_some_and(|program| !program.is_empty() && !program.contains('{'))
                    },
                    "a program and its arguments, the program without placeholder",
                );
                let allow_dash = self.optional("allow_dash", p).unwrap_or(false);
                let env = self
                    .optional("env", p)
                    .unwrap_or_else(|| EXEC_ENV.map(str::to_owned).to_vec());
                let argv = argv?;
                if let Some(arg) = argv
                    .iter()
                    .find(|arg| !crate::handler::exec::is_template(arg))
                {
                    p.add(&self.at("exec"), format!("`{arg}` holds no whole placeholder, expected plain text or one of {{key}} {{class}} {{method}} {{args}} {{id}} as an argument of its own"));
                    return None;
                }
                Some(TargetConfig::Exec(ExecConfig {
                    argv,
                    allow_dash,
                    env,
                }))
            }
            (false, true) => {
                self.section("log", p).done(p);
                Some(TargetConfig::Log)
            }
            (false, false) => {
                p.add(
                    &self.path,
                    "has no target, expected `exec = [..]` or `log = {}`".to_owned(),
                );
                None
            }
            (true, true) => {
                p.add(
                    &self.path,
                    "has two targets, expected one of `exec` and `log`".to_owned(),
                );
                None
            }
        }
    }

    /// `retry = { max_attempts = 5, backoff = "exponential", base = "2s", max = "1h" }`; what is not
    /// said is taken from `[retry]`.
    fn route_retry(mut self, below: Option<&RetryPolicy>, p: &mut Problems) -> Option<RetryPolicy> {
        let below = below.cloned().unwrap_or_default();
        let max_attempts = self
            .optional("max_attempts", p)
            .unwrap_or(below.max_attempts);
        let jitter = self.optional("jitter", p).unwrap_or(below.jitter);
        let kind: Option<String> = self.optional("backoff", p);
        let backoff = match kind.as_deref() {
            None | Some("ladder") if self.table.contains_key("ladder") => {
                let rungs: Vec<Span> = self.checked(
                    "ladder",
                    p,
                    |rungs: &Vec<Span>| !rungs.is_empty(),
                    "at least one rung",
                )?;
                Some(Backoff::Ladder(
                    rungs.into_iter().map(|span| span.0).collect(),
                ))
            }
            None | Some("ladder") => Some(below.backoff),
            Some("fixed") => self
                .duration("delay", p, Duration::ZERO)
                .map(Backoff::Fixed),
            Some("exponential") => {
                let base = self.duration("base", p, Duration::from_millis(1));
                let max = self.duration("max", p, Duration::from_millis(1));
                base.zip(max)
                    .map(|(base, max)| Backoff::Exponential { base, max })
            }
            Some(other) => {
                p.add(
                    &self.at("backoff"),
                    format!("`{other}` is none of `ladder`, `exponential`, `fixed`"),
                );
                None
            }
        };
        if max_attempts == 0 {
            p.add(&self.at("max_attempts"), "expected at least 1".to_owned());
        }
        if !(0.0..=1.0).contains(&jitter) {
            p.add(&self.at("jitter"), "expected 0 to 1".to_owned());
        }
        self.done(p);
        Some(RetryPolicy {
            backoff: backoff?,
            max_attempts,
            jitter,
        })
    }
}

/// A duration written as text with its unit.
#[derive(Debug, Clone, Copy)]
struct Span(Duration);

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        const EXPECTED: &str =
            "expected a duration with a unit, such as \"1500ms\", \"30s\" or \"15m\"";
        let value = Value::deserialize(deserializer)?;
        let text = value.as_str().ok_or_else(|| D::Error::custom(EXPECTED))?;
        let span: jiff::SignedDuration = text.parse().map_err(|_| D::Error::custom(EXPECTED))?;
        Duration::try_from(span)
            .map(Self)
            .map_err(|_| D::Error::custom("expected a duration that is not negative"))
    }
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Path of the key, or name of the environment variable; empty for the file as a whole.
    pub path: String,
    /// What is wrong, and what was expected.
    pub message: String,
}

/// Everything that is wrong with a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// At least one.
    pub problems: Vec<Problem>,
}

impl ConfigError {
    pub(crate) fn one(path: &str, message: String) -> Self {
        Self {
            problems: vec![Problem {
                path: path.to_owned(),
                message,
            }],
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Problem { path, message }) in self.problems.iter().enumerate() {
            let line_break = if index == 0 { "" } else { "\n" };
            match path.as_str() {
                "" => write!(f, "{line_break}{message}")?,
                path => write!(f, "{line_break}`{path}`: {message}")?,
            }
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> Vec<String> {
        let error = Config::from_toml(text).unwrap_err();
        error.to_string().lines().map(str::to_owned).collect()
    }

    fn with_env(env: &[(&str, &str)]) -> Result<Config, ConfigError> {
        let env = env
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect();
        Config::from_toml_and_env("", &env)
    }

    #[test]
    fn the_embedded_file_is_the_defaults() {
        let config = Config::default();
        assert_eq!(config.retry, RetryPolicy::default());
        assert_eq!(config.engine.concurrency, 256);
        assert_eq!(config.sentinel.interval, Duration::from_secs(900));
        assert!(config.routes.is_empty());
    }

    #[test]
    fn all_problems_are_reported_at_once() {
        let found = problems(
            "engin = 1\n[engine]\nconcurrency = 0\nlease = 30\nspeed = 9\n[redis]\nurl = \"http://x\"\n",
        );
        assert_eq!(
            found,
            [
                "`redis.url`: expected redis://, rediss:// or unix://",
                "`engine.concurrency`: expected 1 to 100000",
                "`engine.lease`: expected a duration with a unit, such as \"1500ms\", \"30s\" or \"15m\"",
                "`engine.speed`: is not the name of a setting",
                "`engin`: is not the name of a setting",
            ]
        );
    }

    #[test]
    fn the_environment_stands_over_the_file_and_never_guesses_types() {
        let config = with_env(&[
            ("LAPSED__REDIS__KEY_PREFIX", "007"),
            ("LAPSED__ENGINE__LEASE", "7s"),
            ("LAPSED__NUDGE__ENABLED", "false"),
        ])
        .unwrap();
        assert_eq!(config.redis.key_prefix, "007");
        assert_eq!(config.engine.lease, Duration::from_secs(7));
        assert!(!config.nudge.enabled);
    }

    #[test]
    fn an_unknown_variable_is_refused() {
        let error = with_env(&[("LAPSED__REDIS__URI", "x")]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "`LAPSED__REDIS__URI`: is not the name of a setting"
        );
    }

    #[test]
    fn a_secret_may_come_from_a_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "mysql://app:s3cret@db/app\n").unwrap();
        let config =
            with_env(&[("LAPSED__LEDGER__URL_FILE", file.path().to_str().unwrap())]).unwrap();
        assert_eq!(config.ledger.url.expose(), "mysql://app:s3cret@db/app");
        assert_eq!(
            config.ledger.url.to_string(),
            "mysql://app:[redacted]@db/app"
        );
        assert!(!format!("{config:?}").contains("s3cret"));
    }

    #[test]
    fn a_public_address_needs_a_token() {
        assert_eq!(
            problems("http.listen = \"0.0.0.0:8787\""),
            [
                "`http.tokens`: expected at least one, because `0.0.0.0:8787` is not a loopback address"
            ]
        );
    }

    #[test]
    fn routes_are_read_in_order() {
        let text = r#"
            [[routes]]
            match = "^Auction@end(@|$)"
            exec = ["php", "task.php", "{class}", "{method}", "{args}"]
            timeout = "30s"
            retry = { max_attempts = 5, backoff = "exponential", base = "2s", max = "1h" }
            [[routes]]
            match = "."
            log = {}
        "#;
        let routes = Config::from_toml(text).unwrap().routes;
        assert_eq!(routes[0].timeout, Some(Duration::from_secs(30)));
        assert_eq!(routes[0].retry.as_ref().unwrap().max_attempts, 5);
        assert_eq!(routes[1].target, TargetConfig::Log);
    }

    #[test]
    fn broken_routes_say_what_was_expected() {
        let found = problems(
            "[[routes]]\nmatch = \"(\"\n[[routes]]\nmatch = \"x\"\nexec = [\"sh\", \"-c\", \"run {key}\"]\nlogg = 1\n",
        );
        assert!(
            found[0].starts_with("`routes[0].match`: is not a regular expression"),
            "{found:?}"
        );
        assert!(
            found
                .iter()
                .any(|p| p == "`routes[0]`: has no target, expected `exec = [..]` or `log = {}`"),
            "{found:?}"
        );
        assert!(
            found
                .iter()
                .any(|p| p.starts_with("`routes[1].exec`: `run {key}` holds no whole placeholder")),
            "{found:?}"
        );
        assert!(
            found
                .iter()
                .any(|p| p == "`routes[1].logg`: is not the name of a setting"),
            "{found:?}"
        );
    }
}
