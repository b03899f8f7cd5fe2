//! Retry policy: `[retry]`, and `retry = { .. }` of a route over it.

use std::time::Duration;

use serde::Deserialize;

use super::reader::{Problems, Reader, Span};
use super::rules::{at_least, at_least_or_none, checked, within};
use crate::format::duration;
use crate::task::{Backoff, RetryPolicy};

/// All keys, including those that the chosen backoff does not use: a route may choose another backoff.
#[derive(Debug, Clone)]
pub(super) struct RetryKeys {
    kind: Kind,
    ladder: Vec<Duration>,
    base: Duration,
    max: Duration,
    delay: Duration,
    max_attempts: u16,
    jitter: f64,
    deadline: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Ladder,
    Exponential,
    Fixed,
}

impl Kind {
    /// Keys that belong to one backoff only.
    const KEYS: [(&str, Self); 4] = [
        ("ladder", Self::Ladder),
        ("base", Self::Exponential),
        ("max", Self::Exponential),
        ("delay", Self::Fixed),
    ];

    fn as_str(self) -> &'static str {
        match self {
            Self::Ladder => "ladder",
            Self::Exponential => "exponential",
            Self::Fixed => "fixed",
        }
    }
}

impl RetryKeys {
    pub(super) fn policy(&self) -> RetryPolicy {
        let backoff = match self.kind {
            Kind::Ladder => Backoff::Ladder(self.ladder.clone()),
            Kind::Exponential => Backoff::Exponential {
                base: self.base,
                max: self.max,
            },
            Kind::Fixed => Backoff::Fixed(self.delay),
        };
        RetryPolicy {
            backoff,
            max_attempts: self.max_attempts,
            jitter: self.jitter,
            deadline: self.deadline,
        }
    }

    /// The defaults, used to continue reading when `[retry]` is invalid.
    fn any() -> Self {
        let minute = Duration::from_secs(60);
        Self {
            kind: Kind::Ladder,
            ladder: vec![minute],
            base: minute,
            max: minute,
            delay: minute,
            max_attempts: 1,
            jitter: 0.0,
            deadline: None,
        }
    }
}

/// Reads `[retry]`, in which every key has a default.
pub(super) fn retry(section: Reader, p: &mut Problems) -> Option<RetryKeys> {
    let below = RetryKeys::any();
    retry_over(section, &below, p)
}

/// Reads `retry = { max_attempts = 5, backoff = "exponential", base = "2s", max = "1h" }` of a route. Missing
/// keys are taken from `[retry]`. A key that belongs to one backoff selects it.
pub(super) fn route_retry(
    mut section: Reader,
    below: Option<&RetryKeys>,
    p: &mut Problems,
) -> Option<RetryKeys> {
    let mut below = below.cloned().unwrap_or_else(RetryKeys::any);
    let said: Option<Kind> = kind(&mut section, p);
    let given = Kind::KEYS.iter();
    let given: Vec<_> = given
        .filter(|(key, _)| section.table.contains_key(*key))
        .collect();
    below.kind = said
        .or(given.first().map(|(_, kind)| *kind))
        .unwrap_or(below.kind);
    let chosen = below.kind;
    for (key, kind) in given.into_iter().filter(|(_, kind)| *kind != chosen) {
        p.add(
            &section.at(key),
            format!(
                "belongs to `backoff = \"{}\"`, but this one is \"{}\"",
                kind.as_str(),
                chosen.as_str()
            ),
        );
    }
    retry_over(section, &below, p)
}

fn kind(section: &mut Reader, p: &mut Problems) -> Option<Kind> {
    let word: String = section.optional("backoff", p)?;
    let kinds = [Kind::Ladder, Kind::Exponential, Kind::Fixed];
    let found = kinds.into_iter().find(|kind| kind.as_str() == word);
    if found.is_none() {
        p.add(
            &section.at("backoff"),
            format!("`{word}` is none of `ladder`, `exponential`, `fixed`"),
        );
    }
    found
}

