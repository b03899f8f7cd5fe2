//! One diagnosis: the rules for Prometheus, the configuration and the documentation agree with the list of conditions.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use lapsed::diagnosis::{
    CANCELLED_BY_KEY_MIN, CONDITIONS, DOWN_FOR, LATE, OVERDUE, Patience, SENTINEL_INTERVALS,
    SWEPT_MIN, SWEPT_PERCENT, Severity, WINDOW,
};

/// What only Prometheus sees: that a daemon does not answer, and what takes longer than the window of a daemon.
const ONLY_RULES: [&str; 3] = ["LapsedDown", "LapsedEventsLost", "LapsedRowsGrow"];

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A rule, as the file has it.
#[derive(Debug, Default)]
struct Rule {
    expr: String,
    lasts: String,
    severity: String,
    summary: String,
    action: String,
}

/// The rules by the name of their alert.
fn rules() -> BTreeMap<String, Rule> {
    let text = read("deploy/prometheus/rules.yml");
    let mut rules = BTreeMap::new();
    for block in text.split("- alert: ").skip(1) {
        let (name, body) = block.split_once('\n').unwrap();
        let value = |key: &str| {
            let line = body.lines().find_map(|line| line.trim().strip_prefix(key));
            line.unwrap_or_default().trim().trim_matches('"').to_owned()
        };
        let (_, expr) = body.split_once("expr:").unwrap();
        let end = ["\n        for:", "\n        labels:"];
        let end = end.iter().filter_map(|end| expr.find(end)).min().unwrap();
        let severity = value("labels: { severity:");
        rules.insert(
            name.trim().to_owned(),
            Rule {
                expr: expr[..end].split_whitespace().collect::<Vec<_>>().join(" "),
                lasts: value("for:"),
                severity: severity.trim_end_matches(['}', ' ']).to_owned(),
                summary: value("summary:"),
                action: value("action:"),
            },
        );
    }
    rules
}

#[test]
fn each_rule_is_a_condition_and_each_condition_with_a_rule_has_it() {
    let names: BTreeSet<String> = rules().into_keys().collect();
    let listed = CONDITIONS.iter().filter_map(|condition| condition.rule);
    let listed = listed.chain(ONLY_RULES).map(str::to_owned);
    assert_eq!(names, listed.collect());
    for condition in CONDITIONS {
        let is_silent = condition.reported.is_none();
        assert!(!is_silent || condition.rule.is_none(), "{}", condition.id);
    }
}

#[test]
fn a_rule_says_what_its_condition_says() {
    let rules = rules();
    for condition in CONDITIONS {
        let Some(rule) = condition.rule.map(|name| &rules[name]) else {
            continue;
        };
        let severity = match condition.severity {
            Severity::Error => "critical",
            Severity::Warning => "warning",
            Severity::Note | Severity::Ok => "info",
        };
        assert_eq!(rule.severity, severity, "{}", condition.id);
        // A rule knows other values, so the words up to the first of them are compared.
        let words = |text: &str| text.split("{").next().unwrap().trim_end().to_lowercase();
        let (text, summary) = (words(condition.text()), words(&rule.summary));
        let is_said = text.starts_with(&summary) || summary.starts_with(&text);
        assert!(is_said && summary.len() > 4, "`{summary}` is not `{text}`");
        let remedy = condition.remedy();
        assert!(rule.action.starts_with(remedy), "{}: {remedy}", rule.action);
    }
}

#[test]
fn a_rule_has_the_thresholds_of_its_condition() {
    let rules = rules();
    let minutes = |span: Duration| format!("{}m", span.as_secs() / 60);
    for condition in CONDITIONS {
        let (Some(name), Some(patience)) = (condition.rule, condition.reported) else {
            continue;
        };
        let rule = &rules[name];
        let lasts = match patience {
            Patience::None => String::new(),
            Patience::DownFor => format!("{}s", DOWN_FOR.as_secs()),
            Patience::Window => minutes(WINDOW),
        };
        assert_eq!(rule.lasts, lasts, "{name}");
        for window in rule.expr.split('[').skip(1) {
            let window = window.split(']').next().unwrap();
            assert_eq!(window, minutes(WINDOW), "{name}");
        }
    }
    let share = f64::from(SWEPT_PERCENT) / 100.0;
    for (name, limit) in [
        ("LapsedOverdue", format!("> {}", OVERDUE.as_secs())),
        ("LapsedLate", format!("> {}", LATE.as_secs())),
        ("LapsedSweepRecovers", format!(">= {SWEPT_MIN}")),
        ("LapsedSweepRecovers", format!("> {share} *")),
        ("LapsedSentinelSilent", format!("> {SENTINEL_INTERVALS} *")),
    ] {
        let expr = &rules[name].expr;
        assert!(expr.contains(&limit), "{name}: no `{limit}` in `{expr}`");
    }
}

#[test]
fn the_documentation_names_each_condition_that_is_reported() {
    let page = read("docs/alerts.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    let named: BTreeSet<&str> = rows.filter_map(|row| row.split('`').next()).collect();
    let reported = CONDITIONS.iter().filter(|it| it.reported.is_some());
    assert_eq!(named, reported.map(|condition| condition.id).collect());
    for number in [SWEPT_MIN.to_string(), CANCELLED_BY_KEY_MIN.to_string()] {
        assert!(page.contains(&number), "{number}");
    }
}
