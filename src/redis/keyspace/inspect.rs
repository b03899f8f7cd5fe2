//! Inspection of armed keys: value, remaining time, and the scan for them.

use super::{Keyspace, OUR_VALUE, PIPELINE_MAX, Ttl, pipeline};
use crate::{Heard, RedisError};
use lapsed_core::task::{TaskKey, UnixMs};

/// Index of the last byte read of a value. A value of another program can be large.
const VALUE_END: usize = 31;

/// Value and remaining time of an inspected key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// Which program armed it. Meaningless if the key is missing.
    pub value: Value,
    /// Its remaining time.
    pub ttl: Ttl,
}

/// Which program armed a key, according to its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value {
    /// lapsed, with this due time.
    Ours(UnixMs),
    /// Another program: a value of any type and size, usually empty.
    Foreign,
}

/// A page of the keys of a database.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScanPage {
    /// Keys whose names are task keys.
    pub keys: Vec<TaskKey>,
    /// Cursor of the next page; `None` after the last.
    pub next: Option<u64>,
}

impl Keyspace {
    /// Returns the value prefix and the remaining time of each key, in order. The access makes Redis delete due keys
    /// and publish their events. `None`: this user may not read the key.
    ///
    /// # Errors
    /// If Redis does not reply.
    pub async fn inspect(&self, keys: &[TaskKey]) -> Result<Vec<Option<Found>>, RedisError> {
        let mut found = Vec::with_capacity(keys.len());
        for chunk in keys.chunks(PIPELINE_MAX / 2) {
            let mut inspect = pipeline(2 * chunk.len());
            // `WRONGTYPE` means that another program wrote the key.
            inspect.ignore_errors();
            for key in chunk {
                let name = self.names().task(key);
                inspect.cmd("GETRANGE").arg(&name).arg(0).arg(VALUE_END);
                inspect.cmd("PTTL").arg(name);
            }
            let answers: Vec<redis::Value> = self.commands().send("GETRANGE", &inspect).await?;
            for pair in answers.chunks(2) {
                found.push(Found::read(pair)?);
            }
        }
        Ok(found)
    }

    /// Returns a page of keys whose names are task keys. One page covers a few hundred keys, because Redis serves no
    /// other client meanwhile. A key that exists during the whole scan appears on one page, or on two.
    ///
    /// # Errors
    /// If Redis rejects the command or does not reply.
    pub async fn scan(&self, cursor: u64) -> Result<ScanPage, RedisError> {
        const COUNT: usize = 250;
        let mut scan = redis::pipe();
        scan.cmd("SCAN")
            .arg(cursor)
            .arg("MATCH")
            .arg(self.names().pattern())
            .arg("COUNT")
            .arg(COUNT);
        let ((next, names),): ((u64, Vec<Vec<u8>>),) = self.commands().send("SCAN", &scan).await?;
        let task = |name: Vec<u8>| match self.names().read(&name) {
            Heard::Task(key) => Some(key),
            Heard::Sentinel(_) | Heard::Probe(_) | Heard::Shared | Heard::Foreign(_) => None,
        };
        Ok(ScanPage {
            keys: names.into_iter().filter_map(task).collect(),
            next: (next != 0).then_some(next),
        })
    }
}

impl Found {
    fn read(pair: &[redis::Value]) -> Result<Option<Self>, RedisError> {
        let [value, ttl] = pair else {
            return Err(RedisError::silence());
        };
        let ttl = match ttl {
            redis::Value::Int(pttl) => Ttl::from_answer(*pttl),
            redis::Value::ServerError(error) => {
                return match RedisError::of("PTTL", error.clone().into()) {
                    RedisError::NoPermission { .. } => Ok(None),
                    error => Err(error),
                };
            }
            _ => return Err(RedisError::silence()),
        };
        let value = match value {
            redis::Value::BulkString(start) => Value::read(start),
            _ => Value::Foreign,
        };
        Ok(Some(Self { value, ttl }))
    }
}

impl Value {
    /// Returns the due time that lapsed wrote.
    pub fn due(self) -> Option<UnixMs> {
        match self {
            Self::Ours(due) => Some(due),
            Self::Foreign => None,
        }
    }

    fn read(start: &[u8]) -> Self {
        let due = start.strip_prefix(OUR_VALUE.as_bytes());
        let due = due.and_then(|due| std::str::from_utf8(due).ok()?.parse().ok());
        due.map_or(Self::Foreign, |due| Self::Ours(UnixMs(due)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_of_lapsed_only_if_a_due_time_follows_the_prefix() {
        assert_eq!(
            Value::read(b"lapsed:1795291200250"),
            Value::Ours(UnixMs(1_795_291_200_250))
        );
        for foreign in [
            &b""[..],
            b"1",
            b"lapsed:",
            b"lapsed:soon",
            b"lapsed:12 ",
            b"\xff",
        ] {
            assert_eq!(Value::read(foreign), Value::Foreign, "{foreign:?}");
        }
    }
}
