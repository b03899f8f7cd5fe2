//! The Redis of another system: reads in pages of bounded size, and removes what has not changed since.

use std::time::Duration;

use anyhow::Context;
use lapsed::config::{RedisConfig, Secret, SentinelUrl};
use lapsed::task::PAYLOAD_BYTES_MAX;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ConnectionAddr, FromRedisValue, IntoConnectionInfo};

use super::job::Place;
use super::scripts::{ELEMENTS, HASHES, RANGE, TAKE, TAKE_ELEMENTS, script};
use super::source::Fate;

/// Maximum number of entries in a page.
pub const PAGE: usize = 2_000;

/// Maximum number of elements of a list in a page.
const LIST_PAGE: usize = 20_000;

/// Maximum length of a value that is read. A longer one is no payload.
const VALUE_MAX: usize = PAYLOAD_BYTES_MAX + 16 * 1024;

/// A page ends when it has this many bytes.
const PAGE_BYTES: usize = 4 << 20;

/// A connection to the source.
pub struct Store {
    connection: MultiplexedConnection,
}

/// An entry of a sorted set.
pub struct Entry {
    /// Its beginning, if it [is too long](Self::oversize).
    pub member: Vec<u8>,
    /// As the server writes it.
    pub score: String,
    length: usize,
}

/// An element of a list.
pub struct Element {
    /// Its beginning, if it [is too long](Self::oversize).
    pub value: Vec<u8>,
    length: usize,
}

/// A field of a hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Field {
    Missing,
    Value(Vec<u8>),
    /// Too long to be read; its length.
    Oversize(usize),
}

/// The entry of a sorted set that was read last.
#[derive(Debug, Clone, Default)]
pub struct Cursor {
    score: String,
    member: Vec<u8>,
}

impl Entry {
    /// An entry that was read as a whole.
    #[cfg(feature = "fuzzing")]
    pub fn whole(member: &[u8], score: &str) -> Self {
        Self {
            member: member.to_vec(),
            score: score.to_owned(),
            length: member.len(),
        }
    }

    /// The score as a number.
    pub fn at(&self) -> f64 {
        self.score.parse().unwrap_or(f64::NAN)
    }

    /// Its length, if it is too long to be read.
    pub fn oversize(&self) -> Option<usize> {
        (self.length > self.member.len()).then_some(self.length)
    }

    /// Its place in this set.
    pub fn place(&self, set: &std::sync::Arc<str>) -> Place {
        Place {
            container: std::sync::Arc::clone(set),
            member: self.member.clone(),
            version: self.score.clone(),
            content: Vec::new(),
        }
    }
}

impl Element {
    /// Its length, if it is too long to be read.
    pub fn oversize(&self) -> Option<usize> {
        (self.length > self.value.len()).then_some(self.length)
    }
}

impl Field {
    /// The value as text.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Value(bytes) => std::str::from_utf8(bytes).ok(),
            Self::Missing | Self::Oversize(_) => None,
        }
    }
}

impl FromRedisValue for Field {
    fn from_redis_value(value: redis::Value) -> Result<Self, redis::ParsingError> {
        Ok(match value {
            redis::Value::Nil => Self::Missing,
            redis::Value::Int(length) => Self::Oversize(usize::try_from(length).unwrap_or(0)),
            value => Self::Value(Vec::from_redis_value(value)?),
        })
    }
}

/// A script that removes jobs from a sorted set.
pub struct RemovalScript {
    script: String,
    /// Field of the job's hash that must not have changed; empty: none.
    field: &'static str,
}

impl RemovalScript {
    pub fn new(field: &'static str, also: &str) -> Self {
        Self {
            script: TAKE.replace("{also}", also),
            field,
        }
    }
}

