//! The configuration: `config/default.toml`, under a file, under the environment.
//!
//! Sections mirror modules. Unknown keys are refused, and *all* problems are reported at once, each
//! with the path of its key and what was expected.

mod delivery;
mod error;
mod headers;
mod limits;
mod overlay;
mod reach;
mod reader;
mod recurring;
mod reload;
mod retention;
mod retry;
mod routes;
mod secret;
mod sections;
mod signing_key;
mod url_template;
mod webhook;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use regex::Regex;
use serde::Deserialize;
use toml::Table;

use self::overlay::{overlay_env, overlay_file};
use self::reader::{Problems, Reader};
use crate::task::{Limits, RetryPolicy};

/// The defaults, as people read them.
pub const DEFAULT_TOML: &str = include_str!("../../config/default.toml");

/// Where a configuration is looked for when none is named.
pub const SEARCH_PATHS: [&str; 2] = ["./config/lapsed.toml", "/etc/lapsed/lapsed.toml"];

pub use self::delivery::{DeliveryConfig, NameTemplate, Place};
pub use self::error::{ConfigError, Problem};
pub use self::reach::Reach;
pub use self::recurring::RecurringConfig;
pub use self::secret::Secret;
pub use self::signing_key::SigningKey;
pub use self::url_template::UrlTemplate;
pub use self::webhook::WebhookConfig;

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
    /// `[adopt]`
    pub adopt: AdoptConfig,
    /// `[sweep]`
    pub sweep: SweepConfig,
    /// `[engine]`
    pub engine: EngineConfig,
    /// `[fleet]`
    pub fleet: FleetConfig,
    /// `[retry]`
    pub retry: RetryPolicy,
    /// `[retention]`
    pub retention: RetentionConfig,
    /// `[http]`
    pub http: HttpConfig,
    /// `[[routes]]`, in order.
    pub routes: Vec<RouteConfig>,
    /// `[[recurring]]`
    pub recurring: Vec<RecurringConfig>,
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisConfig {
    /// With credentials: shown only with the password struck out.
    pub url: Secret,
    /// What a framework puts before every key.
    pub key_prefix: String,
    /// Bound on connecting.
    pub connect_timeout: Duration,
    /// Bound on one answer.
    pub response_timeout: Duration,
    /// Tasks due later than this from now have no key yet; `None`: all have one.
    pub arm_horizon: Option<Duration>,
}

/// `[ledger]`
#[derive(Debug, Clone, PartialEq, Eq)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SentinelConfig {
    /// How many.
    pub count: u16,
    /// How far apart they expire.
    pub interval: Duration,
}

/// `[nudge]`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NudgeConfig {
    /// Whether keys are asked for at their due millisecond.
    pub enabled: bool,
    /// How far ahead due times are known.
    pub horizon: Duration,
}

/// `[adopt]`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdoptConfig {
    /// Whether a key that some program armed becomes a task, unless its route says otherwise.
    pub enabled: bool,
}

/// `[sweep]`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SweepConfig {
    /// Off only to measure what the other nets catch.
    pub enabled: bool,
    /// How often.
    pub interval: Duration,
}

/// `[engine]`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EngineConfig {
    /// Runs at a time.
    pub concurrency: usize,
    /// Length of a lease.
    pub lease: Duration,
    /// Bound on one run.
    pub timeout: Duration,
    /// How long a graceful stop waits for runs.
    pub drain_timeout: Duration,
    /// What is overdue at the start is held for review.
    pub hold_overdue: bool,
}

/// `[fleet]`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FleetConfig {
    /// Whether daemons share the tasks between them, and audit in turns.
    pub share: bool,
}

/// `[retention]`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetentionConfig {
    /// How long a task is kept after it was done; `None`: for ever.
    pub done: Option<Duration>,
    /// How long after it died.
    pub dead: Option<Duration>,
    /// How long after it was called off and its time has passed.
    pub cancelled: Option<Duration>,
    /// So many done ones are kept at most, those that fell due last; `None`: any number.
    pub done_max: Option<u64>,
    /// Rows deleted in a second at most.
    pub rate: u32,
}

impl RetentionConfig {
    /// Whether everything is kept for ever.
    pub fn is_off(&self) -> bool {
        let Self {
            done,
            dead,
            cancelled,
            done_max,
            rate: _,
        } = self;
        done.or(*dead).or(*cancelled).is_none() && done_max.is_none()
    }
}

