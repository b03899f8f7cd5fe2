//! Looking at keys that somebody armed: whose they are, and how long they have to live.

use super::keyspace::{OUR_VALUE, PIPELINE_MAX, Ttl, pipeline};
use super::{Heard, Keyspace, RedisError};
use crate::task::{TaskKey, UnixMs};

/// As much of a value as tells whether it is ours: a foreign one can be large.
const VALUE_END: usize = 31;

/// What a key was found to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// Whose it is. Nothing is known of one that is not there.
    pub value: Value,
    /// How long it has to live.
    pub ttl: Ttl,
}

/// Whose a key is, by its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value {
    /// Ours, armed for this due time.
    Ours(UnixMs),
    /// Somebody else's: of any type, of any size, usually empty.
    Foreign,
}

/// A page of the keys of a database.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScanPage {
    /// Those whose name is a task's.
    pub keys: Vec<TaskKey>,
    /// Where the next page begins; `None` at the end.
    pub next: Option<u64>,
}

impl Keyspace {
    /// Looks at keys, in their order, reading no more than the beginning of their values. Redis drops those that
    /// are due, and says so to every listener, because they are asked for. `None`: this user may not look at it.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn look(&self, keys: &[TaskKey]) -> Result<Vec<Option<Found>>, RedisError> {
        let mut found = Vec::with_capacity(keys.len());
        for chunk in keys.chunks(PIPELINE_MAX / 2) {
            let mut look = pipeline(2 * chunk.len());
            // `WRONGTYPE` says that it is not ours.
            look.ignore_errors();
            for key in chunk {
                let name = self.names().task(key);
                look.cmd("GETRANGE").arg(&name).arg(0).arg(VALUE_END);
                look.cmd("PTTL").arg(name);
            }
            let answers: Vec<redis::Value> = self.commands().send("GETRANGE", &look).await?;
            for pair in answers.chunks(2) {
                found.push(Found::read(pair)?);
            }
        }
        Ok(found)
    }

    /// Keys of the database whose name is a task's, some hundred at a time: Redis does nothing else meanwhile. A key that is there all the while is
    /// on one of the pages, and may be on two.
    ///
    /// # Errors
    /// When Redis refuses or does not answer.
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
            Heard::Sentinel(_) | Heard::Probe(_) | Heard::Fleet | Heard::Foreign(_) => None,
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
    fn only_a_due_time_with_our_mark_is_ours() {
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