impl Store {
    /// Says what is wrong with a URL.
    pub fn check_url(url: &Secret) -> Result<(), String> {
        if SentinelUrl::is_one(url.expose()) {
            return Err(
                "an import reads one server, expected its URL, not that of sentinels".to_owned(),
            );
        }
        let info = url.expose().into_connection_info();
        info.map(drop).map_err(|error| error.to_string())
    }

    /// Connects with the time limits of the configuration.
    pub async fn connect(url: &Secret, limits: &RedisConfig) -> anyhow::Result<Self> {
        Self::check_url(url).map_err(anyhow::Error::msg)?;
        let info = url
            .expose()
            .into_connection_info()
            .context("read the URL of the source's Redis")?;
        if let ConnectionAddr::TcpTls { .. } = info.addr() {
            // rustls has one cryptography provider for each process. An installed one is kept.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        let node = info.addr().to_string();
        let client = redis::Client::open(info).context("read the URL of the source's Redis")?;
        let settings = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(limits.connect_timeout))
            // A page is a larger answer than any other command expects.
            .set_response_timeout(Some(limits.response_timeout.max(Duration::from_secs(5))));
        let connection = client
            .get_multiplexed_async_connection_with_config(&settings)
            .await
            .with_context(|| format!("connect to the source's Redis at {node}"))?;
        Ok(Self { connection })
    }

    /// A connection for other commands. Clones share it.
    pub fn connection(&self) -> MultiplexedConnection {
        self.connection.clone()
    }

    /// The number of entries of a sorted set.
    pub async fn count(&self, set: &str) -> anyhow::Result<u64> {
        let mut count = redis::cmd("ZCARD");
        let count = count.arg(set).query_async(&mut self.connection()).await;
        count.with_context(|| format!("count `{set}`"))
    }

    /// The next entries of a sorted set; none at its end.
    pub async fn range(&self, set: &str, cursor: &mut Cursor) -> anyhow::Result<Vec<Entry>> {
        let mut call = script(RANGE, 1);
        call.arg(set);
        call.arg(&cursor.score)
            .arg(&cursor.member)
            .arg(PAGE)
            .arg(VALUE_MAX)
            .arg(PAGE_BYTES);
        let found: Vec<redis::Value> = call
            .query_async(&mut self.connection())
            .await
            .with_context(|| format!("read the sorted set `{set}`"))?;
        let mut entries = Vec::with_capacity(found.len() / 3);
        let mut found = found.into_iter();
        while let (Some(member), Some(score), Some(length)) =
            (found.next(), found.next(), found.next())
        {
            entries.push(Entry {
                member: Vec::from_redis_value(member)?,
                score: String::from_redis_value(score)?,
                length: usize::from_redis_value(length)?,
            });
        }
        if let Some(last) = entries.last() {
            *cursor = Cursor {
                score: last.score.clone(),
                member: last.member.clone(),
            };
        }
        Ok(entries)
    }

    /// Elements of a list from an index on; none at its end. A list of a usual length is read at once.
    pub async fn elements(&self, list: &str, from: usize) -> anyhow::Result<Vec<Element>> {
        let mut call = script(ELEMENTS, 1);
        call.arg(list).arg(from).arg(LIST_PAGE);
        call.arg(VALUE_MAX).arg(PAGE_BYTES);
        let found: Vec<redis::Value> = call
            .query_async(&mut self.connection())
            .await
            .with_context(|| format!("read the list `{list}`"))?;
        let mut elements = Vec::with_capacity(found.len() / 2);
        let mut found = found.into_iter();
        while let (Some(value), Some(length)) = (found.next(), found.next()) {
            elements.push(Element {
                value: Vec::from_redis_value(value)?,
                length: usize::from_redis_value(length)?,
            });
        }
        Ok(elements)
    }

    /// Whether one of these keys exists.
    pub async fn any_exists(&self, keys: &[String]) -> anyhow::Result<bool> {
        let mut exists = redis::cmd("EXISTS");
        exists.arg(keys);
        let found: u64 = exists
            .query_async(&mut self.connection())
            .await
            .context("ask whether a queue is paused")?;
        Ok(found > 0)
    }

