//! Commands that a client may not call, or not now.

use super::Dispatch;
use crate::resp::command::{Command, wrong_arity};
use crate::resp::error_code::ErrorCode;
use crate::resp::keys::key;
use crate::resp::parser::Args;
use crate::resp::reply::Reply;
use lapsed_core::access::{Denied, Principal};

impl Dispatch {
    /// Returns the error for a command that the client may not call, or not now.
    pub(super) fn refusal(&self, command: &Command, args: Args<'_>) -> Option<Reply> {
        let name = command.name;
        if !command.takes(args.len()) {
            return Some(wrong_arity(name));
        }
        match &self.session.user {
            None if !command.is_open() => {
                return Some(Reply::error(ErrorCode::NoAuth, "Authentication required."));
            }
            Some(user) if !command.scope.is_none_or(|scope| user.has(scope)) => {
                return Some(Reply::no_permission(name));
            }
            Some(user) => {
                if let Err(denied) = require_keys(user, command, args) {
                    return Some(Reply::denied(&denied));
                }
            }
            None => {}
        }
        let subscribes = ["subscribe", "unsubscribe", "psubscribe", "punsubscribe"].contains(&name);
        if self.session.is_subscriber() && !subscribes && !["ping", "quit", "reset"].contains(&name)
        {
            return Some(Reply::err(format_args!(
                "Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context"
            )));
        }
        if self.session.transaction.is_some() && subscribes {
            return Some(Reply::err(format_args!(
                "'{name}' is not allowed between MULTI and EXEC"
            )));
        }
        None
    }
}

/// Rejects a command about tasks of other classes than those of a user.
fn require_keys(user: &Principal, command: &Command, args: Args<'_>) -> Result<(), Denied> {
    if !user.is_restricted() {
        return Ok(());
    }
    let places = command.key_places(args, 0);
    let mut keys = places.filter_map(|place| args.get(place).and_then(key));
    keys.try_for_each(|key| user.require_key(&key))
}
