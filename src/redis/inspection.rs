//! Diagnostic information about a server and its clients.

use std::collections::HashMap;
use std::str::FromStr;

use redis::FromRedisValue;

use super::{Commands, Names, ProbeId, RedisError};
use lapsed_core::task::UnixMs;

/// Queries a server for diagnosis. Each query is separate, so that one error reply does not affect the others.
#[derive(Debug, Clone)]
pub struct Inspection {
    commands: Commands,
}

/// Named values as reported by the server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts(HashMap<String, String>);

/// Clients that receive the events of a channel.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listeners {
    /// Clients subscribed to the channel by name.
    pub by_name: u64,
    /// Distinct patterns of all clients; the server does not list them.
    pub patterns: u64,
    /// Clients subscribed to patterns; `None` if the server does not say.
    pub by_pattern: Option<Vec<Client>>,
    /// Daemons of any ledger that receive all events: they are subscribed to the marks of their ledgers.
    pub daemons: u64,
}

/// A client with subscriptions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Client {
    /// Its address, as `host:port`.
    pub address: String,
    /// Its client name or library name.
    pub name: Option<String>,
}

impl Inspection {
    /// Does no I/O.
    pub fn new(commands: Commands) -> Self {
        Self { commands }
    }

    /// Returns all fields of `INFO`.
    ///
    /// # Errors
    /// If Redis rejects the command or does not reply. This holds for all methods here.
    pub async fn info(&self) -> Result<Facts, RedisError> {
        let info: String = self.ask("INFO", &["INFO"]).await?;
        Ok(Facts::from_info(&info))
    }

    /// Returns these settings, by name. A managed server may omit some.
    pub async fn settings(&self, names: &[&str]) -> Result<Facts, RedisError> {
        let mut facts = HashMap::new();
        for name in names {
            // Servers before 7.0 accept one name for each command.
            let pair: Vec<String> = self.ask("CONFIG GET", &["CONFIG", "GET", name]).await?;
            if let [name, value] = &pair[..] {
                facts.insert(name.clone(), value.clone());
            }
        }
        Ok(Facts(facts))
    }

    /// The server's clock.
    pub async fn time(&self) -> Result<UnixMs, RedisError> {
        let (seconds, micros): (i64, i64) = self.ask("TIME", &["TIME"]).await?;
        Ok(UnixMs(
            seconds.saturating_mul(1000).saturating_add(micros / 1000),
        ))
    }

    /// Returns who listens to `channel`, without this connection.
    pub async fn listeners(&self, channel: &str) -> Result<Listeners, RedisError> {
        let (_, by_name): (String, u64) = self
            .ask("PUBSUB NUMSUB", &["PUBSUB", "NUMSUB", channel])
            .await?;
        let patterns: u64 = self.ask("PUBSUB NUMPAT", &["PUBSUB", "NUMPAT"]).await?;
        let clients: Result<String, _> = self
            .ask("CLIENT LIST", &["CLIENT", "LIST", "TYPE", "pubsub"])
            .await;
        let by_pattern = match clients {
            Ok(clients) => Some(Client::with_patterns(&clients)),
            Err(error) if error.is_refusal() => None,
            Err(error) => return Err(error),
        };
        let daemons = match self.daemons().await {
            Ok(daemons) => daemons,
            Err(error) if error.is_refusal() => 0,
            Err(error) => return Err(error),
        };
        Ok(Listeners {
            by_name,
            patterns,
            by_pattern,
            daemons,
        })
    }

    /// Counts the subscribers of marks.
    async fn daemons(&self) -> Result<u64, RedisError> {
        let marks = Names::marks("*");
        let channels = ["PUBSUB", "CHANNELS", &marks];
        let channels: Vec<String> = self.ask("PUBSUB CHANNELS", &channels).await?;
        if channels.is_empty() {
            return Ok(0);
        }
        let numsub = ["PUBSUB", "NUMSUB"].into_iter();
        let numsub: Vec<&str> = numsub.chain(channels.iter().map(String::as_str)).collect();
        let counts: Vec<(String, u64)> = self.ask("PUBSUB NUMSUB", &numsub).await?;
        Ok(counts.iter().map(|(_, count)| count).sum())
    }

    /// Returns the error reply of each key command that this user may not run. Each is tried on a key that does not
    /// exist.
    pub async fn refused_verbs(&self, names: &Names) -> Result<Vec<RedisError>, RedisError> {
        let probe = names.probe(ProbeId::random());
        // A master without slots has no key.
        let name = self.commands.tag().map(|tag| format!("{probe}{tag}"));
        let of_keys = name.iter().flat_map(|name| {
            [
                ("SET", vec!["SET", name, "", "PX", "1", "XX"]),
                ("PTTL", vec!["PTTL", name]),
                ("GETRANGE", vec!["GETRANGE", name, "0", "6"]),
                ("DEL", vec!["DEL", name]),
            ]
        });
        let of_nodes = self.commands.cluster().into_iter().flat_map(|_| {
            [
                ("CLUSTER NODES", vec!["CLUSTER", "NODES"]),
                ("ASKING", vec!["ASKING"]),
            ]
        });
        let mut refused = Vec::new();
        for (verb, words) in of_keys.chain(of_nodes) {
            match self.ask::<redis::Value>(verb, &words).await {
                Ok(_) => {}
                Err(error @ RedisError::Unreachable(_)) => return Err(error),
                Err(error) => refused.push(error),
            }
        }
        Ok(refused)
    }

