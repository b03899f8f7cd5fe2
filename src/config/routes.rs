//! Routes: `[[routes]]` maps keys to targets.

use std::path::Path;
use std::time::Duration;

use regex::Regex;
use toml::Value;

#[cfg(feature = "webhook")]
use super::WebhookConfig;
use super::reader::{Problems, Reader};
use super::retry::RetryKeys;
use super::{DeliveryConfig, EXEC_ENV, ExecArg, ExecConfig, Secret};
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
const TARGETS: [&str; 6] = ["exec", "webhook", "stream", "list", "publish", "log"];

/// Keys that belong to certain targets.
const BESIDE: [(&str, &[&str]); 3] = [
    ("allow_dash", &["exec"]),
    ("env", &["exec"]),
    ("keep_result", &["exec", "webhook"]),
];

impl Reader {
    pub(super) fn routes(
        &mut self,
        retry: Option<&RetryKeys>,
        key_prefix: &str,
        p: &mut Problems,
    ) -> Vec<RouteConfig> {
        let readers = self
            .entries("routes", p)
            .into_iter()
            .enumerate()
            .map(|(index, table)| Self {
                table,
                path: format!("routes[{index}]"),
            });
        readers
            .filter_map(|reader| reader.route(retry, key_prefix, p))
            .collect()
    }

    fn route(
        mut self,
        retry: Option<&RetryKeys>,
        key_prefix: &str,
        p: &mut Problems,
    ) -> Option<RouteConfig> {
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
        let limits = self.limits(p);
        let retry = match self.table.contains_key("retry") {
            true => {
                let keys = self.section("retry", p).route_retry(retry, p);
                keys.map(|keys| Some(keys.policy()))
            }
            false => Some(None),
        };
        let adopt = match self.table.contains_key("adopt") {
            true => self.take("adopt", p).map(Some),
            false => Some(None),
        };
        let expire_after = self
            .table
            .contains_key("expire_after")
            .then(|| self.duration("expire_after", p, Duration::from_millis(1)));
        let slow_after = self
            .table
            .contains_key("slow_after")
            .then(|| self.duration("slow_after", p, Duration::from_millis(1)));
        let payload_secrets = self.payload_secrets(p);
        if !payload_secrets.is_empty() && adopt == Some(Some(true)) {
            p.add(
                &self.at("adopt"),
                "expected false beside `payload_secret`: a key that another program sets is not signed".to_owned(),
            );
        }
        let target = self.target(key_prefix, p);
        self.done(p);
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
    fn payload_secrets(&mut self, p: &mut Problems) -> Vec<Secret> {
        let given: Option<OneOrMany> = self.optional("payload_secret", p);
        let file: Option<String> = self.optional("payload_secret_file", p);
        let (at, texts) = match (given, file) {
            (None, None) => return Vec::new(),
            (Some(_), Some(_)) => {
                let problem = "expected one of `payload_secret` and `payload_secret_file`";
                p.add(&self.path, problem.to_owned());
                return Vec::new();
            }
            (Some(OneOrMany::One(text)), None) => (self.at("payload_secret"), vec![text]),
            (Some(OneOrMany::Many(texts)), None) => (self.at("payload_secret"), texts),
            (None, Some(file)) => {
                let at = self.at("payload_secret_file");
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
            p.add(&at, "expected at least one secret".to_owned());
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

    fn target(&mut self, key_prefix: &str, p: &mut Problems) -> Option<TargetConfig> {
        let named: Vec<&str> = TARGETS
            .into_iter()
            .filter(|name| self.table.contains_key(*name))
            .collect();
        // All targets are read, so that all problems are reported.
        let read: Vec<Option<TargetConfig>> = named
            .iter()
            .map(|name| self.target_of(name, key_prefix, p))
            .collect();
        if !named.is_empty() {
            self.refuse_strays(&named, p);
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
                    &self.path,
                    format!("{found}, expected one of {}", list(&TARGETS)),
                );
                None
            }
        }
    }

    /// Reads the target of the key `name`, one of [`TARGETS`].
    fn target_of(
        &mut self,
        name: &str,
        key_prefix: &str,
        p: &mut Problems,
    ) -> Option<TargetConfig> {
        match name {
            "exec" => self.exec(p).map(TargetConfig::Exec),
            "log" => {
                self.section("log", p).done(p);
                Some(TargetConfig::Log)
            }
            #[cfg(not(feature = "webhook"))]
            "webhook" => {
                p.add(
                    &self.at("webhook"),
                    "needs a build with the feature `webhook`".to_owned(),
                );
                self.table.remove(name);
                None
            }
            #[cfg(feature = "webhook")]
            "webhook" => {
                let webhook = self.section("webhook", p).webhook(p);
                let keep_result = self.optional("keep_result", p).unwrap_or(false);
                webhook.map(|webhook| {
                    TargetConfig::Webhook(Box::new(WebhookConfig {
                        keep_result,
                        ..webhook
                    }))
                })
            }
            place => {
                let section = self.section(place, p);
                let delivery = match place {
                    "stream" => section.stream(key_prefix, p),
                    "list" => section.list(key_prefix, p),
                    _ => section.publish(p),
                };
                delivery.map(TargetConfig::Delivery)
            }
        }
    }

    /// Reports keys that belong to another target.
    fn refuse_strays(&mut self, named: &[&str], p: &mut Problems) {
        for (key, owners) in BESIDE {
            if !owners.iter().any(|owner| named.contains(owner)) && self.table.remove(key).is_some()
            {
                let owners: Vec<String> = owners.iter().map(|name| format!("`{name}`")).collect();
                p.add(
                    &self.at(key),
                    format!(
                        "belongs to {}: this target has no such key",
                        owners.join(" and ")
                    ),
                );
            }
        }
    }

    /// Reads `exec = ["php", "task.php", "{args}"]` and its related keys.
    fn exec(&mut self, p: &mut Problems) -> Option<ExecConfig> {
        if let Some(Value::String(_)) = self.table.get("exec") {
            self.table.remove("exec");
            let expected = "expected an array, such as [\"php\", \"task.php\", \"{args}\"]";
            p.add(&self.at("exec"), expected.to_owned());
            return None;
        }
        let is_program = |argv: &Vec<String>| {
            argv.first()
                .is_some_and(|program| !program.is_empty() && !program.contains('{'))
        };
        let argv = self.checked(
            "exec",
            p,
            is_program,
            "a program and its arguments, the program without placeholder",
        );
        let allow_dash = self.optional("allow_dash", p).unwrap_or(false);
        let keep_result = self.optional("keep_result", p).unwrap_or(false);
        let env = self
            .optional("env", p)
            .unwrap_or_else(|| EXEC_ENV.map(str::to_owned).to_vec());
        let mut argv = argv?.into_iter();
        let program = argv.next()?;
        match argv.map(|arg| ExecArg::parse(&arg)).collect() {
            Ok(args) => Some(ExecConfig {
                program,
                args,
                allow_dash,
                keep_result,
                env,
            }),
            Err(problem) => {
                p.add(&self.at("exec"), problem);
                None
            }
        }
    }
}
