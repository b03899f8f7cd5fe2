//! `LAPSED.ADVANCE`, with which tests need not wait.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use super::command::{Command, Run};
use super::parser::Args;
use super::reply::Reply;
use super::server_state::ServerState;
use super::session::Session;
use super::strings::positive;
use lapsed::task::DELAY_MAX;
use lapsed_core::access::AccessScope as Scope;

/// The commands of this file.
#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command { name: "lapsed.advance", arity: 2, scope: Some(Scope::Admin), run: Run::Later(advance), keys: (0, 0, 0),
        summary: "Sets the clock of `lapsed dev` forward, so that tasks fall due. Returns the new time in Unix milliseconds.",
        usage: "milliseconds" },
];

/// The name in errors, as Redis writes it.
const ADVANCE: &str = "lapsed.advance";

fn advance(_: &Session, server: &Arc<ServerState>, args: Args<'_>) -> BoxFuture<'static, Reply> {
    let clock = server.clock.clone();
    let by = positive(args.get(1).unwrap_or_default(), 1, ADVANCE);
    async move {
        let by = match by {
            Ok(by) => Duration::from_millis(by.unsigned_abs()),
            Err(refused) => return refused,
        };
        let Some(clock) = clock else {
            return Reply::err(
                "only `lapsed dev` has a clock that can be set: this daemon follows that of its ledger",
            );
        };
        if by > DELAY_MAX {
            return Reply::err("the clock is set forward by at most 10 years");
        }
        match clock.set_forward(by).await {
            Ok(now) => Reply::Int(now.0),
            Err(why) => Reply::err(why),
        }
    }
    .boxed()
}
