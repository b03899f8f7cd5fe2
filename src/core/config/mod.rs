//! Configuration: `config/default.toml`, overridden by a file, overridden by the environment.
//!
//! Sections mirror modules. Unknown keys are refused, and *all* problems are reported at once, each
//! with the path of its key and what was expected.

mod access;
mod alerts;
mod cluster_url;
#[cfg(feature = "rows")]
mod delayed_set;
#[cfg(feature = "rows")]
mod delayed_sets;
mod delivery;
#[cfg(feature = "webhook")]
mod egress_policy;
mod error;
mod exec;
#[cfg(feature = "webhook")]
mod headers;
mod host_list;
mod http;
mod http_proxy;
mod import;
mod key_template;
mod ledger;
mod limits;
mod member_rule;
mod on_cluster;
mod otel;
mod overlay;
mod pull;
mod reader;
mod recurring;
mod reload;
mod resp;
mod retention;
mod retry;
mod routes;
mod rules;
mod secret;
mod sections;
mod sentinel_url;
mod server_url;
#[cfg(feature = "webhook")]
mod signing_key;
mod sorted_set;
mod source;
mod suggestions;
#[cfg(feature = "webhook")]
mod url_template;
#[cfg(feature = "webhook")]
mod webhook;
mod wheel;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use toml::{Table, Value};

use self::overlay::{overlay_env, overlay_file};
use self::reader::{Problems, Reader};
use crate::task::RetryPolicy;

pub use self::alerts::{AlertFormat, AlertsConfig};
pub use self::cluster_url::ClusterUrl;
#[cfg(feature = "rows")]
pub use self::delayed_set::{DelayedSetConfig, ReadyList, job_member, job_payload};
pub use self::delivery::{DeliveryConfig, NameTemplate, Place};
#[cfg(feature = "webhook")]
pub use self::egress_policy::EgressPolicy;
pub use self::error::{ConfigError, Problem};
pub use self::exec::{EXEC_ENV, ExecArg, ExecConfig};
pub use self::http::{HttpConfig, SecureCookies, TOKEN_CHARS_MIN};
pub use self::http_proxy::{Network, ProxyConfig};
pub use self::import::{ImportRule, ImportSource};
pub use self::key_template::{JobPart, KeyTemplate, written};
pub use self::ledger::LedgerConfig;
pub use self::member_rule::{MemberPlace, MemberRule};
pub use self::otel::OtelConfig;
pub use self::pull::PullConfig;
pub use self::recurring::RecurringConfig;
pub use self::resp::{Plaintext, RespConfig, RespSocket, RespTls};
pub use self::retention::RetentionConfig;
pub use self::routes::{RouteConfig, TargetConfig};
pub use self::secret::Secret;
pub use self::sections::{
    AdoptConfig, EngineConfig, FleetConfig, LedgerPollConfig, NudgeConfig, RedisConfig,
    SentinelConfig, SweepConfig,
};
pub use self::sentinel_url::SentinelUrl;
pub use self::server_url::ENCODE;
#[cfg(feature = "webhook")]
pub use self::signing_key::SigningKey;
pub use self::sorted_set::{ScoreUnit, SortedSetConfig};
pub use self::source::{ConfigSource, DEFAULT_TOML, SEARCH_PATHS};
pub use self::suggestions::{MisspelledVariable, misspelled_variables};
#[cfg(feature = "webhook")]
pub use self::url_template::UrlTemplate;
#[cfg(feature = "webhook")]
pub use self::webhook::WebhookConfig;
pub use self::wheel::WheelConfig;
pub use crate::access::{AccessScope, Masks, Principal, Proof, hash_token};
pub use crate::task::ClassGlob;

/// All settings.
#[derive(Debug, Clone)]
pub struct Config {
    /// The timer in use.
    pub timer: TimerKind,
    /// `[redis]`
    pub redis: RedisConfig,
    /// `[ledger]`
    pub ledger: LedgerConfig,
    /// `[sorted_set]`
    pub sorted_set: SortedSetConfig,
    /// `[wheel]`
    pub wheel: WheelConfig,
    /// `[sentinel]`
    pub sentinel: SentinelConfig,
    /// `[nudge]`
    pub nudge: NudgeConfig,
    /// `[ledger_poll]`
    pub ledger_poll: LedgerPollConfig,
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
    /// `[resp]`
    pub resp: RespConfig,
    /// `[alerts]`
    pub alerts: AlertsConfig,
    /// `[otel]`
    pub otel: OtelConfig,
    /// `[[routes]]`, in order.
    pub routes: Vec<RouteConfig>,
    /// `[[recurring]]`
    pub recurring: Vec<RecurringConfig>,
    /// `[[import]]`, in order.
    pub import: Vec<ImportRule>,
}

