//! Wheel checks: the lists of programs, and whether routes take their entries.

use std::collections::BTreeMap;

use crate::runner::{Runner, Unresponsive};
use lapsed::config::Config;
use lapsed::diagnosis::Finding;
use lapsed::task::UnixMs;
use lapsed::timer::wheel::task_of;
use lapsed_core::format::count;
use lapsed_redis::{Commands, Endpoint, Inspection, RedisError, WheelKeys};

use super::sorted_sets::{SCRIPTS, refusal_of_scripts, scripted};

const LISTS: &str = "redis.wheel";
const ENTRIES: &str = "redis.wheel_entries";

/// Most lists that are looked for with one command.
const SLOTS_AT_ONCE: usize = 1_000;

/// Most elements of one list, and of all, that are compared with the routes.
const OF_A_LIST: usize = 500;
const COMPARED_MAX: usize = 10_000;

/// To read a list hides when it was last used, by which the wheel tells what was pushed before a visit that it has missed.
/// Before its first tick, the visits of this time may be missed: those since the old timer was stopped.
const MISSED_MS: i64 = 15 * 60 * 1_000;

/// What the lists hold.
#[derive(Default)]
struct Contents {
    /// What their names begin with.
    key: String,
    /// Number of lists that have elements, and of those that were not read.
    lists: usize,
    unread: usize,
    /// Elements that are no entries, by what is wrong.
    garbage: BTreeMap<&'static str, u64>,
    /// Entries that no route takes, by class and method.
    unroutable: BTreeMap<String, u64>,
}

/// Checks the lists of the configuration.
pub(super) async fn examine(
    config: &Config,
    endpoint: &Endpoint,
    runner: &mut Runner,
) -> Result<(), Unresponsive> {
    let commands = Commands::new(endpoint.clone());
    let server = Inspection::new(commands.clone());
    let scripts = refusal_of_scripts(&server);
    if let Some(refusal) = runner.query(&[SCRIPTS], scripts).await? {
        runner.add([scripted(refusal.as_ref())]);
    }
    let contents = contents(config, &server, commands);
    if let Some(contents) = runner.query(&[LISTS, ENTRIES], contents).await? {
        runner.add(judge(&contents));
    }
    Ok(())
}

async fn contents(
    config: &Config,
    server: &Inspection,
    commands: Commands,
) -> Result<Contents, RedisError> {
    let wheel = &config.wheel;
    let tick_ms = i64::try_from(wheel.tick.as_millis()).unwrap_or(i64::MAX);
    let key = format!("{}{}", config.redis.key_prefix, wheel.key);
    let keys = WheelKeys::new(commands, key.clone(), wheel.slots, tick_ms.max(1));
    let now = server.time().await?;
    let last = keys.last_tick().await?.map(|last| last.tick);
    let is_missed = missed(wheel.slots, tick_ms.max(1), last, now);
    let mut found = Contents {
        key,
        ..Contents::default()
    };
    let mut compared = 0;
    let slots: Vec<u32> = (0..wheel.slots).collect();
    for slots in slots.chunks(SLOTS_AT_ONCE) {
        if keys.count_lists(slots).await? == 0 {
            continue;
        }
        let have = keys.have_lists(slots).await?;
        for (slot, _) in slots.iter().zip(have).filter(|(_, has)| *has) {
            found.lists += 1;
            if is_missed(*slot) || compared >= COMPARED_MAX {
                found.unread += 1;
                continue;
            }
            let elements = keys.peek(*slot, OF_A_LIST).await?;
            compared += elements.len();
            for element in elements {
                compare(&element, config, &mut found);
            }
        }
    }
    Ok(found)
}

fn compare(element: &[u8], config: &Config, found: &mut Contents) {
    match task_of(element, &config.wheel.class) {
        Ok(None) => {}
        Ok(Some(key)) => {
            let is_taken = config.routes.iter().any(|route| route.fits(&key));
            if !is_taken && !config.routes.is_empty() {
                let method = found.unroutable.entry(key.class_method().to_owned());
                *method.or_default() += 1;
            }
        }
        Err(why) => *found.garbage.entry(why).or_default() += 1,
    }
}

/// Tells whether the latest visit of a slot may have been missed.
fn missed(slots: u32, tick_ms: i64, last: Option<i64>, now: UnixMs) -> impl Fn(u32) -> bool {
    let current = now.0.div_euclid(tick_ms);
    let last = last.unwrap_or((now.0 - MISSED_MS).div_euclid(tick_ms));
    let missed = current - last;
    move |slot| {
        let behind = (current - i64::from(slot)).rem_euclid(i64::from(slots.max(1)));
        behind < missed
    }
}

fn judge(found: &Contents) -> Vec<Finding> {
    let Contents {
        key,
        lists,
        unread,
        garbage,
        unroutable,
    } = found;
    let mut findings = vec![Finding::ok(
        LISTS,
        match lists {
            0 => format!("no list `{key}<slot>` has entries of programs"),
            lists => format!(
                "{} lists `{key}<slot>` have entries of programs",
                count(*lists as u64)
            ),
        },
    )];
    if *unread > 0 {
        findings.push(Finding::note(
            LISTS,
            format!(
                "{} of them were not read: that would hide when they were last used, which the wheel asks at its start",
                count(*unread as u64)
            ),
        ));
    }
    for (method, entries) in unroutable {
        let found = format!(
            "no route takes {} entries with the key `{method}@~..`: they stay in their lists",
            count(*entries)
        );
        let remedy = format!("add a route that matches this key, such as `match = \"^{method}@\"`");
        findings.push(Finding::warning(ENTRIES, found).remedy(remedy));
    }
    for (why, elements) in garbage {
        let found = format!(
            "{} elements are no entries, and will be moved to `{key}refused`: {why}",
            count(*elements)
        );
        let remedy = "correct the program that writes them";
        findings.push(Finding::warning(ENTRIES, found).remedy(remedy));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assertions::assert_is;
    use lapsed::diagnosis::Severity;

    #[test]
    fn entries_without_a_route_are_named() {
        let mut found = Contents {
            key: "task_".to_owned(),
            ..Contents::default()
        };
        assert_is(&judge(&found)[0], Severity::Ok, "no list `task_<slot>`");
        found.lists = 3_600;
        found.unread = 2;
        found.unroutable.insert("Wheel@send_msg".to_owned(), 500);
        found.garbage.insert("it is no entry", 1);
        let findings = judge(&found);
        assert_is(&findings[0], Severity::Ok, "3,600 lists `task_<slot>`");
        assert_is(&findings[1], Severity::Note, "2 of them were not read");
        assert_is(
            &findings[2],
            Severity::Warning,
            "takes 500 entries with the key `Wheel@send_msg@~..`",
        );
        assert_is(&findings[3], Severity::Warning, "1 elements are no entries");
    }

    #[test]
    fn no_list_is_read_whose_visit_may_have_been_missed() {
        let at = |last, now_s: i64| missed(3_600, 1_000, last, UnixMs(now_s * 1_000));
        let stopped = at(Some(7_200), 7_205);
        let read: Vec<u32> = (0..8).filter(|slot| !stopped(*slot)).collect();
        assert_eq!(read, [0, 6, 7]);
        assert!(!at(Some(7_205), 7_205)(5));
        let long_ago = at(Some(0), 7_205);
        assert!((0..3_600).all(long_ago));
        let first = at(None, 7_205);
        assert!(first(5) && first(3_600 - 890) && !first(6) && !first(3_600 - 900));
    }
}
