//! The seam for documents: small JSON texts beside the tasks, such as the audit log.

use async_trait::async_trait;

use super::LedgerError;
use crate::task::UnixMs;

/// Maximum length of a name, in characters.
pub const DOCUMENT_NAME_CHARS_MAX: usize = 191;

/// Maximum length of a body, in bytes.
pub const DOCUMENT_BYTES_MAX: usize = 1 << 20;

/// What a document is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Collection {
    /// Changes that callers made.
    Audit,
    /// Samples of the history of starts, a document for each minute and daemon.
    History,
    /// Answers of batches that a client may send again.
    Idempotency,
    /// Sessions of browsers that were ended before their time.
    EndedSessions,
    /// Keys that all daemons share.
    SharedKeys,
}

impl Collection {
    /// Every collection.
    pub const ALL: [Self; 5] = [
        Self::Audit,
        Self::History,
        Self::Idempotency,
        Self::EndedSessions,
        Self::SharedKeys,
    ];

    /// The name in the ledger. At most 32 characters.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Audit => "audit",
            Self::History => "history",
            Self::Idempotency => "idempotency",
            Self::EndedSessions => "ended_sessions",
            Self::SharedKeys => "shared_keys",
        }
    }
}

/// A document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    /// Its name, unique in its collection.
    pub name: String,
    /// When it was inserted, by the ledger's clock.
    pub at: UnixMs,
    /// JSON.
    pub body: String,
}

impl Document {
    /// Its place in a list.
    pub fn place(&self) -> DocumentPlace {
        DocumentPlace {
            at: self.at,
            name: self.name.clone(),
        }
    }
}

/// A place in a list of documents: by time, then by name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DocumentPlace {
    /// When it was inserted.
    pub at: UnixMs,
    /// Its name.
    pub name: String,
}

impl DocumentPlace {
    /// After every document: the latest time that the column of MySQL takes.
    pub const END: Self = Self {
        at: UnixMs(9_999_999_999_999),
        name: String::new(),
    };
}

/// Which documents of a collection a page has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentRange {
    /// Inserted at this time or later.
    pub since: UnixMs,
    /// Before this place. The next page begins before the [place](Document::place) of the last document.
    pub before: DocumentPlace,
    /// Maximum number of documents.
    pub limit: u32,
}

impl DocumentRange {
    /// The latest documents.
    pub fn latest(limit: u32) -> Self {
        Self {
            since: UnixMs(0),
            before: DocumentPlace::END,
            limit,
        }
    }
}

/// Documents. Called by HTTP and by the history of the engine.
///
/// A ledger that was last migrated before documents existed refuses every call. Nothing that runs tasks depends on documents.
///
/// Names have 1 to [`DOCUMENT_NAME_CHARS_MAX`] visible ASCII characters, without spaces.
#[async_trait]
pub trait Documents: Send + Sync {
    /// Inserts a document, unless there is one of this name. Returns that one, or `None` if the new one was inserted.
    ///
    /// # If we crash right after
    /// The document is there.
    ///
    /// # Errors
    /// [`LedgerError::Invalid`] for a name or a body that does not fit.
    async fn insert_document(
        &self,
        collection: Collection,
        name: &str,
        body: &str,
    ) -> Result<Option<Document>, LedgerError>;

    /// Replaces the body of a document, which keeps its time. Returns false if there is none of this name.
    ///
    /// # Errors
    /// As for [`insert_document`](Self::insert_document).
    async fn replace_document(
        &self,
        collection: Collection,
        name: &str,
        body: &str,
    ) -> Result<bool, LedgerError>;

    /// Deletes a document. Returns false if there is none of this name.
    async fn delete_document(
        &self,
        collection: Collection,
        name: &str,
    ) -> Result<bool, LedgerError>;

    /// Reads a document.
    async fn find_document(
        &self,
        collection: Collection,
        name: &str,
    ) -> Result<Option<Document>, LedgerError>;

    /// Reads documents of a collection, newest first.
    async fn documents(
        &self,
        collection: Collection,
        range: &DocumentRange,
    ) -> Result<Vec<Document>, LedgerError>;

    /// Deletes up to `limit` of the documents that were inserted before `before`, oldest first. Returns how many.
    async fn delete_documents(
        &self,
        collection: Collection,
        before: UnixMs,
        limit: u32,
    ) -> Result<u64, LedgerError>;
}

/// Refuses a name that does not fit.
pub fn check_name(name: &str) -> Result<(), LedgerError> {
    let fits = (1..=DOCUMENT_NAME_CHARS_MAX).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_graphic());
    match fits {
        true => Ok(()),
        false => Err(LedgerError::Invalid(format!(
            "expected a name of a document of 1 to {DOCUMENT_NAME_CHARS_MAX} visible ASCII characters"
        ))),
    }
}

/// Refuses a name or a body that does not fit.
pub fn check_document(name: &str, body: &str) -> Result<(), LedgerError> {
    check_name(name)?;
    match body.len() {
        0..=DOCUMENT_BYTES_MAX => Ok(()),
        bytes => Err(LedgerError::Invalid(format!(
            "document has {bytes} bytes, expected at most {DOCUMENT_BYTES_MAX}"
        ))),
    }
}
