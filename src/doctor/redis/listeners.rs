//! Listener check: running daemons and other subscribers.

use lapsed::diagnosis::{Finding, Phrase};
use lapsed::membership::Heartbeat;
use lapsed_redis::{Client, LIBRARY, Listeners};

pub(super) const LISTENERS: &str = "redis.listeners";

pub(super) const DAEMONS: &str = "fleet.daemons";

/// Judges the daemons that share the ledger; `None` if they are not visible (`fleet.share = false`).
pub(super) fn daemons(members: Option<&[Heartbeat]>) -> Finding {
    let Some(members) = members else {
        return Finding::unknown(
            DAEMONS,
            "daemons are not visible with `fleet.share = false`",
        );
    };
    if members.is_empty() {
        return Finding::note(DAEMONS, Phrase::NoDaemon.english())
            .remedy("start `lapsed listen`, unless a daemon with `fleet.share = false` is meant to run everything");
    }
    let names = members.iter().take(5).map(|note| note.name.as_str());
    let names: Vec<&str> = names.collect();
    let more = if members.len() > names.len() {
        ", .."
    } else {
        ""
    };
    let are = match members.len() {
        1 => "1 daemon is running".to_owned(),
        count => format!("{count} daemons are running"),
    };
    let found = format!("{are}: {}{more}", names.join(", "));
    match unlike(members) {
        None => Finding::ok(DAEMONS, found),
        Some((one, other, difference)) => Finding::warning(
            DAEMONS,
            format!("{found}; {} and {} {difference}", one.name, other.name),
        )
        .remedy("start every daemon with the same configuration, unless the difference is meant: compare what `lapsed check-config` prints on their machines"),
    }
}

/// Two daemons that do not run, adopt and find the same tasks, and how they differ; `None` if all do.
fn unlike(members: &[Heartbeat]) -> Option<(&Heartbeat, &Heartbeat, String)> {
    let (one, rest) = members.split_first()?;
    let digest = one.capabilities.digest();
    let unlike = rest
        .iter()
        .find(|other| other.capabilities.digest() != digest);
    if let Some(other) = unlike {
        let what = "have different routes or handlers, or adopt different keys";
        return Some((one, other, what.to_owned()));
    }
    // An older program does not say which timer it has.
    let mut telling = members.iter().filter(|member| !member.timer.is_empty());
    let one = telling.next()?;
    let other = telling.find(|other| other.timer != one.timer)?;
    let what = format!(
        "have different timers, or watch different keys (`{}` and `{}`): what one arms, the other does not see",
        one.timer, other.timer
    );
    Some((one, other, what))
}

