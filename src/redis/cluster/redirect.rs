//! Error replies with which a node of a cluster refuses a command without having executed it.

use redis::{ServerError, Value};

use crate::Address;

/// Where, or when, a refused command will be executed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Redirect {
    /// Another node has the slot now.
    Moved,
    /// The slot moves, and the key is there already, or will be written there. For this command alone.
    Ask(Address),
    /// Not now: keys are on their way, a replica is being promoted, or a slot has no master.
    Later,
}

impl Redirect {
    /// Parses a reply of the node at `from`. `None` if it is none of these errors.
    pub(super) fn parse(reply: &Value, from: &Address) -> Option<Self> {
        let Value::ServerError(error) = reply else {
            return None;
        };
        match error.code() {
            "MOVED" | "READONLY" => Some(Self::Moved),
            "ASK" => Some(asked(error, from).map_or(Self::Later, Self::Ask)),
            "TRYAGAIN" | "CLUSTERDOWN" | "MASTERDOWN" => Some(Self::Later),
            _ => None,
        }
    }
}

/// `ASK slot host:port`. The host is empty if the node does not know it.
fn asked(error: &ServerError, from: &Address) -> Option<Address> {
    let (host, port) = error.details()?.split(' ').nth(1)?.rsplit_once(':')?;
    let host = match host {
        "" | "?" => &from.host,
        _ => host,
    };
    Some(Address {
        host: host.to_owned(),
        port: port.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirections_are_told_from_other_replies() {
        let from = Address {
            host: "n1".to_owned(),
            port: 7000,
        };
        let read = |line: &str| {
            let reply = redis::parse_redis_value(format!("{line}\r\n").as_bytes()).unwrap();
            Redirect::parse(&reply, &from)
        };
        assert_eq!(read("-MOVED 3999 127.0.0.1:6381"), Some(Redirect::Moved));
        assert_eq!(
            read("-READONLY You can't write against a read only replica."),
            Some(Redirect::Moved)
        );
        for (line, host) in [
            ("-ASK 3999 10.0.0.1:6381", "10.0.0.1"),
            ("-ASK 3999 :6381", "n1"),
        ] {
            let address = Address {
                host: host.to_owned(),
                port: 6381,
            };
            assert_eq!(read(line), Some(Redirect::Ask(address)), "{line}");
        }
        for line in [
            "-TRYAGAIN Multiple keys",
            "-CLUSTERDOWN Hash slot not served",
            "-ASK",
        ] {
            assert_eq!(read(line), Some(Redirect::Later), "{line}");
        }
        for line in [
            "-WRONGTYPE Operation",
            "-OOM command not allowed",
            "+OK",
            ":1",
        ] {
            assert_eq!(read(line), None, "{line}");
        }
    }
}