    /// Whether a hash has a field.
    pub async fn has_field(&self, key: &str, field: &str) -> anyhow::Result<bool> {
        let mut exists = redis::cmd("HEXISTS");
        exists.arg(key).arg(field);
        let found = exists.query_async(&mut self.connection()).await;
        found.context("ask whether a queue is paused")
    }

    /// Fields of hashes, in the order of `keys`. A key that is no hash has none.
    pub async fn hashes(
        &self,
        keys: &[Vec<u8>],
        fields: &[&str],
    ) -> anyhow::Result<Vec<Vec<Field>>> {
        let mut answers: Vec<Vec<Field>> = Vec::with_capacity(keys.len());
        while answers.len() < keys.len() {
            let rest = &keys[answers.len()..];
            let mut call = script(HASHES, rest.len());
            call.arg(rest).arg(VALUE_MAX).arg(PAGE_BYTES).arg(fields);
            let some: Vec<Vec<Field>> = call
                .query_async(&mut self.connection())
                .await
                .context("read the hashes of jobs")?;
            anyhow::ensure!(!some.is_empty(), "the source's Redis answered no hash");
            answers.extend(some);
        }
        Ok(answers)
    }

    /// Removes jobs that have not changed from their sorted set, each with its hash `<prefix><member>`. Says what
    /// became of each.
    pub async fn take(
        &self,
        set: &str,
        prefix: &str,
        places: &[&Place],
        removal: &RemovalScript,
    ) -> anyhow::Result<Vec<Fate>> {
        let mut call = script(&removal.script, 1);
        call.arg(set).arg(prefix).arg(removal.field);
        for place in places {
            call.arg(&place.member)
                .arg(&place.version)
                .arg(&place.content);
        }
        let fates: Vec<i64> = call
            .query_async(&mut self.connection())
            .await
            .with_context(|| format!("take jobs from `{set}`"))?;
        let fates = fates.into_iter().map(|fate| match fate {
            1 => Fate::Taken,
            2 => Fate::Gone,
            _ => Fate::Changed,
        });
        Ok(fates.collect())
    }

    /// Removes elements of a list.
    pub async fn take_elements(&self, list: &str, places: &[&Place]) -> anyhow::Result<u64> {
        let mut call = script(TAKE_ELEMENTS, 1);
        call.arg(list);
        for place in places {
            call.arg(&place.member);
        }
        let taken: Vec<u64> = call
            .query_async(&mut self.connection())
            .await
            .with_context(|| format!("take elements from `{list}`"))?;
        Ok(taken.iter().sum())
    }

    /// Names of keys of a type that begin with a text, sorted.
    pub async fn names(
        &self,
        prefix: &str,
        suffix: &str,
        kind: &str,
    ) -> anyhow::Result<Vec<String>> {
        let pattern = format!("{}*{}", escaped(prefix), escaped(suffix));
        let (mut names, mut cursor) = (std::collections::BTreeSet::new(), 0u64);
        loop {
            let mut scan = redis::cmd("SCAN");
            scan.arg(cursor).arg("MATCH").arg(&pattern);
            scan.arg("COUNT").arg(1000).arg("TYPE").arg(kind);
            let (next, found): (u64, Vec<Vec<u8>>) = scan
                .query_async(&mut self.connection())
                .await
                .with_context(|| format!("search keys like `{pattern}`"))?;
            names.extend(
                found
                    .into_iter()
                    .filter_map(|name| String::from_utf8(name).ok()),
            );
            cursor = next;
            if cursor == 0 {
                return Ok(names.into_iter().collect());
            }
        }
    }
}

/// A text as part of a pattern that matches only itself.
pub fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for char in text.chars() {
        if "*?[]\\^-".contains(char) {
            escaped.push('\\');
        }
        escaped.push(char);
    }
    escaped
}
