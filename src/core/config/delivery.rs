//! Targets `stream`, `list` and `publish`: hand tasks to other programs through Redis.

use std::fmt;

use super::reader::{Problems, Reader};
use super::rules::{any, checked, or};
use super::{ClusterUrl, Secret, SentinelUrl, cluster_url, sentinel_url};
use crate::task::{KeyName, SENTINEL_PREFIX, TaskKey};

/// Longest name of a key or channel.
const NAME_BYTES_MAX: usize = 512;

/// Prefix of the keys that lapsed itself writes.
const OUR_PREFIX: &str = "#lapsed:";

/// Delivery of a task to Redis: the server and the destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryConfig {
    /// The server; `None` is that of `[redis]`.
    pub url: Option<Secret>,
    /// Destination and command.
    pub place: Place,
}

impl fmt::Display for DeliveryConfig {
    /// Kind and destination, without secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Stream { key, .. } => write!(f, "stream {key}")?,
            Place::List { key } => write!(f, "list {key}")?,
            Place::Channel { channel, .. } => write!(f, "publish {channel}")?,
        }
        match &self.url {
            Some(url) => write!(f, " on {url}"),
            None => Ok(()),
        }
    }
}

/// Destination of a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// `XADD`
    Stream {
        /// Its key.
        key: NameTemplate,
        /// Approximate maximum length of the stream.
        entries_max: Option<u64>,
    },
    /// `LPUSH`
    List {
        /// Its key.
        key: NameTemplate,
    },
    /// `PUBLISH`
    Channel {
        /// Its name.
        channel: NameTemplate,
        /// Whether at least one subscriber must receive the message.
        require_receivers: bool,
    },
}

/// Template for the name of a key or channel. `{class}` and `{method}` are replaced by those of the task.
///
/// Other braces are kept: in a Redis Cluster they choose the slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameTemplate(String);

impl NameTemplate {
    fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() || text.len() > NAME_BYTES_MAX || text.contains(char::is_control) {
            return Err(format!(
                "expected 1 to {NAME_BYTES_MAX} bytes without control characters"
            ));
        }
        match ["{key}", "{args}", "{id}"]
            .into_iter()
            .find(|name| text.contains(name))
        {
            Some(name) => Err(format!(
                "expected no other placeholders than {{class}} and {{method}}, found {name}"
            )),
            None => Ok(Self(text.to_owned())),
        }
    }

    /// The name for a task.
    pub fn fill(&self, class: &str, method: &str) -> String {
        if !self.0.contains('{') {
            return self.0.clone();
        }
        self.0.replace("{class}", class).replace("{method}", method)
    }

    /// Refuses names that look like a task key, a sentinel or a heartbeat of a daemon: lapsed would take them for
    /// its own.
    fn checked_as_key(self, key_prefix: &str) -> Result<Self, String> {
        let name = self.fill("Class", "method");
        let bare = name.strip_prefix(key_prefix).unwrap_or(&name);
        let ours = bare.starts_with(OUR_PREFIX) || bare.starts_with(SENTINEL_PREFIX);
        match KeyName::parse(bare.as_bytes()) {
            KeyName::Foreign(_) if !ours && TaskKey::parse(&name).is_err() => Ok(self),
            _ => Err(format!(
                "`{name}` could be taken for a task or for one of our own keys, expected a name without `@` that begins with neither `{OUR_PREFIX}` nor `{SENTINEL_PREFIX}`"
            )),
        }
    }

    /// Refuses keyspace event channels: a message there would look like an event.
    fn checked_as_channel(self) -> Result<Self, String> {
        match ["__keyevent@", "__keyspace@"]
            .into_iter()
            .find(|prefix| self.0.starts_with(prefix))
        {
            Some(prefix) => Err(format!(
                "expected a channel of your own, found one of Redis's events (`{prefix}`)"
            )),
            None => Ok(self),
        }
    }
}

impl fmt::Display for NameTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// `stream = { key = "lapsed:orders", maxlen = 100000 }`
pub(super) fn stream(
    mut section: Reader,
    key_prefix: &str,
    p: &mut Problems,
) -> Option<DeliveryConfig> {
    let key = name(&mut section, "key", p, |name| {
        name.checked_as_key(key_prefix)
    });
    let at_least_1 = checked(|entries| *entries >= 1, "at least 1 entry");
    let entries_max = section.given("maxlen", p, at_least_1);
    delivery(section, p, || {
        Some(Place::Stream {
            key: key?,
            entries_max: entries_max?,
        })
    })
}

/// `list = { key = "lapsed:orders" }`
pub(super) fn list(
    mut section: Reader,
    key_prefix: &str,
    p: &mut Problems,
) -> Option<DeliveryConfig> {
    let key = name(&mut section, "key", p, |name| {
        name.checked_as_key(key_prefix)
    });
    delivery(section, p, || Some(Place::List { key: key? }))
}

/// `publish = { channel = "lapsed:orders" }`
pub(super) fn publish(mut section: Reader, p: &mut Problems) -> Option<DeliveryConfig> {
    let channel = name(&mut section, "channel", p, NameTemplate::checked_as_channel);
    let require_receivers = section.by("require_receivers", p, or(false, any));
    delivery(section, p, || {
        Some(Place::Channel {
            channel: channel?,
            require_receivers: require_receivers?,
        })
    })
}

