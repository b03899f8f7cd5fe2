//! Output of a program: its beginning, its last line, and the advice in the last line.

use std::time::Duration;

use super::HandlerError;

/// Prefix of a last line that gives advice.
const ADVICE_PREFIX: &str = "lapsed:";

/// Maximum length of the last line, in bytes.
const LAST_LINE_BYTES_MAX: usize = 1024;

/// Minimum snooze, so that a program that waits for something does not spin.
const SNOOZE_MIN: Duration = Duration::from_secs(1);

/// The beginning of a stream and its last line. The rest is discarded.
#[derive(Debug, Default)]
pub(super) struct Output {
    head: Vec<u8>,
    /// The end of the stream, with the last line.
    tail: Vec<u8>,
}

impl Output {
    /// Appends bytes, of which the first `head_bytes_max` of the stream are kept.
    pub fn push(&mut self, chunk: &[u8], head_bytes_max: usize) {
        let room = head_bytes_max - self.head.len();
        self.head.extend_from_slice(&chunk[..chunk.len().min(room)]);
        let recent = chunk.len().saturating_sub(LAST_LINE_BYTES_MAX);
        self.tail.extend_from_slice(&chunk[recent..]);
        let surplus = self.tail.len().saturating_sub(LAST_LINE_BYTES_MAX);
        self.tail.drain(..surplus);
    }

    /// The beginning.
    pub fn head(&self) -> &[u8] {
        &self.head
    }

    /// The end.
    pub fn tail(&self) -> &[u8] {
        &self.tail
    }

    /// Parses the last line; `None` if it does not begin with `lapsed:`.
    ///
    /// # Errors
    /// A text that says what was expected.
    pub fn advice(&self) -> Option<Result<Advice, String>> {
        let text = String::from_utf8_lossy(&self.tail);
        let line = text.trim_end().lines().next_back()?.trim();
        line.strip_prefix(ADVICE_PREFIX)
            .map(|advice| Advice::parse(advice.trim()))
    }
}

/// What a program can request for its task in addition to its exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Advice {
    /// `lapsed: retry-after 30s`
    RetryAfter(Duration),
    /// `lapsed: snooze 10m`
    Snooze(Duration),
    /// `lapsed: permanent`
    Permanent,
}

impl Advice {
    fn parse(text: &str) -> Result<Self, String> {
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        let delay = || {
            let delay = crate::task::parse_span(rest)?;
            Duration::try_from(delay).ok()
        };
        let advice = match word {
            "permanent" if rest.is_empty() => Some(Self::Permanent),
            "retry-after" => delay().map(Self::RetryAfter),
            "snooze" => delay().map(Self::Snooze),
            _ => None,
        };
        advice.ok_or_else(|| {
            format!(
                "last line `{ADVICE_PREFIX} {}` is not understood, expected `lapsed: retry-after 30s`, `lapsed: snooze 10m` or `lapsed: permanent`",
                crate::task::quoted(text)
            )
        })
    }

    /// Returns the error of the run.
    pub fn into_error(self, message: String) -> HandlerError {
        match self {
            Self::RetryAfter(delay) => HandlerError::retry_after(message, delay),
            Self::Snooze(delay) => HandlerError::snooze(delay.max(SNOOZE_MIN)),
            Self::Permanent => HandlerError::permanent(message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> Option<Result<Advice, String>> {
        let mut output = Output::default();
        // As it comes: in pieces.
        for piece in text.as_bytes().chunks(7) {
            output.push(piece, 10);
        }
        output.advice()
    }

    #[test]
    fn only_the_last_line_speaks() {
        let snooze = Some(Ok(Advice::Snooze(Duration::from_secs(600))));
        assert_eq!(said("lapsed: snooze 10m"), snooze);
        assert_eq!(said("noise\nlapsed: snooze 10m\n"), snooze);
        assert_eq!(
            said(&format!("{}\nlapsed: snooze 10m\r\n", "x".repeat(9_000))),
            snooze
        );
        assert_eq!(said("lapsed: snooze 10m\nbye\n"), None);
        assert_eq!(said(""), None);
        assert_eq!(said("not lapsed: permanent\n"), None);
    }

    #[test]
    fn each_advice_is_read_and_anything_else_says_what_was_expected() {
        let retry = Advice::RetryAfter(Duration::from_millis(1500));
        assert_eq!(said("lapsed: retry-after 1500ms\n"), Some(Ok(retry)));
        assert_eq!(said("lapsed: permanent\n"), Some(Ok(Advice::Permanent)));
        for wrong in [
            "lapsed: snooze",
            "lapsed: snooze 10",
            "lapsed: snooze -5s",
            "lapsed: permanent now",
            "lapsed: retry",
            "lapsed:",
        ] {
            let problem = said(wrong).unwrap().unwrap_err();
            assert!(problem.contains("is not understood, expected"), "{problem}");
        }
    }

    #[test]
    fn a_program_does_not_spin_by_snoozing_for_no_time_at_all() {
        let error = Advice::Snooze(Duration::ZERO).into_error(String::new());
        assert_eq!(error.to_string(), "snoozed for 1 s");
        let error = Advice::Snooze(Duration::from_secs(90)).into_error(String::new());
        assert_eq!(error.to_string(), "snoozed for 1 min 30 s");
    }

    #[test]
    fn the_beginning_is_kept_up_to_its_limit() {
        let mut output = Output::default();
        output.push(b"0123456", 10);
        output.push(b"789abc", 10);
        assert_eq!(output.head(), b"0123456789");
    }
}
