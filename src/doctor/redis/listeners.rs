//! Who else listens.

use crate::doctor::Finding;
use crate::redis::Listeners;

pub(super) const LISTENERS: &str = "redis.listeners";

pub(super) fn judge(channel: &str, listeners: &Listeners) -> Finding {
    let Listeners {
        by_name,
        patterns,
        by_pattern,
    } = listeners;
    let others = match by_pattern {
        Some(clients) => by_name + clients.len() as u64,
        None => by_name + patterns,
    };
    if others == 0 {
        return Finding::ok(LISTENERS, format!("nobody else listens to `{channel}`"));
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
        "daemons of lapsed may be among them and may stay; an old listener (the PHP one) must be stopped, or it runs the same tasks",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Severity;
    use crate::doctor::finding::tests::assert_is;
    use crate::redis::Client;

    #[test]
    fn other_listeners_are_counted_and_named() {
        let judge = |listeners| super::judge("__keyevent@0__:expired", &listeners);
        assert_is(&judge(Listeners::default()), Severity::Ok, "nobody else");
        let php = Client {
            address: "10.0.0.5:4433".into(),
            name: None,
        };
        let seen = judge(Listeners {
            by_name: 1,
            patterns: 1,
            by_pattern: Some(vec![php]),
        });
        assert_is(&seen, Severity::Note, "2 other clients listen");
        assert!(seen.found.ends_with("10.0.0.5:4433 (no name)"), "{seen:?}");
        let unseen = judge(Listeners {
            patterns: 2,
            ..Listeners::default()
        });
        assert_is(&unseen, Severity::Note, "listen to 2 patterns");
    }
}