    /// Returns the type of a key, by its name in Redis; `none` if it does not exist.
    pub async fn kind(&self, name: &str) -> Result<String, RedisError> {
        self.ask("TYPE", &["TYPE", name]).await
    }

    /// Tries a script, which changes nothing.
    pub async fn try_script(&self) -> Result<(), RedisError> {
        let script = ["EVAL", "return 1", "0"];
        self.ask::<redis::Value>("EVAL", &script).await.map(drop)
    }

    /// Tries `SCAN`, which changes nothing.
    pub async fn try_scan(&self) -> Result<(), RedisError> {
        let scan = ["SCAN", "0", "COUNT", "1"];
        self.ask::<redis::Value>("SCAN", &scan).await.map(drop)
    }

    async fn ask<T: FromRedisValue>(
        &self,
        command: &'static str,
        words: &[&str],
    ) -> Result<T, RedisError> {
        let mut question = redis::pipe();
        question.cmd(words[0]).arg(&words[1..]);
        let (answer,) = self.commands.send(command, &question).await?;
        Ok(answer)
    }
}

impl Facts {
    fn from_info(info: &str) -> Self {
        let pairs = info.lines().filter_map(|line| line.split_once(':'));
        Self(
            pairs
                .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
                .collect(),
        )
    }

    /// Returns the value, or `None` if it is missing or empty.
    pub fn get(&self, name: &str) -> Option<&str> {
        let value = self.0.get(name)?;
        (!value.is_empty()).then_some(value)
    }

    /// Returns the value, even if it is empty.
    pub fn raw(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Parses the value as a number.
    pub fn number<T: FromStr>(&self, name: &str) -> Option<T> {
        self.get(name)?.parse().ok()
    }

    /// Returns how many keys of a database have an expiry.
    pub fn expiring_keys(&self, database: i64) -> u64 {
        // `db0:keys=5,expires=3,avg_ttl=0`; an empty database is not listed.
        let keyspace = self.get(&format!("db{database}"));
        let fields = keyspace
            .into_iter()
            .flat_map(|keyspace| keyspace.split(','));
        let mut counts = fields.filter_map(|field| field.strip_prefix("expires="));
        counts
            .next()
            .and_then(|count| count.parse().ok())
            .unwrap_or(0)
    }
}

impl<const N: usize> From<[(&str, &str); N]> for Facts {
    fn from(pairs: [(&str, &str); N]) -> Self {
        let own = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        Self(pairs.into_iter().map(own).collect())
    }
}

impl Client {
    fn with_patterns(list: &str) -> Vec<Self> {
        list.lines().filter_map(Self::with_pattern).collect()
    }

    fn with_pattern(line: &str) -> Option<Self> {
        let field = |wanted: &str| {
            let mut fields = line.split(' ').filter_map(|field| field.split_once('='));
            fields
                .find(|(name, value)| *name == wanted && !value.is_empty())
                .map(|(_, value)| value.to_owned())
        };
        if field("psub").is_none_or(|count| count == "0") {
            return None;
        }
        Some(Self {
            address: field("addr")?,
            name: field("name").or_else(|| field("lib-name")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_parsed_from_info() {
        let facts = Facts::from_info(
            "# Server\r\nredis_version:7.0.15\r\nconfig_file:\r\n\r\n# Keyspace\r\ndb0:keys=5,expires=3,avg_ttl=7\r\n",
        );
        assert_eq!(facts.get("redis_version"), Some("7.0.15"));
        assert_eq!(facts.get("config_file"), None);
        assert_eq!(facts.raw("config_file"), Some(""));
        assert_eq!(facts.expiring_keys(0), 3);
        assert_eq!(facts.expiring_keys(1), 0);
    }

    #[test]
    fn clients_with_patterns_are_recognized() {
        let list = "id=3 addr=127.0.0.1:1 laddr=x name= sub=1 psub=0 lib-name=\n\
                    id=4 addr=127.0.0.1:2 laddr=x name= sub=0 psub=1 lib-name=redis-rs\n\
                    id=5 addr=127.0.0.1:3 laddr=x name=php sub=0 psub=2 lib-name=\n";
        let clients = Client::with_patterns(list);
        let told: Vec<_> = clients
            .iter()
            .map(|client| (&client.address[..], client.name.as_deref()))
            .collect();
        assert_eq!(
            told,
            [
                ("127.0.0.1:2", Some("redis-rs")),
                ("127.0.0.1:3", Some("php"))
            ]
        );
    }
}