fn name(
    section: &mut Reader,
    key: &str,
    p: &mut Problems,
    checked: impl FnOnce(NameTemplate) -> Result<NameTemplate, String>,
) -> Option<NameTemplate> {
    let text: String = section.take(key, p)?;
    section.parsed(key, NameTemplate::parse(&text).and_then(checked), p)
}

fn delivery(
    mut section: Reader,
    p: &mut Problems,
    place: impl FnOnce() -> Option<Place>,
) -> Option<DeliveryConfig> {
    let url = match section.text_or_file("url", p) {
        Some(Some(url)) => section.parsed("url", redis_url(url), p).map(Some),
        other => other.map(|_| None),
    };
    section.done(p);
    Some(DeliveryConfig {
        url: url?,
        place: place()?,
    })
}

/// Parses a Redis URL. Errors do not repeat the text, which may hold a password.
fn redis_url(text: String) -> Result<Secret, String> {
    const EXPECTED: &str =
        "expected redis://, rediss:// or unix://, then a server and the number of a database";
    if SentinelUrl::is_one(&text) {
        return match SentinelUrl::parse(&text) {
            Some(_) => Ok(Secret::from(text)),
            None => Err(sentinel_url::EXPECTED.to_owned()),
        };
    }
    if ClusterUrl::is_one(&text) {
        return match ClusterUrl::parse(&text) {
            Some(_) => Ok(Secret::from(text)),
            None => Err(cluster_url::EXPECTED.to_owned()),
        };
    }
    let sound = url::Url::parse(&text).is_ok_and(|url| match url.scheme() {
        "redis" | "rediss" => {
            let database = url.path().trim_start_matches('/');
            url.has_host() && (database.is_empty() || database.parse::<u16>().is_ok())
        }
        "unix" | "redis+unix" => !url.path().is_empty(),
        _ => false,
    });
    match sound {
        true => Ok(Secret::from(text)),
        false => Err(EXPECTED.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, TargetConfig};

    fn read(target: &str) -> Result<DeliveryConfig, Vec<String>> {
        let text = format!("redis.key_prefix = 'app:'\n[[routes]]\nmatch = '.'\n{target}");
        match Config::from_toml(&text) {
            Ok(mut config) => match config.routes.remove(0).target {
                TargetConfig::Delivery(delivery) => Ok(delivery),
                other => panic!("{other:?}"),
            },
            Err(error) => Err(error.to_string().lines().map(str::to_owned).collect()),
        }
    }

    #[test]
    fn a_name_has_the_class_and_method_of_the_task_and_keeps_its_slot() {
        let name = NameTemplate::parse("jobs:{class}:{{method}}").unwrap();
        assert_eq!(name.fill("Order", "close"), "jobs:Order:{close}");
    }

    #[test]
    fn each_place_is_read() {
        let stream = read("stream = { key = 'lapsed:{class}', maxlen = 1000 }").unwrap();
        let key = NameTemplate("lapsed:{class}".to_owned());
        assert_eq!(
            (stream.url, stream.place),
            (
                None,
                Place::Stream {
                    key,
                    entries_max: Some(1000)
                }
            )
        );
        let list = read("list = { key = 'l', url = 'redis://:s3cret@other:6380/2' }").unwrap();
        assert!(!format!("{list:?}").contains("s3cret"));
        let publish = read("publish = { channel = 'c', require_receivers = true }").unwrap();
        let channel = NameTemplate("c".to_owned());
        assert_eq!(
            publish.place,
            Place::Channel {
                channel,
                require_receivers: true
            }
        );
    }

    #[test]
    fn a_place_that_could_be_taken_for_ours_is_refused() {
        for key in [
            "Order@close",
            "{class}@{method}",
            "app:Order@close@1",
            "lapsed:{class}@x",
            "#SILCK`3",
            "app:#SILCK`x",
            "#lapsed:members:x",
        ] {
            for target in ["stream", "list"] {
                let problems = read(&format!("{target} = {{ key = '{key}' }}")).unwrap_err();
                assert!(
                    problems[0].contains("could be taken for a task"),
                    "{key}: {problems:?}"
                );
            }
        }
        let problems = read("publish = { channel = '__keyevent@0__:expired' }").unwrap_err();
        assert!(
            problems[0].contains("one of Redis's events"),
            "{problems:?}"
        );
    }

    #[test]
    fn all_that_is_wrong_with_a_place_is_said_at_once() {
        let problems =
            read("stream = { key = 'x{id}', maxlen = 0, url = 'http://u:s3cret@h', max = 1 }");
        assert_eq!(
            problems.unwrap_err(),
            [
                "`routes[0].stream.key`: expected no other placeholders than {class} and {method}, found {id}",
                "`routes[0].stream.maxlen`: expected at least 1 entry, found 0",
                "`routes[0].stream.url`: expected redis://, rediss:// or unix://, then a server and the number of a database",
                "`routes[0].stream.max`: is not the name of a setting",
            ]
        );
        for url in ["redis://h/x", "redis:///0", "unix://", "rediss://h/1/2"] {
            assert!(
                read(&format!("list = {{ key = 'x', url = '{url}' }}")).is_err(),
                "{url}"
            );
        }
        for url in [
            "redis://h",
            "redis://h/",
            "rediss://u:p@h:1/3",
            "unix:///run/redis.sock?db=2",
        ] {
            read(&format!("list = {{ key = 'x', url = '{url}' }}")).unwrap();
        }
        assert!(read("list = { key = 'x', url = 'redis://h', url_file = '/x' }").is_err());
    }
}
