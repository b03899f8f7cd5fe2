//! Messages about alerts, as the receiver of a webhook gets them.

use serde::Serialize;

use super::hysteresis::Change;
use lapsed::config::AlertFormat;
use lapsed::task::UnixMs;

/// A message about one alert.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Message {
    /// The same over all attempts to deliver the message.
    pub id: String,
    /// Name of the condition.
    pub alert: &'static str,
    /// `firing` or `resolved`.
    pub state: &'static str,
    /// What is wrong, or was.
    pub summary: String,
    /// What to do; empty when it is over.
    pub remedy: String,
    /// Name of the daemon that reports.
    pub daemon: String,
    /// RFC 3339.
    pub since: String,
    /// RFC 3339.
    pub at: String,
}

impl Message {
    /// A message with a new id.
    pub fn new(
        alert: &'static str,
        change: Change,
        (summary, remedy): (String, String),
        daemon: &str,
        since: UnixMs,
        at: UnixMs,
    ) -> Self {
        let is_over = change == Change::Resolved;
        Self {
            id: format!("alert-{:032x}", rand::random::<u128>()),
            alert,
            state: if is_over { "resolved" } else { "firing" },
            summary,
            remedy: if is_over { String::new() } else { remedy },
            daemon: daemon.to_owned(),
            since: since.to_string(),
            at: at.to_string(),
        }
    }

    /// The JSON to be posted.
    pub fn body(&self, format: AlertFormat) -> String {
        let json = match format {
            AlertFormat::Json => serde_json::to_string(self),
            AlertFormat::Slack => serde_json::to_string(&Slack { text: self.text() }),
        };
        json.expect("texts become JSON")
    }

    /// One paragraph for people.
    fn text(&self) -> String {
        let Self {
            id: _,
            alert,
            state,
            summary,
            remedy,
            daemon,
            since,
            at: _,
        } = self;
        let text = format!(
            "[{state}] lapsed {alert}: {summary}. {remedy} (daemon {daemon}, since {since})"
        );
        escaped(&text.replace(".  (", ". ("))
    }
}

#[derive(Serialize)]
struct Slack {
    text: String,
}

/// Escapes the three characters that have a meaning in Slack's texts.
fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(change: Change) -> Message {
        let summary = "tasks died in the last 5 min: <!channel>".to_owned();
        let remedy = "Mend the cause.".to_owned();
        let (since, at) = (UnixMs(0), UnixMs(60_000));
        Message {
            id: "alert-1".to_owned(),
            ..Message::new("dead", change, (summary, remedy), "a:1", since, at)
        }
    }

    #[test]
    fn json_has_a_field_for_each_fact() {
        assert_eq!(
            message(Change::Fired).body(AlertFormat::Json),
            r#"{"id":"alert-1","alert":"dead","state":"firing","summary":"tasks died in the last 5 min: <!channel>","remedy":"Mend the cause.","daemon":"a:1","since":"1970-01-01T00:00:00.000Z","at":"1970-01-01T00:01:00.000Z"}"#
        );
    }

    #[test]
    fn a_text_for_slack_mentions_nobody() {
        assert_eq!(
            message(Change::Resolved).body(AlertFormat::Slack),
            r#"{"text":"[resolved] lapsed dead: tasks died in the last 5 min: &lt;!channel&gt;. (daemon a:1, since 1970-01-01T00:00:00.000Z)"}"#
        );
    }

    #[test]
    fn each_message_has_its_own_id() {
        let new = || {
            let at = UnixMs(0);
            Message::new("late", Change::Fired, Default::default(), "", at, at).id
        };
        assert_ne!(new(), new());
    }
}
