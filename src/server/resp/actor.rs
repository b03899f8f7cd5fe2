//! Who changes tasks, for the audit log.

use std::net::SocketAddr;

use super::server_state::ServerState;
use crate::net::audit_log::{AuditLog, Source};
use lapsed::task::TaskKey;
use lapsed_core::access::{Principal, Proof};

/// What a change is called in the audit log, as over HTTP.
pub type Verb = &'static str;

/// The user of a connection that changes tasks. Only changes of users with a password have entries.
pub struct Actor<'a> {
    /// The RESP server.
    pub server: &'a ServerState,
    audited: Option<Audited<'a>>,
}

struct Audited<'a> {
    log: &'a AuditLog,
    user: &'a str,
    address: String,
}

impl<'a> Actor<'a> {
    /// A user who is connected from this address.
    pub fn new(server: &'a ServerState, user: Option<&'a Principal>, from: SocketAddr) -> Self {
        let has_password = |user: &&Principal| matches!(user.proof, Proof::Password(_));
        let logged = server.audit_log.as_ref().zip(user.filter(has_password));
        Self {
            server,
            audited: logged.map(|(log, user)| Audited {
                log,
                user: &user.name,
                address: from.ip().to_string(),
            }),
        }
    }

    /// True if its changes have entries.
    pub fn is_audited(&self) -> bool {
        self.audited.is_some()
    }

    /// Notes changes that are committed.
    pub fn changed<'k>(&self, changes: impl IntoIterator<Item = (Verb, &'k TaskKey)>) {
        if let Some(Audited { log, user, address }) = &self.audited {
            let source = Source {
                caller: user,
                address,
            };
            log.add_tasks(source, changes);
        }
    }
}
