//! Permission check of Redis: tries each command of a daemon without changing anything.

use crate::runner::words;
use lapsed::diagnosis::Finding;
use lapsed_redis::{Connected, Endpoint, EventKind, Inspection, Names, RedisError};

pub(super) const RIGHTS: &str = "redis.rights";
pub(super) const ADOPTION: &str = "redis.adoption";

/// What a node of a cluster has to allow besides: to tell of the others, and to find a key whose slot is moving.
pub(super) const OF_NODE: &str = " +cluster|nodes +asking";

/// Commands of a daemon that are refused.
pub(super) async fn refused(
    server: &Inspection,
    endpoint: &Endpoint,
    key_prefix: &str,
) -> Result<Vec<RedisError>, RedisError> {
    let mut refused = server.refused_verbs(&Names::new(key_prefix)).await?;
    let subscribed = match Connected::open(endpoint).await {
        Ok(mut connected) => connected.subscribe(EventKind::Expired).await,
        Err(error) => Err(error),
    };
    match subscribed {
        Ok(()) => {}
        Err(error @ RedisError::Unreachable(_)) => return Err(error),
        Err(error) => refused.push(error),
    }
    Ok(refused)
}

/// `of_node` is what else a node of a cluster has to allow.
pub(super) fn rights(channel: &str, of_node: &str, refused: &[RedisError]) -> Vec<Finding> {
    if refused.is_empty() {
        let found = "this user may set, read and delete keys, and subscribe";
        return vec![Finding::ok(RIGHTS, found)];
    }
    let finding = |error: &RedisError| {
        let remedy = match error {
            RedisError::NoPermission { .. } => format!(
                "let the user of `redis.url` do it: `ACL SETUSER <user> +set +get +getrange +pttl +del +scan +hset +hgetall +hdel +psubscribe +publish +ping{of_node} ~* &{channel}`"
            ),
            RedisError::Replica(_) => "name the master in `redis.url`".to_owned(),
            RedisError::Refused { .. } => {
                "fix what the server reports: memory, disk or the state of a cluster".to_owned()
            }
            _ => "correct `redis.url`".to_owned(),
        };
        Finding::error(RIGHTS, words(error)).remedy(remedy)
    };
    refused.iter().map(finding).collect()
}

/// The first refusal among the commands for adoption.
pub(super) async fn refused_to_adopt(
    server: &Inspection,
    endpoint: &Endpoint,
) -> Result<Option<RedisError>, RedisError> {
    let tried = async {
        let mut connected = Connected::open(endpoint).await?;
        for kind in EventKind::OF_ARMINGS {
            connected.subscribe(kind).await?;
        }
        server.try_scan().await?;
        server.info().await.map(drop)
    };
    match tried.await {
        Ok(()) => Ok(None),
        Err(error @ RedisError::Unreachable(_)) => Err(error),
        Err(refused) => Ok(Some(refused)),
    }
}

pub(super) fn adoption(endpoint: &Endpoint, refused: Option<&RedisError>) -> Finding {
    let Some(error) = refused else {
        return Finding::ok(
            ADOPTION,
            "this user may subscribe to events of new keys, scan keys, and ask the server for its role",
        );
    };
    let channels = EventKind::OF_ARMINGS.map(|kind| format!("&{}", endpoint.channel(kind)));
    // Without it a deletion cannot be told from what a replica publishes.
    let effect = match error {
        RedisError::NoPermission {
            command: "INFO", ..
        } => "a `DEL` of a bare key cancels nothing",
        _ => "a bare `SETEX` is adopted late, and delays below a second may start late",
    };
    Finding::warning(ADOPTION, format!("{effect}: {}", words(error)))
    .remedy(format!(
        "let the user of `redis.url` do it: `ACL SETUSER <user> +scan +psubscribe +info {}`; or set `adopt.enabled = false`",
        channels.join(" ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assertions::assert_is;
    use lapsed::config::Config;
    use lapsed::diagnosis::Severity;

    fn no_permission(command: &'static str) -> RedisError {
        RedisError::NoPermission {
            command,
            source: std::io::Error::other("NOPERM").into(),
        }
    }

    #[test]
    fn each_refused_right_is_a_separate_error() {
        let judge = |refused: &[RedisError]| rights("__keyevent@0__:expired", "", refused);
        assert_is(&judge(&[])[0], Severity::Ok, "may set");
        let findings = judge(&[no_permission("PSUBSCRIBE"), RedisError::Replica(None)]);
        let [acl, replica] = &findings[..] else {
            panic!("{findings:?}")
        };
        assert_is(acl, Severity::Error, "may not run `PSUBSCRIBE`");
        let remedy = acl.remedy.as_deref().unwrap();
        assert!(remedy.ends_with("&__keyevent@0__:expired`"), "{remedy}");
        assert_is(replica, Severity::Error, "is a replica");
    }

    #[test]
    fn a_user_that_cannot_adopt_can_still_run_tasks() {
        let endpoint = Endpoint::new(&Config::default().redis).unwrap();
        assert_is(&adoption(&endpoint, None), Severity::Ok, "may subscribe");
        let refused = adoption(&endpoint, Some(&no_permission("PSUBSCRIBE")));
        assert_is(&refused, Severity::Warning, "adopted late");
        let deaf = adoption(&endpoint, Some(&no_permission("INFO")));
        assert_is(
            &deaf,
            Severity::Warning,
            "a `DEL` of a bare key cancels nothing",
        );
        let remedy = refused.remedy.unwrap();
        for kind in EventKind::OF_ARMINGS {
            assert!(remedy.contains(&endpoint.channel(kind)), "{remedy}");
        }
    }
}
