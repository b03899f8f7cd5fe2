//! Where daemons see each other: a hash of notes, and whose turn it is to audit.

use std::time::Duration;

use redis::Value;

use super::{Keyspace, LedgerName, Names, RedisError};

/// Nobody writes a longer holder of the turn to audit.
const HOLDER_BYTES_MAX: usize = 64;

/// What the members of one ledger show. The keys have names of our own; see [`Names`](super::Names).
#[derive(Debug)]
pub struct Board {
    keyspace: Keyspace,
    ledger: LedgerName,
}

impl Board {
    /// Does no I/O. `ledger` tells the boards of several ledgers apart.
    pub fn new(keyspace: Keyspace, ledger: LedgerName) -> Self {
        Self { keyspace, ledger }
    }

    /// The name of the hash.
    fn notes(&self) -> String {
        self.keyspace.names().members(self.ledger.text())
    }

    /// Writes one note, and reads all there are: whose, and what it says. Nothing is checked.
    ///
    /// # Errors
    /// When Redis refuses or does not answer; the note may be there.
    pub async fn post(&self, id: &str, note: &str) -> Result<Vec<(Vec<u8>, Vec<u8>)>, RedisError> {
        let mut exchange = redis::pipe();
        let notes = self.notes();
        exchange.hset(&notes, id, note).ignore();
        exchange.hgetall(&notes);
        let (notes,) = self.keyspace.commands().send("HSET", &exchange).await?;
        Ok(notes)
    }

    /// Reads all notes there are: whose, and what it says. Nothing is checked.
    ///
    /// # Errors
    /// When Redis refuses or does not answer.
    pub async fn read(&self) -> Result<Vec<(Vec<u8>, Vec<u8>)>, RedisError> {
        let mut read = redis::pipe();
        read.hgetall(self.notes());
        let (notes,) = self.keyspace.commands().send("HGETALL", &read).await?;
        Ok(notes)
    }

    /// Removes notes.
    ///
    /// # Errors
    /// When Redis refuses or does not answer; any may be gone.
    pub async fn remove(&self, ids: &[Vec<u8>]) -> Result<(), RedisError> {
        let mut remove = redis::pipe();
        remove.hdel(self.notes(), ids).ignore();
        self.keyspace.commands().send("HDEL", &remove).await
    }

    /// Whether the daemon of this number is subscribed to its hints. It is sent an empty one: that takes no other right
    /// than passing hints on does.
    ///
    /// # Errors
    /// When Redis refuses or does not answer.
    pub async fn hears_hints(&self, member: u64) -> Result<bool, RedisError> {
        let mut publish = redis::pipe();
        publish.cmd("PUBLISH").arg(Names::hints(member)).arg("");
        let (receivers,): (u64,) = self.keyspace.commands().send("PUBLISH", &publish).await?;
        Ok(receivers > 0)
    }

    /// Takes the turn to audit for so long, if nobody has it or if it is this holder's. Answers who has it now.
    ///
    /// The name has the server's `run_id` where that may be asked: a restarted server, or the one that took its place,
    /// has not been audited by anybody.
    ///
    /// # Errors
    /// When Redis refuses or does not answer; the turn may be taken.
    pub async fn take_audit(&self, holder: &str, length: Duration) -> Result<Vec<u8>, RedisError> {
        let name = self.turn().await?;
        let mut take = redis::pipe();
        take.cmd("SET").arg(&name).arg(holder);
        take.arg("PX").arg(length.as_millis() as u64).arg("NX");
        take.cmd("GETRANGE").arg(&name).arg(0).arg(HOLDER_BYTES_MAX);
        let (taken, found): (Value, Vec<u8>) = self.keyspace.commands().send("SET", &take).await?;
        if taken != Value::Okay && found == holder.as_bytes() {
            self.set_audit(holder, length).await?;
        }
        Ok(found)
    }

    /// Gives the turn to this holder, whoever had it: for who has it.
    ///
    /// # Errors
    /// When Redis refuses or does not answer; it may be written.
    pub async fn set_audit(&self, holder: &str, length: Duration) -> Result<(), RedisError> {
        let mut keep = redis::pipe();
        keep.cmd("SET").arg(self.turn().await?).arg(holder);
        keep.arg("PX").arg(length.as_millis() as u64).ignore();
        self.keyspace.commands().send("SET", &keep).await
    }

    /// Gives the turn up, if this holder has it. Between the look and the deletion another may take it: two audit then.
    ///
    /// # Errors
    /// When Redis refuses or does not answer; the turn may be given up.
    pub async fn give_up_audit(&self, holder: &str) -> Result<(), RedisError> {
        let name = self.turn().await?;
        let mut look = redis::pipe();
        look.cmd("GETRANGE").arg(&name).arg(0).arg(HOLDER_BYTES_MAX);
        let (found,): (Vec<u8>,) = self.keyspace.commands().send("GETRANGE", &look).await?;
        if found != holder.as_bytes() {
            return Ok(());
        }
        let mut del = redis::pipe();
        del.cmd("DEL").arg(&name).ignore();
        self.keyspace.commands().send("DEL", &del).await
    }

    async fn turn(&self) -> Result<String, RedisError> {
        let run_id = self.keyspace.server().await?.run_id.unwrap_or_default();
        let audit = self.keyspace.names().audit(self.ledger.text());
        Ok(format!("{audit}:{run_id}"))
    }
}
