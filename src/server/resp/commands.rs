//! All commands. A new topic is a file with `COMMANDS`, and a line here.

use std::sync::LazyLock;

use super::command::Registry;
use super::{client, clock, expiry, handshake, keys, lapsed, pubsub, server, strings, workers};

/// The table of all commands.
pub static REGISTRY: LazyLock<Registry> = LazyLock::new(|| {
    Registry::new(&[
        handshake::COMMANDS,
        client::COMMANDS,
        server::COMMANDS,
        pubsub::COMMANDS,
        strings::COMMANDS,
        expiry::COMMANDS,
        keys::COMMANDS,
        lapsed::COMMANDS,
        clock::COMMANDS,
        workers::COMMANDS,
    ])
});
