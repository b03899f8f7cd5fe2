//! Several daemons on one ledger: who is there, and whose a task is.
//!
//! Each daemon is a *member*: it shows a [`Note`] on the [`Roster`] every second and reads those of the others. A
//! task belongs to the live member that can run it, takes work, and has the greatest weight for its key. Only its
//! owner asks for its key at the due millisecond and claims it then; the others come in when it is overdue.
//!
//! The eldest members hear what happens to all keys, whatever the number of members: the first of them adopts what other
//! programs arm and passes on to each owner what has expired, the second does so if the first is gone or did not, and the third
//! only remembers it for some seconds.
//!
//! **Nothing here is needed for safety.** The claim decides who runs a task. A member list that is wrong, old or
//! missing costs some statements that match nothing, or a second of lateness: whoever knows of no other owns all.

pub mod memory;
mod note;
pub mod redis_roster;
mod share;
mod skilled;
mod weight;

use std::time::Duration;

use async_trait::async_trait;

use crate::task::UnixMs;

pub use self::note::{MemberId, NOTE_BYTES_MAX, Note, Readiness, Skills, VERSION};
pub use self::share::{Change, Division, Elder, Share};

/// How often a member shows itself and looks at the others.
pub const REFRESH: Duration = Duration::from_secs(1);

/// How long a note is believed, and how long what was read is.
pub const LIFETIME: Duration = Duration::from_secs(3);

/// How many of the eldest members hear what happens to all keys. With three, two of them can die at once and nothing
/// that happened meanwhile is lost.
pub const LISTENERS: usize = 3;

/// Most members that are counted with, ourselves included.
pub const MEMBERS_MAX: usize = 256;

/// How long an audit keeps the others from auditing.
pub const AUDIT_TURN: Duration = Duration::from_secs(60);

/// Where members see each other.
///
/// # If we crash right after a call
/// Our note is not believed any more when its time is over.
#[async_trait]
pub trait Roster: Send + Sync + 'static {
    /// Shows a note in place of our last one, and reads what all show, ours among them. `now` is the ledger's: notes
    /// that are long over by it may be removed.
    async fn exchange(&self, own: &Note, now: UnixMs) -> Result<Vec<Note>, RosterError>;

    /// Takes our note away, and gives up our turn to audit if we have it.
    async fn leave(&self, id: MemberId) -> Result<(), RosterError>;

    /// Whether this member still hears: one that was killed is known to be gone long before its note is over. Only asked
    /// about members that can be passed something. `true` where it cannot be told.
    async fn hears(&self, _id: MemberId) -> Result<bool, RosterError> {
        Ok(true)
    }

    /// Takes the turn to audit, for [`AUDIT_TURN`], or prolongs it if it is ours already. A finished audit that serves
    /// `wanted` makes one of our own unnecessary. A timer that lost its data, or is another one, has not been audited.
    async fn take_audit(&self, id: MemberId, wanted: Audit) -> Result<Turn, RosterError>;

    /// Gives up the turn of a member that is gone, if it still has it.
    async fn release_audit(&self, gone: MemberId) -> Result<(), RosterError>;

    /// Says that this audit of ours is finished.
    async fn audited(&self, id: MemberId, audit: Audit) -> Result<(), RosterError>;
}

/// An audit, finished or wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Audit {
    /// When it began, on the ledger's clock; a wanted one has to begin after this.
    pub began: UnixMs,
    /// [`Skills::digest`] of the daemon: it adopts only keys that it can run.
    pub skills: u64,
}

impl Audit {
    /// Whether this finished audit makes the wanted one unnecessary.
    pub fn serves(self, wanted: Self) -> bool {
        self.began > wanted.began && self.skills == wanted.skills
    }
}

/// Whose turn it is to audit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// Ours.
    Ours,
    /// Another member's, who is at it, or was a moment ago. `None`: it cannot be read who that is.
    Others(Option<MemberId>),
    /// Nobody's: an audit that serves is over.
    Over,
}

/// Why the roster could not be asked.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct RosterError {
    message: String,
    transient: bool,
    #[source]
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl RosterError {
    /// An error with its cause kept, and whether it may pass by itself.
    pub fn new(
        message: impl Into<String>,
        transient: bool,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self {
            message: message.into(),
            transient,
            source: Some(source.into()),
        }
    }

    /// Whether it may pass without anybody mending anything.
    pub fn is_transient(&self) -> bool {
        self.transient
    }
}
