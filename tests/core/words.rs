//! Words that were replaced do not come back: in names and texts of `src`, and in names of tests.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::LazyLock;

use regex::Regex;

use crate::source_files::source_files;

/// Where a word is not to be said.
#[derive(Clone, Copy, PartialEq, Eq)]
enum In {
    /// In names only: in a sentence it may be plain English.
    Names,
    /// In names, log texts, error texts, help texts, metrics and stored words.
    NamesAndTexts,
}
use In::{Names, NamesAndTexts};

/// A word and its forms, what was wrong with it, and what to say.
struct Word {
    forms: &'static [&'static str],
    place: In,
    why: &'static str,
    say: &'static str,
}

const fn word(
    forms: &'static [&'static str],
    place: In,
    why: &'static str,
    say: &'static str,
) -> Word {
    Word {
        forms,
        place,
        why,
        say,
    }
}

const WORDS: [Word; 24] = [
    word(
        &["door", "doors"],
        NamesAndTexts,
        "a picture for a server",
        "RESP server, `ServerState`",
    ),
    word(
        &["wish", "wishes"],
        NamesAndTexts,
        "a second name for a change",
        "`Change`",
    ),
    word(
        &["stand", "stands", "standing"],
        NamesAndTexts,
        "had six meanings",
        "written, kept, active, declared, the state of an entry",
    ),
    word(
        &["told", "untold", "tells", "tell"],
        Names,
        "does not say who informs whom of what",
        "`BulkProgress`, notified, unsignalled",
    ),
    word(
        &["mishap", "mishaps"],
        NamesAndTexts,
        "a coined noun",
        "`AttemptError`: a failed attempt",
    ),
    word(
        &["hindrance", "hindrances", "hinders", "hindered"],
        NamesAndTexts,
        "a coined noun",
        "`BlockedBy`, blocked",
    ),
    word(
        &["lane", "lanes"],
        NamesAndTexts,
        "a picture",
        "worker group, audience",
    ),
    word(
        &["doubt", "doubts", "doubted"],
        Names,
        "does not say what is to be done",
        "`Recheck`, unconfirmed",
    ),
    word(
        &["lack", "lacks", "lacking"],
        Names,
        "does not say what is missing",
        "`MissingPrivileges`, missing",
    ),
    word(
        &["taker", "takers"],
        Names,
        "had four meanings with `take` and `taken`",
        "waiting worker, manual claim, delivery",
    ),
    word(
        &["figures", "figure"],
        Names,
        "does not say which",
        "`StatsCache`, snapshot",
    ),
    word(
        &["site"],
        Names,
        "does not say that it is what handlers share",
        "`AppState`",
    ),
    word(
        &["undivided", "divided"],
        Names,
        "had two meanings",
        "per class, unrestricted",
    ),
    word(&["dial", "dials"], Names, "a picture", "`WheelClock`"),
    word(
        &["senior", "seniors", "seniority"],
        Names,
        "a picture",
        "rank of a listener",
    ),
    word(&["deaf"], NamesAndTexts, "a picture", "not subscribed"),
    word(
        &["sighting", "sightings"],
        NamesAndTexts,
        "an old name",
        "adoption candidate",
    ),
    word(
        &["withdrawn", "withdraw", "withdraws"],
        NamesAndTexts,
        "an old name",
        "cancelled by its key",
    ),
    word(&["crew", "crews"], NamesAndTexts, "a picture", "workers"),
    word(
        &["crowd", "crowds"],
        NamesAndTexts,
        "a picture",
        "idle connections",
    ),
    word(
        &["begun"],
        Names,
        "a participle as a noun",
        "started, `IdempotencyCheck`",
    ),
    word(
        &["vanished", "vanishes"],
        NamesAndTexts,
        "does not say that a member is meant",
        "lost",
    ),
    word(&["entrance"], NamesAndTexts, "had two meanings", "listener"),
    word(
        &["spoken", "slack"],
        Names,
        "does not say of what",
        "format of a duration, tolerance",
    ),
];

/// Lines of a word and a file that still has it: none is added here, and the last use in a file takes its line away.
const ALLOWED: &str = "tests/core/words_allowed.txt";

/// As for the snapshots: set, it rewrites [`ALLOWED`], unless more files than before have a word.
const UPDATE: &str = "LAPSED_UPDATE_SNAPSHOTS";

