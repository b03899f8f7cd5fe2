//! Causes in words, for people and programs.

use super::WhyCause;
use crate::diagnosis::{Message, Phrase, Value};
use crate::task::{Pause, State, UnixMs};

impl WhyCause {
    /// One word for programs, whether a person has to act before the task can start, and what to do.
    fn meaning(&self) -> (&'static str, bool, Option<Phrase>) {
        match self {
            Self::Ended(State::Dead, _) => ("ended", false, Some(Phrase::EndedDo)),
            Self::Ended(..) => ("ended", false, None),
            Self::Running(_) | Self::OlderRuns(_) => ("running", false, None),
            Self::NotDue(_) => ("not_due", false, None),
            Self::Retry(..) => ("retry", false, None),
            Self::After(..) => ("after", false, Some(Phrase::AfterDo)),
            Self::AfterDead(..) => ("after", true, Some(Phrase::AfterDeadDo)),
            Self::Starting => ("starting", false, None),
            Self::Paused(_) => ("paused", false, Some(Phrase::PausedDo)),
            Self::Held(_) => ("held", false, Some(Phrase::HeldDo)),
            Self::Ledger(_) => ("ledger", true, Some(Phrase::CheckLedger)),
            Self::NoDaemon => ("no_daemon", true, Some(Phrase::NoDaemonDo)),
            Self::NoRoute | Self::NoRouteHere => ("no_route", true, Some(Phrase::NoRouteDo)),
            Self::Away(_) => ("away", true, Some(Phrase::AwayDo)),
            Self::NoWorker(..) | Self::NoWorkerHere(_) => {
                ("no_worker", true, Some(Phrase::NoWorkerDo))
            }
            Self::Concurrency(_) => ("no_slot", false, Some(Phrase::ConcurrencyDo)),
            Self::NoSlot => ("no_slot", false, Some(Phrase::NoSlotDo)),
            Self::Rate(_) => ("rate", false, Some(Phrase::RateDo)),
            Self::Unheard => ("unheard", true, Some(Phrase::UnheardDo)),
            Self::Unknown => ("unknown", true, Some(Phrase::UnknownDo)),
        }
    }

    /// One word, for programs.
    pub fn as_str(&self) -> &'static str {
        self.meaning().0
    }

    /// True if a person has to act before the task can start.
    pub fn is_trouble(&self) -> bool {
        self.meaning().1
    }

    /// What to do, if there is something to do.
    pub fn advice(&self) -> Option<Phrase> {
        self.meaning().2
    }

    /// Since when it is so, if that is known.
    pub fn since(&self) -> Option<UnixMs> {
        match self {
            Self::Paused(pause) | Self::Held(pause) => Some(pause.since),
            Self::Ended(_, since) | Self::Ledger(since) | Self::NoWorker(_, since) => *since,
            _ => None,
        }
    }

    /// True if its class or everything is paused, or it is held.
    pub fn is_kept_back(&self) -> bool {
        matches!(self, Self::Paused(_) | Self::Held(_))
    }

    /// What is so, of one task or of several.
    pub fn says(&self) -> Vec<Message> {
        let text = |text: &str| Value::Text(text.to_owned());
        let number = |number: u64| Value::Count(number);
        let of_pause = |first: Message, pause: &Pause| {
            let words = [
                (Phrase::PausedBy, &pause.by),
                (Phrase::PausedReason, &pause.reason),
            ];
            let words = words.into_iter().filter(|(_, word)| !word.is_empty());
            let words = words.map(|(phrase, word)| Message::new(phrase, [text(word)]));
            let until = pause
                .until
                .map(|until| Message::new(Phrase::PausedUntil, [Value::Time(until)]));
            std::iter::once(first).chain(until).chain(words).collect()
        };
        let message = match self {
            Self::Ended(state, Some(at)) => {
                let values = [Value::State(*state), Value::Time(*at)];
                Message::new(Phrase::EndedSince, values)
            }
            Self::Ended(state, None) => Message::new(Phrase::Ended, [Value::State(*state)]),
            Self::Running(daemon) => Message::new(Phrase::Running, [text(daemon)]),
            Self::OlderRuns(daemon) => Message::new(Phrase::OlderRuns, [text(daemon)]),
            Self::NotDue(at) => Message::new(Phrase::NotDue, [Value::Time(*at)]),
            Self::Retry(at, attempt, max) => {
                let phrase = max.map_or(Phrase::Retry, |_| Phrase::RetryOf);
                let numbers = [Some(*attempt), *max].into_iter().flatten();
                let numbers = numbers.map(|it| number(u64::from(it)));
                let values = std::iter::once(Value::Time(*at)).chain(numbers);
                Message::new(phrase, values.collect::<Vec<Value>>())
            }
            Self::After(tag, again) => {
                Message::new(Phrase::After, [text(tag), Value::Time(*again)])
            }
            Self::AfterDead(tag, again) => {
                Message::new(Phrase::AfterDead, [text(tag), Value::Time(*again)])
            }
            Self::Starting => Phrase::Starting.into(),
            Self::Paused(pause) => {
                let since = Value::Time(pause.since);
                let first = match pause.scope.is_everything() {
                    true => Message::new(Phrase::EverythingPaused, [since]),
                    false => Message::new(Phrase::Paused, [text(&pause.scope.to_string()), since]),
                };
                return of_pause(first, pause);
            }
            Self::Held(pause) => {
                let first = Message::new(Phrase::Held, [Value::Time(pause.since)]);
                return of_pause(first, pause);
            }
            Self::Ledger(None) => Phrase::LedgerFails.into(),
            Self::Ledger(Some(since)) => {
                Message::new(Phrase::LedgerFailsSince, [Value::Time(*since)])
            }
            Self::NoDaemon => Phrase::NoDaemon.into(),
            Self::NoRoute => Phrase::NoRoute.into(),
            Self::NoRouteHere => Phrase::NoRouteHere.into(),
            Self::Away(names) if names.is_empty() => Phrase::Away.into(),
            Self::Away(names) => Message::new(Phrase::AwayNamed, [text(&names.join(", "))]),
            Self::NoWorker(None, _) => Phrase::NoWorker.into(),
            Self::NoWorker(Some(queue), None) => Message::new(Phrase::NoWorkerOf, [text(queue)]),
            Self::NoWorker(Some(queue), Some(since)) => {
                Message::new(Phrase::NoWorkerSince, [text(queue), Value::Time(*since)])
            }
            Self::NoWorkerHere(None) => Phrase::NoWorkerHere.into(),
            Self::NoWorkerHere(Some(queue)) => Message::new(Phrase::NoWorkerHereOf, [text(queue)]),
            Self::Concurrency(limit) => {
                Message::new(Phrase::Concurrency, [number(u64::from(*limit))])
            }
            Self::NoSlot => Phrase::NoSlot.into(),
            Self::Rate(rate) => Message::new(Phrase::Rate, [text(&rate.to_string())]),
            Self::Unheard => Phrase::Unheard.into(),
            Self::Unknown => Phrase::Unknown.into(),
        };
        vec![message]
    }

    /// What is so, in English sentences.
    pub fn text(&self) -> String {
        self.text_with(|at| at.to_string())
    }

    /// What is so, in English sentences, with times as `time` shows them.
    pub fn text_with(&self, time: impl Fn(UnixMs) -> String) -> String {
        let says = self.says();
        let sentences = says.iter().map(|message| message.sentence_with(&time));
        sentences.collect::<Vec<_>>().join(" ")
    }

    /// What to do, in English, if there is something to do.
    pub fn remedy(&self) -> Option<&'static str> {
        self.advice().map(Phrase::english)
    }
}
