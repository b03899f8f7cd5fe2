//! Progress of a run: how far it is, as its handler or its worker reports it.

use std::fmt;
use std::sync::{Mutex, MutexGuard};

use super::Owner;
use crate::format::hex;
use crate::task::HIDDEN;

/// Longest text of a report, in characters. A longer one is cut.
const TEXT_CHARS_MAX: usize = 200;

/// How far a run is.
// The comments of the members are their descriptions in `openapi.json`.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Progress {
    /// From 0 to 100.
    percent: u8,
    /// What it does; empty if it does not say.
    text: String,
}

/// A percentage that is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected a percentage from 0 to 100, found {found}")]
pub struct ProgressError {
    found: i64,
}

impl Progress {
    /// Checks the percentage, and cuts the text to 200 characters.
    ///
    /// # Errors
    /// The percentage is not from 0 to 100.
    pub fn new(percent: i64, text: &str) -> Result<Self, ProgressError> {
        let checked = u8::try_from(percent).ok().filter(|percent| *percent <= 100);
        Ok(Self {
            percent: checked.ok_or(ProgressError { found: percent })?,
            text: text.chars().take(TEXT_CHARS_MAX).collect(),
        })
    }

    /// From 0 to 100.
    pub fn percent(&self) -> u8 {
        self.percent
    }

    /// What the run does; empty if it does not say.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Takes out the text, which may quote the payload.
    pub(super) fn hide_text(&mut self) {
        if !self.text.is_empty() {
            HIDDEN.clone_into(&mut self.text);
        }
    }

    /// The line that a row keeps: `<owner> <percent> <text>`. It names the claim that reported it, so it says nothing of
    /// another one: what ends a run need not clear it.
    #[doc(hidden)] // for the adapters
    pub fn to_line(&self, owner: Owner) -> String {
        let Self { percent, text } = self;
        format!("{} {percent} {text}", hex(owner.0))
    }

    /// Reads the line of a row. `None` if another claim than that of `owner` reported it.
    #[doc(hidden)] // for the adapters
    pub fn of_line(line: &str, owner: Option<Owner>) -> Option<Self> {
        let rest = line.strip_prefix(&hex(owner?.0))?;
        let (percent, text) = rest.strip_prefix(' ')?.split_once(' ')?;
        Self::new(percent.parse().ok()?, text).ok()
    }
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { percent, text } = self;
        match text.is_empty() {
            true => write!(f, "{percent} %"),
            false => write!(f, "{percent} %, {text}"),
        }
    }
}

/// The latest progress of a run that is not written yet. A handler sets it, and the next renewal of its lease writes it.
#[derive(Debug, Default)]
pub struct LatestProgress(Mutex<Option<Progress>>);

impl LatestProgress {
    /// Replaces what was not written.
    pub fn set(&self, progress: Progress) {
        *self.unwritten() = Some(progress);
    }

    /// Takes what is to be written.
    pub fn take(&self) -> Option<Progress> {
        self.unwritten().take()
    }

    /// Gives back what could not be written. Later progress counts.
    pub fn give_back(&self, progress: Progress) {
        self.unwritten().get_or_insert(progress);
    }

    fn unwritten(&self) -> MutexGuard<'_, Option<Progress>> {
        self.0.lock().expect("nothing panics while holding it")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: Owner = Owner([0x0f; 16]);

    #[test]
    fn a_percentage_is_from_0_to_100() {
        for percent in [0, 1, 100] {
            let progress = Progress::new(percent, "").unwrap();
            assert_eq!(i64::from(progress.percent()), percent);
        }
        for percent in [-1, 101, 256, i64::MAX, i64::MIN] {
            let error = Progress::new(percent, "").unwrap_err();
            let expected = format!("expected a percentage from 0 to 100, found {percent}");
            assert_eq!(error.to_string(), expected);
        }
    }

    #[test]
    fn a_text_is_cut_to_what_the_column_has_room_for() {
        let progress = Progress::new(100, &"é".repeat(201)).unwrap();
        assert_eq!(progress.text(), "é".repeat(200));
        // VARCHAR(255) counts characters.
        assert!(progress.to_line(OWNER).chars().count() <= 255);
    }

    #[test]
    fn the_line_of_a_row_is_of_one_claim() {
        for text in ["", "row 4 of 10", " a\nb "] {
            let progress = Progress::new(40, text).unwrap();
            let line = progress.to_line(OWNER);
            assert_eq!(Progress::of_line(&line, Some(OWNER)), Some(progress));
            assert_eq!(Progress::of_line(&line, Some(Owner([0x0e; 16]))), None);
            assert_eq!(Progress::of_line(&line, None), None);
        }
        let of = |rest: &str| Progress::of_line(&format!("{}{rest}", hex(OWNER.0)), Some(OWNER));
        for rest in ["", " ", " 40", "40 x", " 101 x", " -1 x", " x x"] {
            assert_eq!(of(rest), None, "{rest}");
        }
    }

    #[test]
    fn progress_that_could_not_be_written_gives_way_to_later_progress() {
        let [first, second] = [1, 2].map(|percent| Progress::new(percent, "").unwrap());
        let latest = LatestProgress::default();
        latest.give_back(first.clone());
        assert_eq!(latest.take(), Some(first.clone()));
        assert_eq!(latest.take(), None);
        latest.set(second.clone());
        latest.give_back(first);
        assert_eq!(latest.take(), Some(second));
    }
}
