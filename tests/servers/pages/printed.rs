//! Comparing what a page shows with what was printed.

use std::collections::BTreeMap;

use regex::{Captures, Regex};

/// What differs from one run to the next. The same text on the page is the same text in what is printed.
const VARIABLE: [&str; 7] = [
    // A claim, which pages cut.
    r"\b\d+-1[789]\d{11}-[0-9a-f]+[0-9A-Za-z._-]*",
    // A time.
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3,6}Z",
    // An id: a row, and the milliseconds of a due time.
    r"\b\d+-1[789]\d{11}\b",
    // A daemon: host, process, start.
    r"[A-Za-z0-9.-]+:\d+/[0-9a-f]{12}\.\d+",
    // What makes a key unique.
    r"~[0-9a-z]{26}",
    // Measured times.
    r"\blateness_ms=\d+",
    r"\b\d+(?:\.\d+)? m?s\b|\b\d+\.\d+\b",
];

/// What pages and programs have said the same of so far.
#[derive(Debug, Default)]
pub struct Known {
    texts: BTreeMap<String, String>,
}

impl Known {
    /// Whether the lines of a page are these printed lines. A line `..` stands for any number of them, and `..` within a line
    /// for any text.
    ///
    /// # Errors
    /// The first line that differs.
    pub fn compare(&mut self, page: &str, printed: &str) -> Result<(), String> {
        let expected: Vec<&str> = page.lines().map(str::trim_end).collect();
        let found: Vec<&str> = printed.lines().map(str::trim_end).collect();
        let (mut at, mut skips) = (0, false);
        for line in expected {
            if matches!(line.trim(), ".." | "...") {
                skips = true;
                continue;
            }
            let begin = at;
            loop {
                let Some(candidate) = found.get(at) else {
                    let rest = found.get(begin).unwrap_or(&"(nothing more)");
                    return Err(format!("the page says\n  {line}\nprinted is\n  {rest}"));
                };
                at += 1;
                if self.same_line(line, candidate) {
                    break;
                }
                if !skips {
                    return Err(format!(
                        "the page says\n  {line}\nprinted is\n  {candidate}"
                    ));
                }
            }
            skips = false;
        }
        match found.get(at) {
            Some(more) if !skips => Err(format!("the page does not say\n  {more}")),
            _ => Ok(()),
        }
    }

    /// Whether a line of the page is one of these, which begin with their time.
    pub fn is_logged(&mut self, line: &str, log: &str) -> bool {
        let line = format!("..{line}");
        log.lines()
            .any(|found| self.same_line(&line, found.trim_end()))
    }

    /// A command of the page, with what was printed here.
    pub fn replace(&self, command: &str) -> String {
        // Longer texts first: a claim begins with an id.
        let mut texts: Vec<(&String, &String)> = self.texts.iter().collect();
        texts.sort_by_key(|(text, _)| std::cmp::Reverse(text.len()));
        texts
            .into_iter()
            .fold(command.to_owned(), |command, (page, printed)| {
                command.replace(page.as_str(), printed)
            })
    }

    fn same_line(&mut self, page: &str, printed: &str) -> bool {
        let variable = Regex::new(&VARIABLE.map(|one| format!("(?:{one})")).join("|"));
        let variable = variable.expect("it is constant");
        let (mut pattern, mut end, mut texts) = (String::from("^"), 0, Vec::new());
        for found in variable.find_iter(page) {
            pattern += &literal(&page[end..found.start()]);
            let kind = VARIABLE.iter().find(|one| {
                Regex::new(&format!("^(?:{one})$")).is_ok_and(|one| one.is_match(found.as_str()))
            });
            pattern += &format!("({})", kind.expect("one of them was found"));
            texts.push(found.as_str());
            end = found.end();
        }
        pattern += &literal(&page[end..]);
        pattern.push('$');
        let pattern = Regex::new(&pattern).expect("literals are escaped");
        let Some(captures) = pattern.captures(printed) else {
            return false;
        };
        self.agrees(&texts, &captures)
    }

    /// Measured times are no names.
    fn agrees(&mut self, texts: &[&str], captures: &Captures<'_>) -> bool {
        let pairs: Vec<(&str, &str)> = texts
            .iter()
            .enumerate()
            .filter(|(_, text)| text.contains(['-', '~', ':']))
            .map(|(number, text)| {
                (
                    *text,
                    captures.get(number + 1).map_or("", |found| found.as_str()),
                )
            })
            .collect();
        let agree = pairs
            .iter()
            .all(|(text, found)| self.texts.get(*text).is_none_or(|known| known == found));
        if agree {
            for (text, found) in pairs {
                self.texts.insert(text.to_owned(), found.to_owned());
            }
        }
        agree
    }
}

/// A pattern for this text: columns may be wider, and `..` is any text.
fn literal(text: &str) -> String {
    let spaces = Regex::new(r" +").expect("it is constant");
    let dots = Regex::new(r"(?:\\\.){2,3}").expect("it is constant");
    let escaped = regex::escape(text);
    let escaped = spaces.replace_all(&escaped, " +");
    dots.replace_all(&escaped, ".*").into_owned()
}

#[test]
fn what_a_page_says_is_compared_with_what_was_printed() {
    let mut known = Known::default();
    let page = "id  1-1795343174435\nstate  done\n";
    known
        .compare(page, "id    7-1895343174435\nstate    done\n")
        .unwrap();
    known
        .compare("run 1-1795343174435", "run 7-1895343174435")
        .unwrap();
    for (page, printed) in [
        ("run 1-1795343174435", "run 8-1895343174435"),
        ("state done", "state dead"),
        ("one", "one\ntwo"),
        ("one\ntwo", "one"),
        ("..\ntwo", "one"),
    ] {
        known.compare(page, printed).unwrap_err();
    }
    known.compare("..\ntwo\n..", "one\ntwo\nthree").unwrap();
    known
        .compare("took 0.1 s, it..", "took 2.75 s, it is late")
        .unwrap();
}
