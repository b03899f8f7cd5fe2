//! The blocks of code of a page, and what becomes of each.

use std::path::Path;

/// A block of code.
#[derive(Debug, Clone)]
pub struct Block {
    pub page: String,
    /// Of its fence, counted from 1.
    pub line: usize,
    pub language: String,
    pub text: String,
    pub use_: Use,
    /// Whether the reader first ends what stays in a terminal.
    pub after_ctrl_c: bool,
}

/// What a reader does with a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Use {
    /// Types the lines that begin with `$`, and sees the others.
    Console,
    /// Types it in a shell.
    Shell,
    /// Types it in a terminal of its own, where it stays and listens on a port.
    Stays,
    /// Types it in a terminal of its own, where it stays and listens on none.
    StaysWithoutPort,
    /// Saves it as this file.
    File(String),
    /// Adds it to this file.
    Append(String),
    /// A configuration of its own.
    Configuration,
    /// Sends it to the database.
    Sql,
    /// Types it in `redis-cli`.
    Redis,
    /// Puts it into a program that has a client of Redis.
    Snippet,
    /// Sees it in the log of what stays.
    Log,
    /// Sees it as what the block before it printed.
    Printed,
    /// Compiles it: `tests/documents`.
    Compiled(Ledger),
    /// Nothing, for this reason.
    NotRun(String),
}

/// Where the tasks of a block are, since `begin` and `create_in` of each ledger take other transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ledger {
    Mysql,
    Sqlite,
}

impl Block {
    pub fn place(&self) -> String {
        format!("{}:{}", self.page, self.line)
    }

    /// For the list of all blocks: it has no number of a line, which would change with each sentence.
    pub fn summary(&self) -> String {
        let use_ = match &self.use_ {
            Use::Console => "typed, and what it prints compared".to_owned(),
            Use::Shell => "typed".to_owned(),
            Use::Stays | Use::StaysWithoutPort => "typed in a terminal of its own".to_owned(),
            Use::File(name) => format!("saved as {name}"),
            Use::Append(name) => format!("added to {name}"),
            Use::Configuration => "parsed".to_owned(),
            Use::Sql => "sent to the database".to_owned(),
            Use::Redis => "sent to Redis".to_owned(),
            Use::Snippet => "run".to_owned(),
            Use::Log => "compared with the log".to_owned(),
            Use::Printed => "compared with what the block before it prints".to_owned(),
            Use::Compiled(Ledger::Mysql) => "compiled".to_owned(),
            Use::Compiled(Ledger::Sqlite) => "compiled, on SQLite".to_owned(),
            Use::NotRun(reason) => format!("NOT RUN: {reason}"),
        };
        format!("{} {}: {use_}", self.page, self.language)
    }
}

/// The blocks of a page, in order.
///
/// A comment `<!-- run: .. -->` on a line above the fence says what the language and the sentence before it do not say: `no,
/// REASON`, `stays`, `stays without a port`, `as FILE`, `into FILE`, `redis`, `log`, `printed`, `on SQLite`, or `after
/// Ctrl-C`.
///
/// # Panics
/// If nothing says what becomes of a block.
pub fn blocks(page: &str) -> Vec<Block> {
    let text = std::fs::read_to_string(root().join(page)).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let (mut found, mut number) = (Vec::new(), 0);
    while number < lines.len() {
        let line = lines[number];
        let fence = line.trim_start();
        let Some(language) = fence.strip_prefix("```") else {
            number += 1;
            continue;
        };
        let indent = line.len() - fence.len();
        let inside: Vec<&str> = lines[number + 1..]
            .iter()
            .take_while(|line| line.trim() != "```")
            .map(|line| line.get(indent..).unwrap_or_default())
            .collect();
        let mut above = lines[..number]
            .iter()
            .rev()
            .map(|line| line.trim())
            .filter(|line| !line.is_empty());
        let comments: Vec<&str> = above
            .clone()
            .map_while(|line| line.strip_prefix("<!-- ")?.strip_suffix(" -->"))
            .collect();
        let nearest = above.nth(comments.len()).unwrap_or_default();
        let place = format!("{page}:{}", number + 1);
        let after_ctrl_c = comments.contains(&"run: after Ctrl-C");
        let marker = comments
            .into_iter()
            .filter_map(|comment| comment.strip_prefix("run: "))
            .find(|marker| *marker != "after Ctrl-C");
        found.push(Block {
            page: page.to_owned(),
            line: number + 1,
            language: language.to_owned(),
            text: inside.iter().map(|line| format!("{line}\n")).collect(),
            use_: use_of(language, marker, nearest, &place),
            after_ctrl_c,
        });
        number += inside.len() + 2;
    }
    found
}

/// `nearest` is the sentence above the block.
fn use_of(language: &str, marker: Option<&str>, nearest: &str, place: &str) -> Use {
    if let Some(marker) = marker {
        return match marker.split_once(' ').unwrap_or((marker, "")) {
            ("no,", reason) => Use::NotRun(reason.to_owned()),
            ("stays", "") => Use::Stays,
            ("stays", "without a port") => Use::StaysWithoutPort,
            ("as", name) => Use::File(name.to_owned()),
            ("into", name) => Use::Append(name.to_owned()),
            ("redis", "") => Use::Redis,
            ("log", "") => Use::Log,
            ("printed", "") => Use::Printed,
            ("on", "SQLite") => Use::Compiled(Ledger::Sqlite),
            _ => panic!("{place}: unknown marker `{marker}`"),
        };
    }
    // "`task.php`:" names the file.
    let name = nearest
        .strip_suffix("`:")
        .and_then(|line| line.rsplit_once('`'))
        .map(|(_, name)| name)
        .filter(|name| name.contains('.') && !name.contains([' ', '=', '[']));
    match (language, name) {
        ("toml" | "yaml" | "php" | "python" | "js", Some(name)) => Use::File(name.to_owned()),
        ("toml", None) => Use::Configuration,
        ("php" | "python" | "js" | "go" | "ruby", None) => Use::Snippet,
        ("sh", _) => Use::Shell,
        ("console", _) => Use::Console,
        ("sql", _) => Use::Sql,
        ("rust", _) => Use::Compiled(Ledger::Mysql),
        ("java", _) => {
            Use::NotRun("a line for a client that tests of pages do not have".to_owned())
        }
        _ => panic!(
            "{place}: nothing says what becomes of this block: write `<!-- run: .. -->` above it"
        ),
    }
}

/// The pages with code that are for users, without the design and the decision records.
pub fn all_pages() -> Vec<String> {
    let mut directories = ["docs", "docs/coming-from", "docs/zh-CN", "deploy"]
        .map(str::to_owned)
        .to_vec();
    directories.extend(entries("examples"));
    let mut pages: Vec<String> = directories.iter().flat_map(|name| entries(name)).collect();
    pages.retain(|name| name.ends_with(".md"));
    pages.extend(["README.md", "README.zh-CN.md"].map(str::to_owned));
    pages.sort();
    pages
}

/// The paths in a directory; none if it is a file.
fn entries(directory: &str) -> Vec<String> {
    let entries = std::fs::read_dir(root().join(directory))
        .into_iter()
        .flatten();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.map(|name| format!("{directory}/{name}")).collect()
}

/// Of the repository.
pub fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}