#[test]
fn words_that_were_replaced_do_not_come_back() {
    let uses = found();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(ALLOWED);
    let text = std::fs::read_to_string(&path).unwrap();
    let allowed: BTreeSet<String> = text.lines().map(str::to_owned).collect();
    let found: BTreeSet<String> = uses.iter().map(Use::line).collect();
    if std::env::var_os(UPDATE).is_some() && !has_more(&found, &allowed) {
        let lines: String = found.iter().map(|line| format!("{line}\n")).collect();
        std::fs::write(&path, lines).unwrap();
        return;
    }
    let new = uses.iter().filter(|word| !allowed.contains(&word.line()));
    let new: Vec<String> = new.map(Use::fault).collect();
    assert!(new.is_empty(), "\n{}", new.join("\n"));
    let gone: Vec<&str> = allowed.difference(&found).map(String::as_str).collect();
    assert!(
        gone.is_empty(),
        "these do not have their word any more, so run this with {UPDATE}=1 and commit {ALLOWED}:\n{}",
        gone.join("\n")
    );
}

/// True if more files than are allowed have some word. A file that was moved is no more.
fn has_more(found: &BTreeSet<String>, allowed: &BTreeSet<String>) -> bool {
    let files = |lines: &BTreeSet<String>, word: &Word| {
        let head = format!("{} ", word.forms[0]);
        lines.iter().filter(|line| line.starts_with(&head)).count()
    };
    let mut words = WORDS.iter();
    words.any(|word| files(found, word) > files(allowed, word))
}

/// A file that says a word.
struct Use {
    word: &'static Word,
    form: String,
    path: String,
    /// The name or text that has it.
    within: String,
}

impl Use {
    fn line(&self) -> String {
        format!("{} {}", self.word.forms[0], self.path)
    }

    fn fault(&self) -> String {
        let Self {
            word: Word { why, say, .. },
            form,
            path,
            within,
        } = self;
        format!("{path}: `{within}`: `{form}` {why}; say: {say}")
    }
}

fn found() -> Vec<Use> {
    let mut found = Vec::new();
    let name = Regex::new(r"\w+").unwrap();
    for file in source_files("") {
        let path = format!("src/{}", file.path);
        for name in name.find_iter(&file.bare) {
            look_at(&path, name.as_str(), Names, &mut found);
        }
        let help = file.path.starts_with("cli/");
        let help = file.code.lines().filter(|_| help);
        let help = help.filter_map(|line| line.trim_start().strip_prefix("/// "));
        for text in file.strings.iter().map(String::as_str).chain(help) {
            look_at(&path, text, NamesAndTexts, &mut found);
        }
    }
    for (path, name) in test_names() {
        look_at(&path, &name, NamesAndTexts, &mut found);
    }
    found
}

fn look_at(path: &str, text: &str, place: In, found: &mut Vec<Use>) {
    let said = words_of(text);
    let banned = WORDS
        .iter()
        .filter(|word| place == Names || word.place == NamesAndTexts);
    for word in banned {
        let form = said.iter().find(|said| word.forms.contains(&said.as_str()));
        found.extend(form.map(|form| Use {
            word,
            form: form.clone(),
            path: path.to_owned(),
            within: text.to_owned(),
        }));
    }
}

/// The words of a text, or of a name such as `PullQueues` or `pull_queues`, in lower case.
fn words_of(text: &str) -> Vec<String> {
    static WORD: LazyLock<Regex> = LazyLock::new(|| Regex::new("[A-Z]?[a-z]+|[A-Z]+").unwrap());
    let words = WORD.find_iter(text);
    words.map(|word| word.as_str().to_lowercase()).collect()
}

/// The functions of `tests`, by file.
fn test_names() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let function = Regex::new(r"(?m)^ *(?:pub )?(?:async )?fn (\w+)").unwrap();
    let (mut names, mut places) = (Vec::new(), vec![root.join("tests")]);
    while let Some(place) = places.pop() {
        if place.is_dir() {
            let entries = std::fs::read_dir(&place).unwrap();
            places.extend(entries.map(|entry| entry.unwrap().path()));
        } else if place.extension().is_some_and(|end| end == "rs") {
            let path = place.strip_prefix(root).expect("listed below it");
            let path = path.to_string_lossy().into_owned();
            let text = std::fs::read_to_string(&place).unwrap();
            let found = function.captures_iter(&text);
            names.extend(found.map(|found| (path.clone(), found[1].to_owned())));
        }
    }
    names
}

#[test]
fn a_word_is_found_in_names_of_each_case_and_in_texts_only_where_it_is_meant() {
    let found = |text: &str, place| {
        let mut found = Vec::new();
        look_at("a.rs", text, place, &mut found);
        found.len()
    };
    for name in ["front_door", "DOOR_MAX", "FrontDoor", "door2", "TheDOOR"] {
        assert_eq!(found(name, Names), 1, "{name}");
    }
    for name in ["outdoors", "understand", "standard", "flaky", "restful"] {
        assert_eq!(found(name, Names), 0, "{name}");
    }
    assert_eq!(found("closes the front door", NamesAndTexts), 1);
    assert_eq!(found("when in doubt, ask", NamesAndTexts), 0);
    assert_eq!(found("doubt", Names), 1);
}
