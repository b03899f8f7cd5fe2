//! Routes: `[[routes]]` maps keys to targets.

use std::path::{Path, PathBuf};
use std::time::Duration;

use regex::Regex;
use toml::Value;

use super::reader::{Problems, Reader};
use super::retry::RetryKeys;
use super::rules::{any, at_least};
#[cfg(feature = "webhook")]
use super::webhook::{self, WebhookConfig};
use super::{DeliveryConfig, EXEC_ENV, ExecArg, ExecConfig, PullConfig, Secret};
use super::{delivery, limits, pull, retry as retry_section};
use crate::task::{Limits, RetryPolicy, SECRET_BYTES_MIN, TaskKey};

/// One entry of `[[routes]]`.
#[derive(Debug, Clone)]
pub struct RouteConfig {
    /// Pattern of the keys.
    pub matches: Regex,
    /// Target that runs the tasks.
    pub target: TargetConfig,
    /// `concurrency`, `rate`, `burst`, `priority`, `timeout`.
    pub limits: Limits,
    /// Retry policy; overrides `[retry]`.
    pub retry: Option<RetryPolicy>,
    /// Whether keys are adopted; overrides `[adopt]`.
    pub adopt: Option<bool>,
    /// A run that takes longer is logged as a warning.
    pub slow_after: Option<Duration>,
    /// Secrets of signed tasks. If there are any, only tasks that one of them has signed are run.
    pub payload_secrets: Vec<Secret>,
    /// Maximum lateness of a start; a later task dies instead.
    pub expire_after: Option<Duration>,
}

impl RouteConfig {
    /// Whether the pattern matches the key.
    pub fn fits(&self, key: &TaskKey) -> bool {
        self.matches.is_match(key.as_str())
    }
}

/// Target of a route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TargetConfig {
    /// A program.
    Exec(ExecConfig),
    /// An HTTP request.
    #[cfg(feature = "webhook")]
    Webhook(Box<WebhookConfig>),
    /// A stream, a list or a channel in Redis.
    Delivery(DeliveryConfig),
    /// Workers that ask for tasks.
    Pull(PullConfig),
    /// The ready list of a framework.
    #[cfg(feature = "rows")]
    DelayedSet(super::DelayedSetConfig),
    /// A log line.
    Log,
}

impl std::fmt::Display for TargetConfig {
    /// Kind and destination, without secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exec(exec) => write!(f, "exec {}", exec.program),
            #[cfg(feature = "webhook")]
            Self::Webhook(webhook) => write!(f, "webhook {}, {}", webhook.url, webhook.signed()),
            Self::Delivery(delivery) => delivery.fmt(f),
            Self::Pull(pull) => pull.fmt(f),
            #[cfg(feature = "rows")]
            Self::DelayedSet(set) => set.fmt(f),
            Self::Log => f.write_str("log"),
        }
    }
}

/// A text or a list of texts.
#[derive(serde::Deserialize)]
#[serde(untagged, expecting = "expected a text or a list of texts")]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

/// Keys of the targets; a route has exactly one.
const TARGETS: [&str; 7] = [
    "exec", "webhook", "stream", "list", "publish", "log", "pull",
];

/// Keys that belong to certain targets.
const BESIDE: [(&str, &[&str]); 4] = [
    ("allow_dash", &["exec"]),
    ("cwd", &["exec"]),
    ("env", &["exec"]),
    ("keep_result", &["exec", "webhook"]),
];

pub(super) fn routes(
    section: &mut Reader,
    retry: Option<&RetryKeys>,
    key_prefix: &str,
    p: &mut Problems,
) -> Vec<RouteConfig> {
    let readers = section.entries("routes", p).into_iter();
    readers
        .filter_map(|reader| route(reader, retry, key_prefix, p))
        .collect()
}

fn route(
    mut section: Reader,
    retry: Option<&RetryKeys>,
    key_prefix: &str,
    p: &mut Problems,
) -> Option<RouteConfig> {
    let pattern: Option<String> = section.take("match", p);
    let matches = pattern.and_then(|pattern| match Regex::new(&pattern) {
        Ok(regex) => Some(regex),
        Err(error) => {
            p.add(
                &section.at("match"),
                format!("is not a regular expression: {error}"),
            );
            None
        }
    });
    if section.has("pull") {
        pull::refuse_run_keys(&mut section, p);
    }
    let limits = limits::limits(&mut section, p);
    let retry = section.given("retry", p, |section, key, p| {
        let keys = retry_section::route_retry(section.section(key, p), retry, p);
        keys.map(|keys| keys.policy())
    });
    let adopt = section.given("adopt", p, any);
    let expire_after = section.given("expire_after", p, at_least(Duration::from_millis(1)));
    let slow_after = section.given("slow_after", p, at_least(Duration::from_millis(1)));
    let payload_secrets = payload_secrets(&mut section, p);
    if !payload_secrets.is_empty() && adopt == Some(Some(true)) {
        p.add(
            &section.at("adopt"),
            "expected false beside `payload_secret`: a key that another program sets is not signed",
        );
    }
    let target = target(&mut section, key_prefix, p);
    section.done(p);
    Some(RouteConfig {
        matches: matches?,
        target: target?,
        limits,
        retry: retry?,
        adopt: adopt?,
        slow_after: slow_after.flatten(),
        payload_secrets,
        expire_after: expire_after.flatten(),
    })
}

