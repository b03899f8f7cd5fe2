//! Checks the sentinels that name the master.

use crate::runner::words;
use lapsed::diagnosis::Finding;
use lapsed_redis::RedisError;

pub(super) const SENTINELS: &str = "redis.sentinels";

/// Judges what each sentinel answered: its node, and the master that it names. No finding without sentinels.
pub(super) fn sentinels(views: &[(String, Result<String, RedisError>)]) -> Vec<Finding> {
    if views.is_empty() {
        return Vec::new();
    }
    let named: Vec<&String> = views
        .iter()
        .filter_map(|(_, view)| view.as_ref().ok())
        .collect();
    let failed = views
        .iter()
        .filter_map(|(node, view)| Some((node, view.as_ref().err()?)));
    let mut findings: Vec<Finding> = failed
        .map(|(node, error)| {
            Finding::warning(SENTINELS, format!("{node}: {}", words(error))).remedy(
                "start this sentinel, or correct `redis.url`; its user needs `+sentinel|master +ping`",
            )
        })
        .collect();
    match named.first() {
        Some(first) if named.iter().any(|other| other != first) => {
            let all: Vec<String> = views
                .iter()
                .filter_map(|(node, view)| Some(format!("{node} names {}", view.as_ref().ok()?)))
                .collect();
            findings.push(
                Finding::warning(
                    SENTINELS,
                    format!("the sentinels name different masters: {}", all.join(", ")),
                )
                .remedy("a failover may be under way: ask again in some seconds; else see the logs of the sentinels"),
            );
        }
        Some(master) if named.len() > views.len() / 2 => findings.push(Finding::ok(
            SENTINELS,
            format!("{} of {} name {master}", named.len(), views.len()),
        )),
        _ => findings.push(
            Finding::error(
                SENTINELS,
                format!(
                    "{} of {} answer: they cannot promote a replica",
                    named.len(),
                    views.len()
                ),
            )
            .remedy("start a majority of the sentinels"),
        ),
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use lapsed::diagnosis::Severity;

    fn views(named: &[Option<&str>]) -> Vec<Finding> {
        let view = |master: &Option<&str>| match master {
            Some(master) => Ok((*master).to_owned()),
            None => Err(RedisError::silence()),
        };
        let views: Vec<_> = named
            .iter()
            .map(|master| ("s:26379".to_owned(), view(master)))
            .collect();
        sentinels(&views)
    }

    fn severities(named: &[Option<&str>]) -> Vec<Severity> {
        views(named)
            .iter()
            .map(|finding| finding.severity)
            .collect()
    }

    #[test]
    fn sentinels_are_well_if_a_majority_names_one_master() {
        use Severity::{Error, Ok, Warning};
        assert!(views(&[]).is_empty());
        assert_eq!(severities(&[Some("a:1"); 3]), [Ok]);
        assert_eq!(severities(&[Some("a:1"), None, Some("a:1")]), [Warning, Ok]);
        assert_eq!(
            severities(&[Some("a:1"), Some("b:1"), Some("a:1")]),
            [Warning]
        );
        assert_eq!(
            severities(&[Some("a:1"), None, None]),
            [Warning, Warning, Error]
        );
    }
}