fn retry_over(mut section: Reader, below: &RetryKeys, p: &mut Problems) -> Option<RetryKeys> {
    const MILLISECOND: Duration = Duration::from_millis(1);
    let before = p.0.len();
    let kind = kind(&mut section, p);
    let rungs = checked(|rungs: &Vec<Span>| !rungs.is_empty(), "at least one rung");
    let ladder = section.given("ladder", p, rungs).flatten();
    let ladder = ladder.map(|rungs| rungs.into_iter().map(|span| span.0).collect());
    let base = section.given("base", p, at_least(MILLISECOND)).flatten();
    let max = section.given("max", p, at_least(MILLISECOND)).flatten();
    let delay = section
        .given("delay", p, at_least(Duration::ZERO))
        .flatten();
    let max_attempts = checked(|runs| *runs >= 1, "at least 1");
    let max_attempts = section.given("max_attempts", p, max_attempts).flatten();
    let jitter = section.given("jitter", p, within(0.0..=1.0)).flatten();
    let deadline = section
        .given("deadline", p, at_least_or_none(MILLISECOND))
        .flatten();
    let keys = RetryKeys {
        kind: kind.unwrap_or(below.kind),
        ladder: ladder.unwrap_or_else(|| below.ladder.clone()),
        base: base.unwrap_or(below.base),
        max: max.unwrap_or(below.max),
        delay: delay.unwrap_or(below.delay),
        max_attempts: max_attempts.unwrap_or(below.max_attempts),
        jitter: jitter.unwrap_or(below.jitter),
        deadline: deadline.unwrap_or(below.deadline),
    };
    if keys.kind == Kind::Exponential && keys.base > keys.max && p.0.len() == before {
        p.add(
            &section.at("max"),
            format!("expected at least `base`, which is {}", duration(keys.base)),
        );
    }
    section.done(p);
    Some(keys)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn read(text: &str) -> Config {
        Config::from_toml(text).unwrap()
    }

    fn problems(text: &str) -> String {
        Config::from_toml(text).unwrap_err().to_string()
    }

    #[test]
    fn all_routes_can_have_any_backoff() {
        let seconds = Duration::from_secs;
        let exponential = read("retry = { backoff = 'exponential', base = '2s', max = '1h' }");
        assert_eq!(
            exponential.retry.backoff,
            Backoff::Exponential {
                base: seconds(2),
                max: seconds(3600)
            }
        );
        let fixed = read("retry = { backoff = 'fixed', deadline = '24h' }");
        assert_eq!(fixed.retry.backoff, Backoff::Fixed(seconds(60)));
        assert_eq!(fixed.retry.deadline, Some(seconds(24 * 3600)));
        assert_eq!(read("").retry, RetryPolicy::default());
    }

    #[test]
    fn a_route_takes_what_it_does_not_say_from_all() {
        let all = "[retry]\nbackoff = 'exponential'\nbase = '2s'\nmax = '1h'\ndeadline = '1d'\n";
        let route = |keys: &str| {
            let text = format!("{all}[[routes]]\nmatch = '.'\nlog = {{}}\nretry = {{ {keys} }}");
            read(&text).routes[0].retry.clone().unwrap()
        };
        let of_all = read(all).retry;
        assert_eq!(
            route("max_attempts = 3"),
            RetryPolicy {
                max_attempts: 3,
                ..of_all.clone()
            }
        );
        assert_eq!(
            route("delay = '5s', deadline = 'none'"),
            RetryPolicy {
                backoff: Backoff::Fixed(Duration::from_secs(5)),
                deadline: None,
                ..of_all
            }
        );
    }

    #[test]
    fn what_does_not_fit_together_says_so() {
        let route = |keys: &str| {
            problems(&format!(
                "[[routes]]\nmatch = '.'\nlog = {{}}\nretry = {{ {keys} }}"
            ))
        };
        assert_eq!(
            route("backoff = 'fixed', base = '2s'"),
            "`routes[0].retry.base`: belongs to `backoff = \"exponential\"`, but this one is \"fixed\""
        );
        assert_eq!(
            route("base = '2h', max = '1h'"),
            "`routes[0].retry.max`: expected at least `base`, which is 2 h"
        );
        assert_eq!(
            problems("retry = { backoff = 'linear', ladder = [], deadline = '0s', jitter = 2.0 }"),
            "`retry.backoff`: `linear` is none of `ladder`, `exponential`, `fixed`\n\
             `retry.ladder`: expected at least one rung\n\
             `retry.jitter`: expected 0 to 1, found 2.0\n\
             `retry.deadline`: expected at least 1 ms, or \"none\", found \"0s\""
        );
    }
}