/// Reads `payload_secret` (a text or a list) or `payload_secret_file` (one secret per line).
fn payload_secrets(section: &mut Reader, p: &mut Problems) -> Vec<Secret> {
    let given: Option<OneOrMany> = section.optional("payload_secret", p);
    let file: Option<String> = section.optional("payload_secret_file", p);
    let (at, texts) = match (given, file) {
        (None, None) => return Vec::new(),
        (Some(_), Some(_)) => {
            let problem = "expected one of `payload_secret` and `payload_secret_file`";
            p.add(&section.path, problem);
            return Vec::new();
        }
        (Some(OneOrMany::One(text)), None) => (section.at("payload_secret"), vec![text]),
        (Some(OneOrMany::Many(texts)), None) => (section.at("payload_secret"), texts),
        (None, Some(file)) => {
            let at = section.at("payload_secret_file");
            match Secret::lines_of(Path::new(&file)) {
                Ok(texts) => (at, texts),
                Err(error) => {
                    p.add(&at, format!("cannot read `{file}`: {error}"));
                    return Vec::new();
                }
            }
        }
    };
    if texts.is_empty() {
        p.add(&at, "expected at least one secret");
    }
    if let Some(short) = texts.iter().find(|text| text.len() < SECRET_BYTES_MIN) {
        p.add(
            &at,
            format!(
                "expected secrets of at least {SECRET_BYTES_MIN} bytes, found one of {}",
                short.len()
            ),
        );
    }
    texts.into_iter().map(Secret::from).collect()
}

fn target(section: &mut Reader, key_prefix: &str, p: &mut Problems) -> Option<TargetConfig> {
    let named: Vec<&str> = TARGETS
        .into_iter()
        .filter(|name| section.has(name))
        .collect();
    // All targets are read, so that all problems are reported.
    let read: Vec<Option<TargetConfig>> = named
        .iter()
        .map(|name| target_of(section, name, key_prefix, p))
        .collect();
    if !named.is_empty() {
        refuse_strays(section, &named, p);
    }
    let list = |names: &[&str]| {
        names
            .iter()
            .map(|name| format!("`{name}`"))
            .collect::<Vec<_>>()
            .join(", ")
    };
    match <[_; 1]>::try_from(read) {
        Ok([target]) => target,
        Err(read) => {
            let found = match read.len() {
                0 => "has no target".to_owned(),
                count => format!("has {count} targets ({})", list(&named)),
            };
            p.add(
                &section.path,
                format!("{found}, expected one of {}", list(&TARGETS)),
            );
            None
        }
    }
}

/// Reads the target of the key `name`, one of [`TARGETS`].
fn target_of(
    section: &mut Reader,
    name: &str,
    key_prefix: &str,
    p: &mut Problems,
) -> Option<TargetConfig> {
    match name {
        "exec" => exec(section, p).map(TargetConfig::Exec),
        "log" => {
            section.section("log", p).done(p);
            Some(TargetConfig::Log)
        }
        "pull" => pull::pull(section.section("pull", p), p).map(TargetConfig::Pull),
        #[cfg(not(feature = "webhook"))]
        "webhook" => {
            p.add(
                &section.at("webhook"),
                "needs a build with the feature `webhook`",
            );
            section.remove(name);
            None
        }
        #[cfg(feature = "webhook")]
        "webhook" => {
            let webhook = webhook::webhook(section.section("webhook", p), p);
            let keep_result = section.optional("keep_result", p).unwrap_or(false);
            webhook.map(|webhook| {
                TargetConfig::Webhook(Box::new(WebhookConfig {
                    keep_result,
                    ..webhook
                }))
            })
        }
        place => {
            let section = section.section(place, p);
            let delivery = match place {
                "stream" => delivery::stream(section, key_prefix, p),
                "list" => delivery::list(section, key_prefix, p),
                _ => delivery::publish(section, p),
            };
            delivery.map(TargetConfig::Delivery)
        }
    }
}

/// Reports keys that belong to another target.
fn refuse_strays(section: &mut Reader, named: &[&str], p: &mut Problems) {
    for (key, owners) in BESIDE {
        if !owners.iter().any(|owner| named.contains(owner)) && section.remove(key).is_some() {
            let owners: Vec<String> = owners.iter().map(|name| format!("`{name}`")).collect();
            p.add(
                &section.at(key),
                format!(
                    "belongs to {}: this target has no such key",
                    owners.join(" and ")
                ),
            );
        }
    }
}

/// Reads `exec = ["php", "task.php", "{args}"]` and its related keys.
fn exec(section: &mut Reader, p: &mut Problems) -> Option<ExecConfig> {
    if let Some(Value::String(_)) = section.table.get("exec") {
        section.table.remove("exec");
        let expected = "expected an array, such as [\"php\", \"task.php\", \"{args}\"]";
        p.add(&section.at("exec"), expected);
        return None;
    }
    let is_program = |argv: &Vec<String>| {
        argv.first()
            .is_some_and(|program| !program.is_empty() && !program.contains('{'))
    };
    let argv = section.checked(
        "exec",
        p,
        is_program,
        "a program and its arguments, the program without placeholder",
    );
    let allow_dash = section.optional("allow_dash", p).unwrap_or(false);
    let keep_result = section.optional("keep_result", p).unwrap_or(false);
    let env = section
        .optional("env", p)
        .unwrap_or_else(|| EXEC_ENV.map(str::to_owned).to_vec());
    let cwd = section.optional::<PathBuf>("cwd", p);
    if cwd.as_ref().is_some_and(|cwd| !cwd.is_absolute()) {
        p.add(&section.at("cwd"), "expected an absolute path");
    }
    let mut argv = argv?.into_iter();
    let program = argv.next()?;
    match argv.map(|arg| ExecArg::parse(&arg)).collect() {
        Ok(args) => Some(ExecConfig {
            program,
            args,
            allow_dash,
            keep_result,
            env,
            cwd,
        }),
        Err(problem) => {
            p.add(&section.at("exec"), problem);
            None
        }
    }
}