/// `[http]`
#[derive(Debug, Clone, PartialEq, Eq)]
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
    /// `concurrency`, `rate`, `burst`, `priority`, `timeout`.
    pub limits: Limits,
    /// Over `[retry]`.
    pub retry: Option<RetryPolicy>,
    /// Over `[adopt]`.
    pub adopt: Option<bool>,
    /// A run that takes longer is worth a warning.
    pub slow_after: Option<Duration>,
    /// If there are any: one of them must have signed a task for it to be run.
    pub payload_secrets: Vec<Secret>,
    /// How late a task may start and still be of use.
    pub expire_after: Option<Duration>,
}

/// What a route runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TargetConfig {
    /// A program.
    Exec(ExecConfig),
    /// A request to somebody's server.
    Webhook(Box<WebhookConfig>),
    /// A stream, a list or a channel in Redis.
    Delivery(DeliveryConfig),
    /// A log line.
    Log,
}

impl std::fmt::Display for TargetConfig {
    /// What it is and where it leads, without secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exec(exec) => write!(f, "exec {}", exec.program),
            Self::Webhook(webhook) => write!(f, "webhook {}, {}", webhook.url, webhook.signed()),
            Self::Delivery(delivery) => delivery.fmt(f),
            Self::Log => f.write_str("log"),
        }
    }
}

/// `exec = [..]` and the keys beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecConfig {
    /// What is started.
    pub program: String,
    /// Its arguments.
    pub args: Vec<ExecArg>,
    /// Whether an argument of a task may begin with `-`.
    pub allow_dash: bool,
    /// Whether what it writes to stdout is kept as the task's result.
    pub keep_result: bool,
    /// Names of environment variables that are handed on.
    pub env: Vec<String>,
}

/// An argument of a program: a placeholder, or itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExecArg {
    /// `{key}`
    Key,
    /// `{class}`
    Class,
    /// `{method}`
    Method,
    /// `{args}`: an argument for each of the task's.
    Args,
    /// `{id}`
    Id,
    /// As it is.
    Text(String),
}

impl ExecArg {
    const PLACEHOLDERS: [(&str, Self); 5] = [
        ("{key}", Self::Key),
        ("{class}", Self::Class),
        ("{method}", Self::Method),
        ("{args}", Self::Args),
        ("{id}", Self::Id),
    ];

    /// A placeholder stands alone: text glued to what comes from a key could change its meaning.
    fn parse(text: &str) -> Result<Self, String> {
        if let Some((_, arg)) = Self::PLACEHOLDERS.iter().find(|(name, _)| *name == text) {
            return Ok(arg.clone());
        }
        if Self::PLACEHOLDERS
            .iter()
            .any(|(name, _)| text.contains(name))
        {
            return Err(format!(
                "`{text}` holds no whole placeholder, expected plain text or one of {{key}} {{class}} {{method}} {{args}} {{id}} as an argument of its own"
            ));
        }
        let word = text
            .strip_prefix('{')
            .and_then(|text| text.strip_suffix('}'));
        let is_word = |word: &str| {
            !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        };
        if word.is_some_and(is_word) {
            return Err(format!(
                "`{text}` is no placeholder, expected one of {{key}} {{class}} {{method}} {{args}} {{id}}, or plain text"
            ));
        }
        Ok(Self::Text(text.to_owned()))
    }
}

/// Environment variables that `exec` hands on unless the route has its own list.
pub const EXEC_ENV: [&str; 4] = ["PATH", "HOME", "LANG", "TZ"];

impl Config {
    /// Whether it is of use to hear of keys when they are armed, and not only when they expire: to adopt them, or
    /// to know the short delays.
    pub fn hears_armings(&self) -> bool {
        self.nudge.enabled
            || self.adopt.enabled
            || self.routes.iter().any(|route| route.adopt == Some(true))
    }

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
            .map_err(|error: toml::de::Error| ConfigError::one("", not_toml(text, &error)))?;
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

/// The line is not shown: it may hold a secret.
fn not_toml(text: &str, error: &toml::de::Error) -> String {
    let before = error.span().and_then(|span| text.get(..span.start));
    let line = before.map_or(1, |before| before.matches('\n').count() + 1);
    format!(
        "line {line} is not TOML: {}",
        error.message().replace('\n', ", ")
    )
}

impl Default for Config {
    fn default() -> Self {
        Self::from_toml("").expect("a test reads the defaults")
    }
}

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
    fn tasks_are_armed_however_far_ahead_unless_there_is_a_horizon() {
        assert_eq!(Config::default().redis.arm_horizon, None);
        let hour = Config::from_toml("redis.arm_horizon = '1h'").unwrap();
        assert_eq!(hour.redis.arm_horizon, Some(Duration::from_secs(3_600)));
        for refused in ["'59s'", "'0s'", "'for ever'", "60", "false"] {
            assert_eq!(
                problems(&format!("redis.arm_horizon = {refused}")),
                [
                    "`redis.arm_horizon`: expected \"unlimited\", or a duration of at least a minute, such as \"6h\""
                ],
                "{refused}"
            );
        }
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
        assert_eq!(routes[0].limits.timeout, Some(Duration::from_secs(30)));
        assert_eq!(routes[0].retry.as_ref().unwrap().max_attempts, 5);
        assert_eq!(routes[1].target, TargetConfig::Log);
    }

