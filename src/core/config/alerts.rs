//! Alerts of the daemon: `[alerts]`.

use std::time::Duration;

use serde::Deserialize;

use super::reader::{Problems, Reader};
use super::rules::{any, at_least, at_least_or_none, section};
#[cfg(feature = "webhook")]
use super::webhook::{self, WebhookConfig};

/// Shortest time that is compared or waited for.
const SOON: Duration = Duration::from_secs(1);

section! {
    /// `[alerts]`
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct AlertsConfig {
        /// Format of the messages.
        pub format: AlertFormat = any,
        /// The time that the conditions look back.
        pub window: Duration = at_least(SOON),
        /// An outage of the ledger or of the subscription is reported when it has lasted this long.
        pub down_for: Duration = at_least(Duration::ZERO),
        /// An alert ends when its condition has been false for this long.
        pub clear_after: Duration = at_least(Duration::ZERO),
        /// How often a message is repeated while the condition lasts; `None`: never.
        pub repeat: Option<Duration> = at_least_or_none(SOON),
        /// Maximum 99th percentile of lateness in the window; `None`: any.
        pub late: Option<Duration> = at_least_or_none(Duration::from_millis(1)),
        /// Maximum time that a task may be overdue; `None`: any.
        pub overdue: Option<Duration> = at_least_or_none(SOON),
        /// Number of dead tasks in the window that is reported; 0: none.
        pub dead: u64 = number_of_tasks,
        /// Share of starts in the window, in percent, that the sweep may cause; 100: any.
        pub swept: u8 = percent,
        /// Where messages are posted; `None`: alerts are off.
        pub webhook: Option<Destination> = destination,
    }
}

/// Where messages about alerts are posted.
#[cfg(feature = "webhook")]
type Destination = WebhookConfig;

/// Where messages about alerts are posted: nowhere without the feature `webhook`.
#[cfg(not(feature = "webhook"))]
type Destination = std::convert::Infallible;

/// Format of the messages about alerts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AlertFormat {
    /// An object with a field for each fact.
    Json,
    /// `{"text": ".."}`, as Slack and Mattermost take it.
    Slack,
}

fn number_of_tasks(section: &mut Reader, key: &str, p: &mut Problems) -> Option<u64> {
    let number = section.checked(key, p, |number: &i64| *number >= 0, "0 or more tasks");
    number.map(i64::unsigned_abs)
}

fn percent(section: &mut Reader, key: &str, p: &mut Problems) -> Option<u8> {
    let is_percent = |percent: &i64| (0..=100).contains(percent);
    let percent = section.checked(key, p, is_percent, "0 to 100 percent")?;
    Some(u8::try_from(percent).expect("a percentage"))
}

/// The webhook of the rest of the section. The outer `None` means that it is invalid.
#[cfg(feature = "webhook")]
fn destination(section: &mut Reader, _: &str, p: &mut Problems) -> Option<Option<Destination>> {
    let is_empty = |value: &toml::Value| value.as_str() == Some("");
    if section.table.get("url").is_some_and(is_empty) {
        section.remove("url");
        if !section.has("url_file") {
            return Some(None);
        }
    }
    let path = section.at("url");
    let webhook = webhook::webhook(section.rest(), p)?;
    if webhook.url.has_placeholders() {
        p.add(&path, "expected a URL without placeholders");
        return None;
    }
    Some(Some(webhook))
}

#[cfg(not(feature = "webhook"))]
fn destination(section: &mut Reader, _: &str, p: &mut Problems) -> Option<Option<Destination>> {
    let url: String = section.take("url", p)?;
    if url.is_empty() {
        return Some(None);
    }
    p.add(
        &section.at("url"),
        "needs a build with the feature `webhook`",
    );
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn read(text: &str) -> Result<AlertsConfig, String> {
        let config = Config::from_toml(&format!("[alerts]\n{text}"));
        config
            .map(|config| config.alerts)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn alerts_are_off_without_a_url() {
        let alerts = Config::default().alerts;
        assert_eq!(alerts.webhook, None);
        assert_eq!(alerts.format, AlertFormat::Json);
        assert_eq!((alerts.dead, alerts.swept), (1, 10));
    }

    #[test]
    fn the_url_of_a_chat_is_a_secret() {
        let alerts = read("url = 'https://hooks.example/T0/s3cret'\nformat = 'slack'").unwrap();
        let shown = format!("{alerts:?}");
        assert!(
            shown.contains("hooks.example") && !shown.contains("s3cret"),
            "{shown}"
        );
        let webhook = alerts.webhook.unwrap();
        assert_eq!(webhook.url.to_string(), "https://hooks.example");
    }

    #[test]
    fn the_url_may_come_from_a_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "https://hooks.example/x\n").unwrap();
        let alerts = read(&format!("url_file = '{}'", file.path().display())).unwrap();
        assert_eq!(
            alerts.webhook.unwrap().url.to_string(),
            "https://hooks.example"
        );
    }

    #[test]
    fn all_that_is_wrong_with_alerts_is_said_at_once() {
        let problems = read(
            "url = 'https://h/{class}'\nswept = 101\nformat = 'xml'\nwindow = '0s'\nlates = '1s'",
        );
        let problems = problems.unwrap_err();
        for expected in [
            "`alerts.swept`: expected 0 to 100 percent, found 101",
            "`alerts.window`: expected at least 1000 ms, found \"0s\"",
            "`alerts.format`: unknown variant `xml`",
            "`alerts.lates`: is not the name of a setting, did you mean `late`?",
        ] {
            assert!(problems.contains(expected), "{expected}\n{problems}");
        }
        let placeholder = read("url = 'https://h/{class}'").unwrap_err();
        assert_eq!(
            placeholder,
            "`alerts.url`: expected a URL without placeholders"
        );
        let local = read("url = 'http://127.0.0.1:1/'").unwrap_err();
        assert!(
            local.contains("`alerts.url`: leads to a loopback address"),
            "{local}"
        );
    }
}
