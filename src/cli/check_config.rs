//! `lapsed check-config`: shows the configuration and warns of entries without effect.

use std::process::ExitCode;

use lapsed::Config;
use lapsed::config::{ConfigSource, RecurringConfig, RouteConfig, SortedSetConfig, TimerKind};
use lapsed::task::UnixMs;
use lapsed_doctor::{exposed_secrets, missing_programs};
use serde_json::json;

use super::log::stderr_line;
use super::output::Output;

pub fn run(config: &Config, source: &ConfigSource, output: Output) -> anyhow::Result<ExitCode> {
    let targets = config.routes.iter().map(
        |route| json!({ "match": route.matches.as_str(), "target": route.target.to_string() }),
    );
    let targets: Vec<_> = targets.collect();
    let of_series = config
        .recurring
        .iter()
        .filter_map(|series| warning(config, series));
    let warnings: Vec<String> = unreachable_routes(&config.routes)
        .into_iter()
        .chain(of_series)
        .chain(missing_programs(config))
        .chain(shared_members(config))
        .chain(exposed_secrets(config, source.file()))
        .collect();
    let (routes, recurring) = (config.routes.len(), config.recurring.len());
    let value = json!({
        "ok": true, "file": source.file(), "routes": routes, "targets": targets, "recurring": recurring, "warnings": warnings,
    });
    let plural = |count| if count == 1 { "" } else { "s" };
    let mut text = format!(
        "the configuration is valid, {routes} route{}",
        plural(routes)
    );
    if recurring > 0 {
        text += &format!(", {recurring} recurring task{}", plural(recurring));
    }
    text += &format!(": {source}");
    for route in &config.routes {
        text += &format!("\n  {}  ->  {}", route.matches, route.target);
    }
    for series in &config.recurring {
        let recurrence = series.recurrence.summary();
        text += &format!("\n  {}  recurs: {recurrence}", series.key);
    }
    output.print(&value, text)?;
    for warning in warnings {
        stderr_line!("warning: {warning}");
    }
    Ok(ExitCode::SUCCESS)
}

/// Several sorted sets are one queue, unless the rule names the set.
fn shared_members(config: &Config) -> Option<String> {
    let SortedSetConfig { keys, member, .. } = &config.sorted_set;
    let shares = keys.len() > 1 && !member.names_set();
    (config.timer == TimerKind::SortedSet && shares).then(|| {
        format!(
            "`sorted_set.keys` names {} sets: a member that is in two of them is one task. If ids of different sets may be equal, write `{{set}}` into `sorted_set.member`, such as \"Queue@{{set}}@{{member}}\"",
            keys.len()
        )
    })
}

/// Why a recurring task of the configuration never runs, if so.
fn warning(config: &Config, series: &RecurringConfig) -> Option<String> {
    let RecurringConfig {
        key, recurrence, ..
    } = series;
    let is_routed = |route: &RouteConfig| route.matches.is_match(key.as_str());
    let warning = match recurrence.next(lapsed::clock::wall()) {
        None if recurrence.next(UnixMs(0)).is_none() => {
            "never runs: it has no occurrence between `start` and `until`"
        }
        None => "has ended: its last occurrence has passed",
        Some(_) if !config.routes.iter().any(is_routed) => {
            "matches no route: only a program with a handler for it runs it"
        }
        Some(_) => return None,
    };
    Some(format!("`{key}` of `[[recurring]]` {warning}"))
}

/// Warnings about routes that are never used because an earlier route matches all their keys.
fn unreachable_routes(routes: &[RouteConfig]) -> Vec<String> {
    let mut warnings = Vec::new();
    for (number, route) in routes.iter().enumerate() {
        let mut earlier = routes[..number].iter().enumerate();
        let pattern = route.matches.as_str();
        let covering = earlier.find(|(_, route)| covers(route.matches.as_str(), pattern));
        if let Some((first, earlier)) = covering {
            warnings.push(format!(
                "`routes[{number}]` (`{pattern}`) is never used: `routes[{first}]` (`{}`) matches its keys first",
                earlier.matches
            ));
        }
    }
    warnings
}

/// Whether one pattern matches every key that the other one matches. Finds the common cases only: the same
/// pattern, one that matches everything, and a plain prefix such as `^Order@` before `^Order@close`.
fn covers(pattern: &str, other: &str) -> bool {
    const EVERYTHING: [&str; 8] = ["", ".", "^", "^.", ".*", "^.*", ".*$", "^.*$"];
    if pattern == other || EVERYTHING.contains(&pattern) {
        return true;
    }
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "@_:-".contains(c);
    let is_beginning = pattern
        .strip_prefix('^')
        .is_some_and(|plain| plain.chars().all(is_plain));
    let Some(rest) = other.strip_prefix(pattern) else {
        return false;
    };
    is_beginning && !rest.starts_with(['?', '*', '{', '+', '|']) && !has_alternative(rest)
}

/// Whether the pattern may have a `|` outside of parentheses.
fn has_alternative(pattern: &str) -> bool {
    if !pattern.contains('|') {
        return false;
    }
    let mut depth = 0;
    for c in pattern.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            // The following characters may be quoted.
            '[' | '\\' => return true,
            '|' if depth == 0 => return true,
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_sorted_sets_share_their_members() {
        let warning = |text: &str| shared_members(&Config::from_toml(text).unwrap());
        let two = "sorted_set.keys = ['order', 'refund']";
        let found = warning(&format!("timer = 'sorted_set'\n{two}")).unwrap();
        assert!(found.contains("names 2 sets"), "{found}");
        let named =
            format!("timer = 'sorted_set'\n{two}\nsorted_set.member = 'Q@{{set}}@{{member}}'");
        assert_eq!(warning(&named), None);
        assert_eq!(warning("timer = 'sorted_set'"), None);
        assert_eq!(warning(two), None, "another timer is used");
    }

    #[test]
    fn a_route_behind_one_that_matches_all_its_keys_is_known() {
        for (earlier, later) in [
            ("^Order@close", "^Order@close"),
            (".", "^Order@close"),
            ("^Order@", "^Order@close(@|$)"),
            ("^Order@close", "^Order@close@"),
        ] {
            assert!(covers(earlier, later), "{earlier} {later}");
        }
        for (earlier, later) in [
            ("^Order@close(@|$)", "^Order@"),
            ("^Order@close", "^Order@"),
            ("Order@", "^Mail@"),
            ("^Order", "^Order?"),
            ("^Order@", "^Order@close|^Mail@"),
            ("^Order@", "^Order@[(]x|^Mail@"),
            ("^Order.", "^Order@"),
            ("^Order@close$", "^Order@close"),
        ] {
            assert!(!covers(earlier, later), "{earlier} {later}");
        }
    }
}
