//! docs/errors.md has an entry for each error of the servers.

use crate::http::ProblemKind;
use crate::resp::ErrorCode;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/errors.md");

/// Set to anything, it makes the test write the part of the page that is made from the code.
const UPDATE: &str = "LAPSED_UPDATE_SNAPSHOTS";

/// The entries below a heading, and what is around them.
fn around<'a>(page: &'a str, heading: &str) -> (&'a str, &'a str, &'a str) {
    let start = page.find(&format!("\n## {heading}\n")).unwrap();
    let start = start + page[start..].find("\n### ").unwrap() + 1;
    let end = page[start..]
        .find("\n## ")
        .map_or(page.len(), |at| start + at + 1);
    (&page[..start], &page[start..end], &page[end..])
}

fn entry(kind: &ProblemKind) -> String {
    let (slug, title, remedy) = (kind.slug(), kind.title(), kind.remedy());
    let mut status = kind.status().as_u16().to_string();
    if let Some(after) = kind.retry_after() {
        status += &format!(", `Retry-After: {}`", after.as_secs());
    }
    format!("### `{slug}`\n\nStatus {status}: {title}. {remedy}\n\n")
}

#[test]
fn the_page_of_errors_has_every_kind_of_the_http_api() {
    let page = std::fs::read_to_string(FILE).unwrap();
    let (before, entries, after) = around(&page, "HTTP API");
    let current: String = ProblemKind::ALL.iter().map(entry).collect();
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(FILE, format!("{before}{current}{after}")).unwrap();
        return;
    }
    assert_eq!(
        entries, current,
        "run this test again with {UPDATE}=1 and commit the file"
    );
}

#[test]
fn the_page_of_errors_has_every_code_of_the_resp_server() {
    let page = std::fs::read_to_string(FILE).unwrap();
    let (_, entries, _) = around(&page, "RESP server");
    let titles: Vec<&str> = entries
        .lines()
        .filter_map(|line| line.strip_prefix("### `")?.strip_suffix('`'))
        .collect();
    let codes: Vec<&str> = ErrorCode::ALL.iter().map(|code| code.as_str()).collect();
    assert_eq!(titles, codes, "an entry for each code, in their order");
}
