//! Connectivity check: the server answers and accepts the credentials.

use crate::runner::words;
use lapsed::diagnosis::Finding;
use lapsed_redis::{Endpoint, RedisError};

pub(super) const REACHABLE: &str = "redis.reachable";

pub(super) fn reachable<T>(endpoint: &Endpoint, answer: Option<Result<T, RedisError>>) -> Finding {
    let (node, database) = (endpoint.node(), endpoint.database());
    match answer {
        // A server that refuses only this command is reachable.
        Some(
            Ok(_)
            | Err(RedisError::NoPermission {
                command: "TIME", ..
            }),
        ) => Finding::ok(REACHABLE, format!("{node}, database {database}")),
        Some(Err(error)) => {
            let finding = unreachable(&error);
            Finding {
                found: format!("{node}: {}", finding.found),
                ..finding
            }
        }
        None => Finding::error(REACHABLE, format!("{node}: no answer in time"))
            .remedy("check whether the server hangs, or a firewall drops its packets"),
    }
}

pub(super) fn unreachable(error: &RedisError) -> Finding {
    let remedy = match error {
        RedisError::Url(_) => {
            "correct `redis.url`, as in `redis://127.0.0.1:6379/0`; write `@`, `#`, `/` and `%` of a password as %40, %23, %2F and %25"
        }
        RedisError::Credentials(_) => {
            "put the right user and password into `redis.url`, as in `redis://user:password@host:6379/0` (`@`, `#`, `/` and `%` of a password as %40, %23, %2F and %25), or into the file that `LAPSED__REDIS__URL_FILE` names"
        }
        RedisError::Loading(_) => "wait until the server has loaded its data",
        RedisError::NoPermission { .. } => {
            "let the user of `redis.url` connect and select the database: `+hello +auth +select +ping +client|setinfo`"
        }
        RedisError::Unreachable(_) => {
            "start redis, or correct `redis.url`: host, port, and `rediss://` exactly if the server speaks TLS"
        }
        _ => "correct `redis.url`: does the server have this database",
    };
    Finding::error(REACHABLE, words(error)).remedy(remedy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assertions::assert_is;
    use lapsed::config::Config;
    use lapsed::diagnosis::Severity;

    #[test]
    fn a_server_that_accepts_the_login_is_reachable_despite_a_refused_command() {
        let endpoint = Endpoint::new(&Config::default().redis).unwrap();
        let judge = |answer: Option<Result<(), RedisError>>| reachable(&endpoint, answer);
        let refused = |command| RedisError::NoPermission {
            command,
            source: std::io::Error::other("NOPERM").into(),
        };
        assert_is(&judge(Some(Ok(()))), Severity::Ok, "database 0");
        assert_is(
            &judge(Some(Err(refused("TIME")))),
            Severity::Ok,
            "database 0",
        );
        assert_is(
            &judge(Some(Err(refused("SELECT")))),
            Severity::Error,
            "may not run `SELECT`",
        );
        assert_is(&judge(None), Severity::Error, "no answer in time");
    }

    #[test]
    fn the_remedy_depends_on_the_connection_error() {
        let source = || std::io::Error::from(std::io::ErrorKind::ConnectionRefused).into();
        let told = [
            (RedisError::Unreachable(source()), "start redis"),
            (RedisError::Credentials(source()), "user and password"),
            (RedisError::Loading(source()), "wait until"),
            (RedisError::Url(source()), "correct `redis.url`, as in"),
        ];
        for (error, part) in told {
            let finding = unreachable(&error);
            assert_is(&finding, Severity::Error, &error.to_string());
            assert!(finding.remedy.unwrap().contains(part), "{error}");
        }
    }
}
