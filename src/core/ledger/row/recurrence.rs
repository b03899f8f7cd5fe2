//! A recurrence as it is stored.

use std::fmt;

use crate::task::{Recurrence, RecurrenceError};

/// The recurrence of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoredRecurrence {
    Known(Recurrence),
    /// A text that this version cannot parse. It stays as it is.
    Unknown(String, RecurrenceError),
}

impl StoredRecurrence {
    /// Reads the text form.
    pub fn read(text: &str) -> Self {
        match text.parse() {
            Ok(known) => Self::Known(known),
            Err(error) => Self::Unknown(text.to_owned(), error),
        }
    }

    pub fn parsed(self) -> Result<Recurrence, RecurrenceError> {
        match self {
            Self::Known(known) => Ok(known),
            Self::Unknown(_, error) => Err(error),
        }
    }

    #[must_use]
    pub fn changed(self, change: impl FnOnce(Recurrence) -> Recurrence) -> Self {
        match self {
            Self::Known(known) => Self::Known(change(known)),
            unknown @ Self::Unknown(..) => unknown,
        }
    }

    pub fn is_configured(&self) -> bool {
        match self {
            Self::Known(known) => known.is_configured(),
            Self::Unknown(..) => false,
        }
    }
}

/// The text form.
impl fmt::Display for StoredRecurrence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(known) => known.fmt(f),
            Self::Unknown(text, _) => f.write_str(text),
        }
    }
}
