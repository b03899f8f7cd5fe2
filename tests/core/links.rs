//! Links of the documentation lead to files and headings that exist.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// Directories with pages of the documentation, and whether their subdirectories have some.
const PLACES: [(&str, bool); 5] = [
    ("", false),
    ("docs", true),
    ("deploy", true),
    ("examples", true),
    ("tests", false),
];

fn pages_in(directory: &Path, deep: bool, pages: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if deep && path.is_dir() {
            pages_in(&path, deep, pages);
        } else if path.extension().is_some_and(|end| end == "md") {
            pages.push(path);
        }
    }
}

/// The lines that are not in a block of code.
fn prose(page: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(page).unwrap();
    let mut is_code = false;
    let lines = text.lines().filter(|line| {
        let fence = line.trim_start().starts_with("```");
        is_code ^= fence;
        !is_code && !fence
    });
    lines.map(str::to_owned).collect()
}

/// The anchors of the headings, as a forge makes them.
fn anchors(page: &Path) -> HashSet<String> {
    let mut found = HashSet::new();
    for line in prose(page) {
        let title = line.trim_start_matches('#');
        if title.len() == line.len() || !title.starts_with(' ') {
            continue;
        }
        let kept = title.trim().to_lowercase();
        let kept = kept
            .chars()
            .filter(|&c| c.is_alphanumeric() || "-_ ".contains(c));
        let anchor: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
        let number = (1..)
            .find(|n| !found.contains(&format!("{anchor}-{n}")))
            .unwrap();
        if !found.insert(anchor.clone()) {
            found.insert(format!("{anchor}-{number}"));
        }
    }
    found
}

#[test]
fn every_link_leads_to_a_file_and_a_heading_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut pages = Vec::new();
    for (place, deep) in PLACES {
        pages_in(&root.join(place), deep, &mut pages);
    }
    let (mut links, mut broken) = (0, Vec::new());
    for page in &pages {
        let text = prose(page).join("\n");
        for rest in text.split("](").skip(1) {
            let link = rest.split([')', ' ', '\n']).next().unwrap();
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            links += 1;
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => page.clone(),
                file => page.parent().unwrap().join(file),
            };
            let is_page = target.extension().is_some_and(|end| end == "md");
            let leads = target.exists()
                && (anchor.is_empty() || !is_page || anchors(&target).contains(anchor));
            if !leads {
                let page = page.strip_prefix(root).unwrap();
                broken.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(links > 100, "{links} links in {} pages", pages.len());
    assert_eq!(broken, [] as [String; 0]);
}
