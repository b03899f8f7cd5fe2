//! Target `pull`: workers ask for the tasks of a queue.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::reader::{Problems, Reader};
use super::rules::{at_least, or};

/// Longest name of a queue, in characters.
const QUEUE_CHARS_MAX: usize = 48;

/// Default and minimum of `visibility`.
const VISIBILITY: Duration = Duration::from_secs(30);
const VISIBILITY_MIN: Duration = Duration::from_secs(1);

/// A queue from which workers take tasks. Several routes may share a queue.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PullConfig {
    /// Name of the queue.
    pub queue: Arc<str>,
    /// Length of the lease that a worker gets. A task that is neither settled nor renewed for this long counts a crash
    /// and is given out again.
    pub visibility: Duration,
}

impl PullConfig {
    /// True if a queue can have this name.
    pub fn is_queue(name: &str) -> bool {
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        (1..=QUEUE_CHARS_MAX).contains(&name.len()) && name.chars().all(fits)
    }
}

impl fmt::Display for PullConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pull {}", self.queue)
    }
}

/// `pull = { queue = "mail", visibility = "30s" }`
pub(super) fn pull(mut section: Reader, p: &mut Problems) -> Option<PullConfig> {
    let expected = format!("1 to {QUEUE_CHARS_MAX} letters, digits, `.`, `_` and `-`");
    let queue: Option<String> = section.checked(
        "queue",
        p,
        |name: &String| PullConfig::is_queue(name),
        &expected,
    );
    let visibility = or(VISIBILITY, at_least(VISIBILITY_MIN));
    let visibility = section.by("visibility", p, visibility);
    section.done(p);
    Some(PullConfig {
        queue: Arc::from(queue?),
        visibility: visibility?,
    })
}

/// Refuses keys of a route that limit a run in this process: a pulled task runs in its worker.
pub(super) fn refuse_run_keys(section: &mut Reader, p: &mut Problems) {
    for (key, instead) in [
        ("timeout", "set `visibility` in `pull`"),
        ("slow_after", "the worker knows how long it runs"),
    ] {
        if section.remove(key).is_some() {
            let problem = format!("does not apply to `pull`: {instead}");
            p.add(&section.at(key), problem);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, TargetConfig};

    fn read(route: &str) -> Result<PullConfig, Vec<String>> {
        let text = format!("[[routes]]\nmatch = '.'\n{route}");
        match Config::from_toml(&text) {
            Ok(mut config) => match config.routes.remove(0).target {
                TargetConfig::Pull(pull) => Ok(pull),
                other => panic!("{other:?}"),
            },
            Err(error) => Err(error.to_string().lines().map(str::to_owned).collect()),
        }
    }

    #[test]
    fn a_queue_is_read_and_visibility_has_a_default() {
        let mail = read("pull = { queue = 'mail' }").unwrap();
        assert_eq!((&*mail.queue, mail.visibility), ("mail", VISIBILITY));
        let quick = read("pull = { queue = 'a.b_c-1', visibility = '2s' }").unwrap();
        assert_eq!(quick.visibility, Duration::from_secs(2));
    }

    #[test]
    fn all_problems_of_a_pull_route_are_reported() {
        let problems = read(
            "pull = { queue = 'a b', visibility = '10ms', count = 1 }\ntimeout = '3s'\nslow_after = '1s'",
        );
        assert_eq!(
            problems.unwrap_err(),
            [
                "`routes[0].timeout`: does not apply to `pull`: set `visibility` in `pull`",
                "`routes[0].slow_after`: does not apply to `pull`: the worker knows how long it runs",
                "`routes[0].pull.queue`: expected 1 to 48 letters, digits, `.`, `_` and `-`",
                "`routes[0].pull.visibility`: expected at least 1000 ms, found \"10ms\"",
                "`routes[0].pull.count`: is not the name of a setting",
            ]
        );
    }
}