    #[test]
    fn a_route_may_warn_of_slow_runs_and_ask_for_signatures() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(
            file.path(),
            "the new secret of it\n\n the old secret of it \n",
        )
        .unwrap();
        let text = format!(
            "[[routes]]\nmatch = 'a'\nlog = {{}}\nslow_after = '5s'\npayload_secret = 'sixteen bytes or'\n\
             [[routes]]\nmatch = 'b'\nlog = {{}}\npayload_secret = ['sixteen bytes or', 'more than sixteen']\nadopt = false\n\
             [[routes]]\nmatch = 'c'\nlog = {{}}\npayload_secret_file = '{}'\n",
            file.path().display()
        );
        let config = Config::from_toml(&text).unwrap();
        let secrets = |route: usize| -> Vec<&str> {
            let secrets = config.routes[route].payload_secrets.iter();
            secrets.map(Secret::expose).collect()
        };
        assert_eq!(config.routes[0].slow_after, Some(Duration::from_secs(5)));
        assert_eq!(secrets(0), ["sixteen bytes or"]);
        assert_eq!(secrets(1), ["sixteen bytes or", "more than sixteen"]);
        assert_eq!(secrets(2), ["the new secret of it", "the old secret of it"]);
        assert!(!format!("{config:?}").contains("sixteen bytes or"));
    }

    #[test]
    fn what_is_wrong_with_slow_after_and_secrets_is_said_all_at_once() {
        let found = problems(
            "[[routes]]\nmatch = 'a'\nlog = {}\nslow_after = 5\npayload_secret = 'short'\n\
             [[routes]]\nmatch = 'b'\nlog = {}\npayload_secret = 'sixteen bytes or'\npayload_secret_file = 'x'\n\
             [[routes]]\nmatch = 'c'\nlog = {}\npayload_secret_file = '/nowhere'\n\
             [[routes]]\nmatch = 'd'\nlog = {}\npayload_secret = 'sixteen bytes or'\nadopt = true\n\
             [[routes]]\nmatch = 'e'\nlog = {}\npayload_secret = []\n\
             [[routes]]\nmatch = 'f'\nlog = {}\npayload_secret = 7\n",
        );
        assert_eq!(
            found,
            [
                "`routes[0].slow_after`: expected a duration with a unit, such as \"1500ms\", \"30s\" or \"15m\"",
                "`routes[0].payload_secret`: expected secrets of at least 16 bytes, found one of 5",
                "`routes[1]`: expected one of `payload_secret` and `payload_secret_file`",
                "`routes[2].payload_secret_file`: cannot read `/nowhere`: No such file or directory (os error 2)",
                "`routes[3].adopt`: expected false beside `payload_secret`: a key that some program armed is signed by nobody",
                "`routes[4].payload_secret`: expected at least one secret",
                "`routes[5].payload_secret`: expected a text or a list of texts",
            ]
        );
    }

    #[test]
    fn a_recurring_task_that_nobody_signs_does_not_go_to_a_route_that_wants_it_signed() {
        let text = "[[recurring]]\nkey = 'Bill@nightly'\nevery = '1h'\n\
             [[recurring]]\nkey = 'Feed@pull'\nevery = '1h'\n\
             [[routes]]\nmatch = '^Feed@'\nlog = {}\n\
             [[routes]]\nmatch = '.'\nlog = {}\npayload_secret = 'sixteen bytes or'\n";
        assert_eq!(
            problems(text),
            [
                "`recurring[0].key`: `Bill@nightly` goes to the route `match = \".\"`, which runs only what is signed with its \
                 `payload_secret`: expected another route, or a program that signs it and creates it"
            ]
        );
    }

    #[test]
    fn a_route_may_have_limits() {
        let text = "[[routes]]\nmatch = 'x'\nlog = {}\nconcurrency = 32\nrate = '100/s'\nburst = 20\npriority = -3\n";
        let limits = Config::from_toml(text).unwrap().routes[0].limits;
        let rate = "100/s".parse::<crate::task::Rate>().unwrap();
        let expected = Limits::new().concurrency(32).priority(-3);
        assert_eq!(limits, expected.rate(rate.with_burst(20).unwrap()));
        let plain = Config::from_toml("[[routes]]\nmatch = 'x'\nlog = {}\n").unwrap();
        assert_eq!(plain.routes[0].limits, Limits::new());
    }

    #[test]
    fn broken_limits_say_what_was_expected() {
        let broken =
            |line: &str| problems(&format!("[[routes]]\nmatch = 'x'\nlog = {{}}\n{line}\n"));
        let number = "expected a number and a unit, such as \"100/s\", \"30/m\" or \"5/h\"";
        let told = [
            ("rate = '100'", format!("`routes[0].rate`: {number}")),
            ("rate = 100", format!("`routes[0].rate`: {number}")),
            (
                "rate = '0/s'",
                "`routes[0].rate`: expected 1 to 1000000 in the unit".to_owned(),
            ),
            (
                "burst = 3",
                "`routes[0].burst`: expected `rate` beside it".to_owned(),
            ),
            (
                "rate = '1/s'\nburst = 0",
                "`routes[0].burst`: expected 1 to 1000000".to_owned(),
            ),
            (
                "concurrency = 0",
                "`routes[0].concurrency`: expected 1 to 100000".to_owned(),
            ),
            (
                "priority = 128",
                "`routes[0].priority`: expected -128 to 127".to_owned(),
            ),
            (
                "priority = 'high'",
                "`routes[0].priority`: expected -128 to 127".to_owned(),
            ),
        ];
        for (line, message) in told {
            assert_eq!(broken(line), [message], "{line}");
        }
        let all =
            broken("rate = 'x'\nburst = 0\nconcurrency = -1\npriority = 1000\ntimeout = '0s'");
        assert_eq!(all.len(), 5, "{all:?}");
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
                .any(|p| p == "`routes[0]`: has no target, expected one of `exec`, `webhook`, `stream`, `list`, `publish`, `log`"),
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

    #[test]
    fn a_route_has_exactly_one_target_and_each_is_looked_at() {
        let found = problems(
            "[[routes]]\nmatch = 'x'\nexec = ['/bin/true']\nlog = {}\nlist = {}\nallow_dash = true\n[[routes]]\nmatch = 'x'\nlog = {}\nallow_dash = true",
        );
        assert_eq!(
            found,
            [
                "`routes[0].list.key`: is missing",
                "`routes[0]`: has 3 targets (`exec`, `list`, `log`), expected one of `exec`, `webhook`, `stream`, `list`, `publish`, `log`",
                "`routes[1].allow_dash`: belongs to `exec`: this target has no such key",
            ]
        );
    }

    #[test]
    fn a_key_beside_a_target_it_does_not_belong_to_says_where_it_does() {
        let found = problems(
            "[[routes]]\nmatch = 'x'\nlog = {}\nkeep_result = true\nenv = ['PATH']\n\
             [[routes]]\nmatch = 'x'\nwebhook = { url = 'https://shop.example/' }\nkeep_result = true\nallow_dash = true\n",
        );
        assert_eq!(
            found,
            [
                "`routes[0].env`: belongs to `exec`: this target has no such key",
                "`routes[0].keep_result`: belongs to `exec` and `webhook`: this target has no such key",
                "`routes[1].allow_dash`: belongs to `exec`: this target has no such key",
            ]
        );
    }

    #[test]
    fn a_placeholder_that_does_not_exist_is_refused() {
        let exec = |arg: &str| format!("[[routes]]\nmatch = 'x'\nexec = ['sh', '{arg}']\n");
        assert_eq!(
            problems(&exec("{bogus}")),
            [
                "`routes[0].exec`: `{bogus}` is no placeholder, expected one of {key} {class} {method} {args} {id}, or plain text"
            ]
        );
        for text in ["{}", "{\"a\": 1}", "{ print }", "a{b}", "{a,b}"] {
            assert!(Config::from_toml(&exec(text)).is_ok(), "{text}");
        }
    }

    #[test]
    fn a_line_that_is_not_toml_is_named_and_not_shown() {
        let found = problems("[redis]\n\nurl = \"redis://:s3cret@h\n");
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("line 3 is not TOML: "), "{found:?}");
        assert!(!found[0].contains("s3cret"), "{found:?}");
    }
}
