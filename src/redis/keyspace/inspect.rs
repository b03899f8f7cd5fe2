//! Inspection of armed keys: owner and remaining time to live, and the scan for them.

use super::keyspace::{OUR_VALUE, PIPELINE_MAX, Ttl, pipeline};
use super::{Heard, Keyspace, RedisError};
use crate::task::{TaskKey, UnixMs};

/// Index of the last byte that is read of a value: a foreign value can be large.
const VALUE_END: usize = 31;

/// Owner and time to live of an inspected key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// Who armed it. Meaningless if the key is missing.
    pub value: Value,
    /// Its time to live.
    pub ttl: Ttl,
}

/// Who armed a key, by its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value {
    /// lapsed, for this due time.
    Ours(UnixMs),
    /// Another program: a value of any type and size, usually empty.
    Foreign,
}

/// A page of the keys of a database.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScanPage {
    /// The keys whose name is a task's.
    pub keys: Vec<TaskKey>,
    /// Where the next page begins; `None` at the end.
    pub next: Option<u64>,
}

impl Keyspace {
    /// Reads the beginning of the values and the time to live of these keys, in their order. Redis expires those that are
    /// due and publishes their events, because they are accessed. `None`: this user may not read the key.
    ///
    /// # Errors
    /// If Redis does not answer.
    pub async fn inspect(&self, keys: &[TaskKey]) -> Result<Vec<Option<Found>>, RedisError> {
        let mut found = Vec::with_capacity(keys.len());
        for chunk in keys.chunks(PIPELINE_MAX / 2) {
            let mut inspect = pipeline(2 * chunk.len());
            // `WRONGTYPE` means that it is not ours.
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

    /// Returns a page of the keys whose name is a task's. A page covers some hundred keys, since Redis does nothing else
    /// meanwhile. A key that exists during the whole scan is on one of the pages, and may be on two.
    ///
    /// # Errors
    /// If Redis refuses or does not answer.
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
    fn a_value_is_ours_only_if_a_due_time_follows_our_prefix() {
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
