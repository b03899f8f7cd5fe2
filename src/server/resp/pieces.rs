//! Commands with many keys are divided, so that others are not kept waiting.

use super::keyed::{Key, Keyed};
use super::reply::Reply;

/// Divides a command with many keys.
pub fn pieces(command: &Keyed, keys_max: usize) -> Vec<Keyed> {
    let (Keyed::Delete(keys) | Keyed::Exists(keys) | Keyed::Cancel(keys)) = command else {
        return vec![command.clone()];
    };
    let piece = |keys: &[Key]| match command {
        Keyed::Delete(_) => Keyed::Delete(keys.to_vec()),
        Keyed::Exists(_) => Keyed::Exists(keys.to_vec()),
        _ => Keyed::Cancel(keys.to_vec()),
    };
    keys.chunks(keys_max).map(piece).collect()
}

/// The reply to a command, from those to its pieces.
pub enum Whole {
    /// To a command that is not divided.
    One(Option<Reply>),
    /// A number of keys.
    Count(i64),
    /// A reply for each key.
    Each(Vec<Reply>),
}

impl Whole {
    /// No piece is answered yet.
    pub fn of(command: &Keyed) -> Self {
        match command {
            Keyed::Delete(_) | Keyed::Exists(_) => Self::Count(0),
            Keyed::Cancel(_) => Self::Each(Vec::new()),
            _ => Self::One(None),
        }
    }

    /// Adds the reply to a piece. Returns it if it is an error.
    pub fn add(&mut self, reply: Reply) -> Result<(), Reply> {
        match (self, reply) {
            (Self::One(one), reply) => *one = Some(reply),
            (Self::Count(count), Reply::Int(number)) => *count += number,
            (Self::Each(each), Reply::Array(replies)) => each.extend(replies),
            (_, error) => return Err(error),
        }
        Ok(())
    }

    /// Returns the reply to the whole command.
    pub fn reply(self) -> Reply {
        match self {
            Self::One(one) => one.expect("one reply to one command"),
            Self::Count(count) => Reply::Int(count),
            Self::Each(each) => Reply::Array(each),
        }
    }
}
