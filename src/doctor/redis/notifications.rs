//! Notification check: required keyspace events are enabled; `--fix` enables them.

use crate::runner::words;
use lapsed::config::{Config, TimerKind};
use lapsed::diagnosis::Finding;
use lapsed_redis::{
    Commands, Endpoint, Events, Notifications, NotifyFlags, RedisError, ensure_notifications,
};

pub(super) const NOTIFICATIONS: &str = "redis.notifications";
const RESTART: &str = "redis.restart";
const FIX: &str = "fix";

pub(super) const FLAGS: &str = "notify-keyspace-events";

/// Adds missing notification flags and reports what it did.
pub(crate) async fn add_flags(config: &Config) -> Finding {
    if config.timer != TimerKind::KeyExpiry {
        let timer = config.timer.as_str();
        return Finding::ok(FIX, format!("nothing to do: the timer is `{timer}`"));
    }
    let endpoint = match Endpoint::new(&config.redis) {
        Ok(endpoint) => endpoint,
        Err(error) => return Finding::error(FIX, words(&error)).remedy("correct `redis.url`"),
    };
    let wanted = Events::wanted_by(config);
    let commands = Commands::new(endpoint);
    let Some(cluster) = commands.cluster() else {
        return added(ensure_notifications(&commands, wanted).await, wanted);
    };
    let topology = match cluster.topology().await {
        Ok(topology) => topology,
        Err(error) => return added(Err(error), wanted),
    };
    // The finding about the master that is worst off.
    let mut worst = Finding::ok(FIX, "nothing to do: all required events are enabled");
    for master in &topology.masters {
        let finding = added(
            ensure_notifications(&commands.at(master), wanted).await,
            wanted,
        );
        if finding.remedy.is_some() && finding.severity >= worst.severity {
            worst = Finding {
                found: format!("{}: {}", master.address, finding.found),
                ..finding
            };
        }
    }
    worst
}

/// Judges the result of adding flags.
fn added(came: Result<Notifications, RedisError>, wanted: Events) -> Finding {
    match came {
        Ok(Notifications::On) => {
            Finding::ok(FIX, "nothing to do: all required events are enabled")
        }
        Ok(Notifications::Added(flags)) => Finding::ok(
            FIX,
            format!("set `{FLAGS}` to `{flags}`, until the server restarts"),
        )
        .remedy(persist(&flags)),
        Ok(Notifications::ExpiredOnly { flags, refusal }) => Finding::warning(
            FIX,
            format!(
                "`{FLAGS}` is `{flags}`, without `g`, and this user may not change it: {}",
                words(&refusal)
            ),
        )
        .remedy(persist(&flags.with(wanted))),
        Ok(Notifications::Off { flags, refusal }) => Finding::error(
            FIX,
            format!(
                "`{FLAGS}` is `{flags}`, and this user may not change it: {}",
                words(&refusal)
            ),
        )
        .remedy(persist(&flags.with(wanted))),
        Ok(Notifications::Unknown) => Finding::note(
            FIX,
            format!("nothing was changed: this server does not show its `{FLAGS}`"),
        )
        .remedy(format!(
            "set `{FLAGS}` to at least `{}` where the server is configured, such as its provider's console",
            wanted.flags()
        )),
        Err(error) => Finding::error(FIX, format!("nothing was changed: {}", words(&error)))
            .remedy("see below, then run `lapsed doctor --fix` again"),
    }
}

/// Judges the flags; `None`: the server does not show them.
pub(super) fn notifications(flags: Option<&str>, wanted: Events) -> Vec<Finding> {
    let Some(text) = flags else {
        let unsaid = Finding::unknown(NOTIFICATIONS, format!("the server does not show `{FLAGS}`"));
        let least = wanted.flags();
        let remedy = format!(
            "make sure that `{FLAGS}` is at least `{least}` where the server is configured"
        );
        return vec![unsaid.remedy(remedy)];
    };
    let flags = NotifyFlags::parse(text);
    if !flags.announce(Events::Expired) {
        let off = Finding::error(
            NOTIFICATIONS,
            format!(
                "`{FLAGS}` is `{text}`, expected at least `Ex`: expired events are not announced"
            ),
        );
        let remedy = format!(
            "run `lapsed doctor --fix`, and {}",
            persist(&flags.with(wanted))
        );
        return vec![off.remedy(remedy)];
    }
    if !flags.announce(wanted) {
        let expired_only = Finding::warning(
            NOTIFICATIONS,
            format!(
                "`{FLAGS}` is `{text}`, expected `g` too: events of new keys are disabled, so a bare `SETEX` is adopted late, and delays below a second may start late"
            ),
        );
        let remedy = format!(
            "run `lapsed doctor --fix`, and {}",
            persist(&flags.with(wanted))
        );
        return vec![expired_only.remedy(remedy)];
    }
    vec![
        Finding::ok(
            NOTIFICATIONS,
            format!("`{FLAGS}` is `{text}`: all required events are enabled"),
        ),
        Finding::note(
            RESTART,
            format!("whether `{FLAGS}` survives a restart could not be checked"),
        )
        .remedy(persist(&flags)),
    ]
}

pub(super) fn persist(flags: &NotifyFlags) -> String {
    format!(
        "write `{FLAGS} {flags}` into redis.conf (or the provider's parameter group), of replicas too: a setting made at run time is lost after a restart or a failover"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assertions::assert_is;
    use lapsed::diagnosis::Severity;

    #[test]
    fn flags_that_include_expired_events_suffice() {
        for text in ["Ex", "AKE", "xEg"] {
            assert_is(
                &notifications(Some(text), Events::Expired)[0],
                Severity::Ok,
                text,
            );
        }
        for text in ["Exg", "AKE", "xEg"] {
            assert_is(
                &notifications(Some(text), Events::ExpiredAndArmings)[0],
                Severity::Ok,
                text,
            );
        }
        let deaf = &notifications(Some("Ex"), Events::ExpiredAndArmings)[0];
        assert_is(deaf, Severity::Warning, "expected `g` too");
        assert!(deaf.remedy.as_deref().unwrap().contains("Exg"), "{deaf:?}");
        let off = notifications(Some("Kg"), Events::ExpiredAndArmings);
        assert_is(&off[0], Severity::Error, "`notify-keyspace-events` is `Kg`");
        assert!(
            off[0]
                .remedy
                .as_deref()
                .unwrap()
                .contains("notify-keyspace-events KgEx")
        );
        assert_is(
            &notifications(None, Events::Expired)[0],
            Severity::Note,
            "does not show",
        );
    }

    #[test]
    fn the_result_of_adding_flags_names_remaining_steps() {
        let flags = || NotifyFlags::parse("K");
        let refusal = || RedisError::Replica(None);
        let told = [
            (Ok(Notifications::On), Severity::Ok, "nothing to do"),
            (Ok(Notifications::Added(flags())), Severity::Ok, "to `K`"),
            (
                Ok(Notifications::ExpiredOnly {
                    flags: flags(),
                    refusal: refusal(),
                }),
                Severity::Warning,
                "without `g`",
            ),
            (
                Ok(Notifications::Off {
                    flags: flags(),
                    refusal: refusal(),
                }),
                Severity::Error,
                "may not change it: this redis is a replica",
            ),
            (Ok(Notifications::Unknown), Severity::Note, "was changed"),
            (Err(refusal()), Severity::Error, "nothing was changed: "),
        ];
        for (came, severity, part) in told {
            assert_is(&added(came, Events::ExpiredAndArmings), severity, part);
        }
    }
}