/// Source of signals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TimerKind {
    /// Expiring Redis keys.
    KeyExpiry,
    /// Entries of sorted sets in Redis.
    SortedSet,
    /// A time wheel in Redis.
    Wheel,
    /// The ledger alone: no Redis.
    LedgerPoll,
}

impl TimerKind {
    /// Every timer.
    pub const ALL: [Self; 4] = [
        Self::KeyExpiry,
        Self::SortedSet,
        Self::Wheel,
        Self::LedgerPoll,
    ];

    /// The name in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::KeyExpiry => "key_expiry",
            Self::SortedSet => "sorted_set",
            Self::Wheel => "wheel",
            Self::LedgerPoll => "ledger_poll",
        }
    }

    /// True if the timer needs Redis. Members and rate limits are then in Redis, too.
    pub fn uses_redis(self) -> bool {
        match self {
            Self::KeyExpiry | Self::SortedSet | Self::Wheel => true,
            Self::LedgerPoll => false,
        }
    }
}

impl Config {
    /// Whether programs' keys or entries become tasks, at least on some routes.
    pub fn adopts_any(&self) -> bool {
        self.adopt.enabled || self.routes.iter().any(|route| route.adopt == Some(true))
    }

    /// Whether the daemon subscribes to events of armed keys in addition to expired ones: to adopt them, or to learn
    /// short delays.
    pub fn hears_armings(&self) -> bool {
        self.nudge.enabled || self.adopts_any()
    }

    /// How often the engine asks the ledger for tasks that are due now; `None`: never, since the timer hears of them.
    pub fn probe(&self) -> Option<Duration> {
        match self.timer {
            TimerKind::LedgerPoll => self.ledger_poll.probe,
            _ => None,
        }
    }

    /// Loads the configuration as the program does: the given file, else `LAPSED_CONFIG`, else the
    /// first of [`SEARCH_PATHS`] that exists, over the defaults; then the environment over that.
    ///
    /// # Errors
    /// [`ConfigError`] has every problem found.
    pub fn load(file: Option<&Path>) -> Result<Self, ConfigError> {
        Self::load_from(&ConfigSource::find(file))
    }

    /// As [`Config::load`], from a known source.
    ///
    /// # Errors
    /// [`ConfigError`] has every problem found.
    pub fn load_from(source: &ConfigSource) -> Result<Self, ConfigError> {
        Self::load_with(source, &[])
    }

    /// As [`Config::load_from`], with settings over those of the file and the environment. They are named as in the
    /// environment: `("LAPSED__ENGINE__LEASE", "5s")`.
    ///
    /// # Errors
    /// [`ConfigError`] has every problem found.
    pub fn load_with(
        source: &ConfigSource,
        settings: &[(&str, String)],
    ) -> Result<Self, ConfigError> {
        let mut env = environment();
        for (name, value) in settings {
            env.remove(&format!("{name}{FROM_FILE}"));
            env.insert((*name).to_owned(), value.clone());
        }
        let Some(path) = source.file() else {
            return Self::from_toml_and_env("", &env);
        };
        let text = std::fs::read_to_string(path).map_err(|error| {
            ConfigError::one("", format!("cannot read `{}`: {error}", path.display()))
        })?;
        Self::from_toml_and_env(&text, &env).map_err(|error| error.in_file(path))
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
        let defaults = source::defaults();
        let mut table = defaults.clone();
        table.remove(TIMER);
        let file: Table = text
            .parse()
            .map_err(|error: toml::de::Error| ConfigError::one("", not_toml(text, &error)))?;
        let mut problems = Problems::default();
        overlay_file(&mut table, file);
        overlay_env(&mut table, &defaults, env, &mut problems);
        let timer = default_timer(&table, &defaults);
        table.entry(TIMER).or_insert(timer);
        let root = Reader::new(table, "");
        let config = sections::config(root, &mut problems);
        match config {
            Some(config) if problems.0.is_empty() => Ok(config),
            _ => Err(ConfigError {
                problems: problems.0,
            }),
        }
    }
}

const TIMER: &str = "timer";

/// Returns the timer of a configuration that names none: a ledger in a file needs no Redis.
fn default_timer(table: &Table, defaults: &Table) -> Value {
    let url = table.get("ledger").and_then(|ledger| ledger.get("url"));
    match url.and_then(Value::as_str) {
        Some(url) if ledger::is_file(url) => TimerKind::LedgerPoll.as_str().into(),
        _ => defaults[TIMER].clone(),
    }
}

/// Suffix of variables that name a file with the value.
const FROM_FILE: &str = "_FILE";

/// The variables of this process whose names and values are UTF-8.
fn environment() -> BTreeMap<String, String> {
    let utf8 = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    utf8.collect()
}

/// Reports a TOML error without its line, which may hold a secret.
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
mod tests;