/// Judges the subscribers. `running`: running daemons of this ledger; each may own one of the connections.
pub(super) fn judge(channel: &str, listeners: &Listeners, running: usize) -> Finding {
    let Listeners {
        by_name,
        patterns,
        by_pattern,
        daemons,
    } = listeners;
    let daemons = (*daemons).max(running as u64);
    let is_other = |client: &&Client| client.name.as_deref() != Some(LIBRARY);
    let by_pattern: &Option<Vec<Client>> = &by_pattern
        .as_ref()
        .map(|clients| clients.iter().filter(is_other).cloned().collect());
    let others = match by_pattern {
        Some(clients) => by_name + clients.len() as u64,
        None => by_name + patterns,
    };
    if *by_name == 0 && others > 0 && others <= daemons && by_pattern.is_some() {
        return Finding::ok(
            LISTENERS,
            format!("{others} of the daemons listen to `{channel}`, and no other client"),
        );
    }
    if others == 0 {
        return Finding::ok(LISTENERS, format!("no other client listens to `{channel}`"));
    }
    let who = match (by_name, by_pattern) {
        (0, None) => format!("clients listen to {patterns} patterns"),
        (_, None) => format!(
            "{by_name} other clients listen to `{channel}`, and some to {patterns} patterns"
        ),
        (_, Some(_)) if others == 1 => {
            format!("1 other client listens to `{channel}` or to a pattern")
        }
        (_, Some(_)) => format!("{others} other clients listen to `{channel}` or to patterns"),
    };
    let named = by_pattern.iter().flatten().take(5).map(|client| {
        let name = client.name.as_deref().unwrap_or("no name");
        format!("{} ({name})", client.address)
    });
    let named: Vec<String> = named.collect();
    let named = if named.is_empty() {
        String::new()
    } else {
        format!(": {}", named.join(", "))
    };
    Finding::note(LISTENERS, who + &named).remedy(
        "they may include daemons of lapsed, which can stay; stop an old listener (the PHP one), or it runs the same tasks",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assertions::assert_is;
    use lapsed::diagnosis::Severity;

    #[test]
    fn other_listeners_are_counted_and_named() {
        let judge = |listeners| super::judge("__keyevent@0__:expired", &listeners, 0);
        assert_is(
            &judge(Listeners::default()),
            Severity::Ok,
            "no other client",
        );
        let php = Client {
            address: "10.0.0.5:4433".into(),
            name: None,
        };
        let seen = judge(Listeners {
            by_name: 1,
            patterns: 1,
            by_pattern: Some(vec![php]),
            daemons: 0,
        });
        assert_is(&seen, Severity::Note, "2 other clients listen");
        assert!(seen.found.ends_with("10.0.0.5:4433 (no name)"), "{seen:?}");
        let unseen = judge(Listeners {
            patterns: 2,
            ..Listeners::default()
        });
        assert_is(&unseen, Severity::Note, "listen to 2 patterns");
    }

    #[test]
    fn daemons_are_not_counted_as_other_listeners() {
        let judge = |names: &[Option<&str>], daemons: u64, running| {
            let clients = names.iter().map(|name| Client {
                address: "10.0.0.5:4433".into(),
                name: name.map(str::to_owned),
            });
            let listeners = Listeners {
                patterns: 1,
                by_pattern: Some(clients.collect()),
                daemons,
                ..Listeners::default()
            };
            super::judge("__keyevent@0__:expired", &listeners, running)
        };
        let library = Some(LIBRARY);
        // Newer servers report the client library; for older ones the number of daemons is used.
        assert_is(&judge(&[library], 0, 0), Severity::Ok, "no other client");
        assert_is(&judge(&[None], 0, 1), Severity::Ok, "and no other client");
        // A daemon that has just started is not among the running ones yet.
        assert_is(&judge(&[None], 1, 0), Severity::Ok, "and no other client");
        let php = judge(&[library, None], 0, 0);
        assert_is(&php, Severity::Note, "1 other client listens");
        let php = judge(&[None, None], 1, 1);
        assert_is(&php, Severity::Note, "2 other clients");
    }

    #[test]
    fn running_daemons_are_named() {
        let note = |name: &str| Heartbeat {
            id: lapsed::membership::MemberId(1),
            name: name.into(),
            version: String::new(),
            since: lapsed::task::UnixMs(0),
            until: lapsed::task::UnixMs(0),
            readiness: lapsed::membership::Readiness::Ready,
            listening: true,
            expired_only: false,
            forwards: true,
            timer: String::new(),
            capabilities: Default::default(),
            idle_since: Vec::new(),
            queues: Default::default(),
        };
        assert_is(&daemons(Some(&[])), Severity::Note, "no daemon is running");
        let two = daemons(Some(&[note("a:1"), note("b:2")]));
        assert_is(&two, Severity::Ok, "2 daemons are running: a:1, b:2");
        assert_is(&daemons(None), Severity::Note, "could not be checked");
        let mut unlike = [note("a:1"), note("b:2"), note("c:3")];
        unlike[2].capabilities.routes.push("^Order@".to_owned());
        assert_is(
            &daemons(Some(&unlike)),
            Severity::Warning,
            "a:1 and c:3 have different routes",
        );
        let timed = |name: &str, timer: &str| Heartbeat {
            timer: timer.to_owned(),
            ..note(name)
        };
        let alike = [
            note("old:0"),
            timed("a:1", "wheel:t/5"),
            timed("b:2", "wheel:t/5"),
        ];
        assert_is(&daemons(Some(&alike)), Severity::Ok, "3 daemons");
        let unlike = [
            note("old:0"),
            timed("a:1", "wheel:t/5"),
            timed("b:2", "key_expiry"),
        ];
        assert_is(
            &daemons(Some(&unlike)),
            Severity::Warning,
            "a:1 and b:2 have different timers, or watch different keys (`wheel:t/5` and `key_expiry`)",
        );
    }
}
