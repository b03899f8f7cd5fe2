//! What each framework calls its set and its list, and how it pushes.

use serde::Deserialize;

use crate::config::reader::{Problems, Reader};

/// A framework.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Profile {
    /// laravel/framework, `Illuminate\Queue\RedisQueue`; also Lumen and Horizon.
    Laravel,
    /// top-think/think-queue, `think\queue\connector\Redis`.
    ThinkQueue,
    /// webman/redis-queue and workerman/redis-queue.
    Webman,
    /// hyperf/async-queue, `Hyperf\AsyncQueue\Driver\RedisDriver`.
    Hyperf,
}

/// The names that a framework gives to the keys of a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Names {
    pub(super) set: String,
    /// The list, or how the lists of all queues begin.
    pub(super) ready: String,
    pub(super) notify: Option<String>,
    pub(super) whose: Whose,
}

/// Whose jobs a set has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Whose {
    /// Those of one queue, whose name is the method of the tasks.
    Queue(String),
    /// Those of all queues. A job names its own.
    AnyQueue,
}

impl Profile {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Laravel => "laravel",
            Self::ThinkQueue => "think-queue",
            Self::Webman => "webman",
            Self::Hyperf => "hyperf",
        }
    }

    /// The command that appends to the list: workers take from its other end.
    pub(super) fn command(self) -> &'static str {
        match self {
            Self::Laravel | Self::ThinkQueue => "RPUSH",
            Self::Webman | Self::Hyperf => "LPUSH",
        }
    }
}

/// Reads the keys of the profile.
pub(super) fn names(
    profile: Profile,
    section: &mut Reader,
    prefix: &str,
    p: &mut Problems,
) -> Option<Names> {
    match profile {
        Profile::Laravel => laravel(section, prefix, p),
        Profile::ThinkQueue => think_queue(section, prefix, p),
        Profile::Webman => webman(section, prefix, p),
        Profile::Hyperf => hyperf(section, prefix, p),
    }
}

fn laravel(section: &mut Reader, prefix: &str, p: &mut Problems) -> Option<Names> {
    let cluster = section.optional("cluster", p).unwrap_or(false);
    let queue: String = section.take("queue", p)?;
    // As `RedisQueue` names them: with braces on a cluster connection, unless the name has a tag.
    let has_tag = queue.contains('{') && queue.contains('}');
    let ready = match cluster && !has_tag {
        true => format!("{prefix}queues:{{{queue}}}"),
        false => format!("{prefix}queues:{queue}"),
    };
    Some(Names {
        set: format!("{ready}:delayed"),
        notify: Some(format!("{ready}:notify")),
        ready,
        whose: Whose::Queue(without_braces(&queue)),
    })
}

fn think_queue(section: &mut Reader, prefix: &str, p: &mut Problems) -> Option<Names> {
    let queue: String = section.take("queue", p)?;
    let ready = format!("{prefix}{{queues:{queue}}}");
    Some(Names {
        set: format!("{ready}:delayed"),
        ready,
        notify: None,
        whose: Whose::Queue(queue),
    })
}

fn webman(section: &mut Reader, prefix: &str, p: &mut Problems) -> Option<Names> {
    if section.remove("queue").is_some() {
        let problem = "webman has one set for all queues: expected no `queue`";
        p.add(&section.at("queue"), problem);
        return None;
    }
    Some(Names {
        set: format!("{prefix}{{redis-queue}}-delayed"),
        ready: format!("{prefix}{{redis-queue}}-waiting"),
        notify: None,
        whose: Whose::AnyQueue,
    })
}

fn hyperf(section: &mut Reader, prefix: &str, p: &mut Problems) -> Option<Names> {
    // As hyperf publishes its configuration.
    let channel = section.optional("channel", p);
    let channel: String = channel.unwrap_or_else(|| "{queue}".to_owned());
    Some(Names {
        set: format!("{prefix}{channel}:delayed"),
        ready: format!("{prefix}{channel}:waiting"),
        notify: None,
        whose: Whose::Queue(without_braces(&channel)),
    })
}

/// A name without the braces that choose its slot in a cluster.
fn without_braces(name: &str) -> String {
    name.replace(['{', '}'], "")
}
