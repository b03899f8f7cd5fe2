//! Errors of Redis commands.

use redis::{ErrorKind, RetryMethod};

/// An error, classified by its remedy. The server's message is the source.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum RedisError {
    /// The configured URL is invalid.
    #[error(
        "the redis url is invalid, expected `redis://`, `rediss://` or `unix://`, then the address of the server"
    )]
    Url(#[source] redis::RedisError),
    /// No connection, a broken connection, or no reply in time.
    #[error("cannot reach redis")]
    Unreachable(#[source] redis::RedisError),
    /// `NOAUTH` or `WRONGPASS`.
    #[error("redis refuses the credentials")]
    Credentials(#[source] redis::RedisError),
    /// `NOPERM`: the user's ACL lacks something.
    #[error("this redis user may not run `{command}` on the keys or channels of lapsed")]
    NoPermission {
        /// The command that was sent.
        command: &'static str,
        /// The server's reply, which names the command, key or channel.
        #[source]
        source: redis::RedisError,
    },
    /// The server has just started.
    #[error("redis is still loading its data")]
    Loading(#[source] redis::RedisError),
    /// The server is a replica, which expires no keys and accepts no writes.
    #[error("this redis is a replica, expected the master")]
    Replica(#[source] Option<redis::RedisError>),
    /// The data are not those of the session: the server was restarted, or emptied.
    #[error("redis has other data than before: it was restarted, or emptied")]
    Replaced,
    /// No node of the cluster serves the key now: a replica is being promoted, slots move, or one has no master.
    #[error("no master of the redis cluster serves this slot now")]
    NoMaster(#[source] Option<redis::RedisError>),
    /// Any other error reply.
    #[error("redis refuses `{command}`")]
    Refused {
        /// The command that was sent.
        command: &'static str,
        /// The server's reply.
        #[source]
        source: redis::RedisError,
    },
}

impl RedisError {
    /// Classifies an error of the redis crate from `command`.
    pub(super) fn of(command: &'static str, error: redis::RedisError) -> Self {
        match server_code(&error).as_deref() {
            Some("NOAUTH" | "WRONGPASS") => Self::Credentials(error),
            Some("NOPERM") => Self::NoPermission {
                command,
                source: error,
            },
            Some("LOADING") => Self::Loading(error),
            Some("READONLY") => Self::Replica(Some(error)),
            Some("MOVED" | "ASK" | "TRYAGAIN" | "CLUSTERDOWN" | "MASTERDOWN") => {
                Self::NoMaster(Some(error))
            }
            Some(_) => Self::Refused {
                command,
                source: error,
            },
            None => match error.kind() {
                ErrorKind::AuthenticationFailed => Self::Credentials(error),
                ErrorKind::Io | ErrorKind::Parse => Self::Unreachable(error),
                _ => Self::Refused {
                    command,
                    source: error,
                },
            },
        }
    }

    /// Creates the error for a missing reply.
    pub fn silence() -> Self {
        Self::Unreachable(std::io::Error::from(std::io::ErrorKind::TimedOut).into())
    }

    /// True if the same request may succeed later without a change to configuration or rights.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable(_)
            | Self::Loading(_)
            | Self::Replica(_)
            | Self::Replaced
            | Self::NoMaster(_) => true,
            Self::Url(_) | Self::Credentials(_) | Self::NoPermission { .. } => false,
            Self::Refused { source, .. } => !matches!(source.retry_method(), RetryMethod::NoRetry),
        }
    }

    /// True if the server replied with an error.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::NoPermission { .. } | Self::Refused { .. })
    }

    /// True if the connection was closed, and not merely silent: the server may not have received the command.
    #[cfg(feature = "engine")]
    pub(super) fn is_closed_connection(&self) -> bool {
        matches!(self, Self::Unreachable(source) if source.is_connection_dropped() && !source.is_timeout())
    }

    /// True if a key has another type than the command needs.
    pub fn is_wrong_type(&self) -> bool {
        self.server_code().as_deref() == Some("WRONGTYPE")
    }

    /// Returns the first word of the server's error reply, such as `OOM`.
    pub fn server_code(&self) -> Option<String> {
        match self {
            Self::Url(_) | Self::Unreachable(_) | Self::Replaced => None,
            Self::Replica(source) | Self::NoMaster(source) => server_code(source.as_ref()?),
            Self::Credentials(source)
            | Self::NoPermission { source, .. }
            | Self::Loading(source)
            | Self::Refused { source, .. } => server_code(source),
        }
    }

    /// A short class name, by which log lines are limited.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Url(_) => "url",
            Self::Unreachable(_) => "unreachable",
            Self::Credentials(_) => "credentials",
            Self::NoPermission { .. } => "no_permission",
            Self::Loading(_) => "loading",
            Self::Replica(_) => "replica",
            Self::Replaced => "replaced",
            Self::NoMaster(_) => "no_master",
            Self::Refused { .. } => "refused",
        }
    }

    /// Advice for the operator.
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::Url(_) => "correct `redis.url`",
            Self::Unreachable(_) => "is the server up, and `redis.url` right?",
            Self::Credentials(_) => "check user and password in `redis.url`",
            Self::NoPermission { .. } => "give the user the rights that SECURITY.md lists",
            Self::Loading(_) => "it will be there when it has loaded its data",
            Self::Replica(_) => "let `redis.url` name the master",
            Self::Replaced => "none is needed: the wheel is read again",
            Self::NoMaster(_) => {
                "let `redis.url` be `redis+cluster://` and nodes of the cluster; is each slot served?"
            }
            Self::Refused { .. } => "run `lapsed doctor`",
        }
    }
}

/// Returns the first word of the server's error reply, or of the first error in a pipeline.
fn server_code(error: &redis::RedisError) -> Option<String> {
    let errors = error.clone().into_server_errors()?;
    errors.first().map(|(_, error)| error.code().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(line: &str) -> RedisError {
        let answer = redis::parse_redis_value(format!("-{line}\r\n").as_bytes());
        let error = answer.and_then(redis::Value::extract_error).unwrap_err();
        RedisError::of("SET", error)
    }

    #[test]
    fn error_replies_are_classified() {
        let told = [
            ("NOAUTH Authentication required.", "credentials", false),
            (
                "WRONGPASS invalid username-password pair",
                "credentials",
                false,
            ),
            (
                "NOPERM this user has no permissions",
                "no_permission",
                false,
            ),
            ("LOADING Redis is loading the dataset", "loading", true),
            (
                "READONLY You can't write against a read only replica.",
                "replica",
                true,
            ),
            ("OOM command not allowed", "refused", false),
            ("ERR unknown command 'CONFIG'", "refused", false),
            ("CLUSTERDOWN Hash slot not served", "no_master", true),
            ("MOVED 3999 127.0.0.1:6381", "no_master", true),
        ];
        for (line, reason, transient) in told {
            let error = answered(line);
            assert_eq!(
                (error.reason(), error.is_transient()),
                (reason, transient),
                "{line}"
            );
        }
        assert_eq!(RedisError::silence().reason(), "unreachable");
    }

    #[test]
    fn the_text_names_the_command_and_the_source_has_the_reply() {
        let error = answered("NOPERM no permissions to access a channel");
        assert_eq!(
            error.to_string(),
            "this redis user may not run `SET` on the keys or channels of lapsed"
        );
        let source = std::error::Error::source(&error).map(ToString::to_string);
        assert!(source.is_some_and(|words| words.contains("no permissions to access a channel")));
    }
}
