//! axe-core: finds what people with a screen reader, a keyboard or weak eyes cannot use.

use std::path::Path;

use serde_json::{Value, json};

use crate::driver::Driver;
use crate::support::registry;

/// Runs the checks of WCAG 2.2 AA and axe's own. Calls back with the violations.
const RUN: &str = "const done = arguments[arguments.length - 1];
    axe.run(document, {resultTypes: ['violations']})
        .then(found => done(found.violations), error => done(String(error)));";

/// The violations of impact serious or critical on the page: what is wrong, and where.
pub async fn violations(driver: &Driver) -> Vec<String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/browser/axe");
    let home = registry::npm(&source);
    let code = std::fs::read_to_string(home.join("node_modules/axe-core/axe.min.js")).unwrap();
    driver.execute(&code, json!([])).await.unwrap();
    let found = driver.execute_async(RUN, json!([])).await.unwrap();
    let found = found.as_array().unwrap_or_else(|| panic!("axe: {found}"));
    let is_bad = |violation: &&Value| {
        let impact = violation["impact"].as_str();
        matches!(impact, Some("serious" | "critical"))
    };
    found.iter().filter(is_bad).map(described).collect()
}

fn described(violation: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let nodes = violation["nodes"].as_array().into_iter().flatten();
    let places = nodes.map(|node| format!("{}: {}", node["target"], text(&node["failureSummary"])));
    let places: Vec<String> = places.take(5).collect();
    format!(
        "{} ({}): {}",
        text(&violation["id"]),
        text(&violation["help"]),
        places.join("; ")
    )
}
