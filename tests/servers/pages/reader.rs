//! A reader, who follows a page to the letter.

use std::io::Write as _;
use std::path::Path;

use super::block::{Block, Use, blocks, root};
use super::machine::{Machine, Said, refusal};
use super::printed::Known;
use crate::support::not_tried::not_tried;
use crate::support::snippet::{Snippet, install_clients};
use crate::support::wait::until;

/// How often a page is read, unless `LAPSED_TEST_READINGS` says otherwise. Pages say `sleep 1`, and a busy machine may need
/// longer than a page that is right waits.
const TRIES: usize = 3;

/// A page, and what its reader has when it begins.
#[derive(Debug, Clone, Copy)]
pub struct Page {
    pub path: &'static str,
    /// Files in the directory of the reader.
    pub files: &'static [(&'static str, &'static str)],
    /// Programs that are not installed for tests: what they do here.
    pub programs: &'static [(&'static str, &'static str)],
    /// What the page tells to do elsewhere, before its first block that is typed.
    pub before: &'static str,
    /// What it takes for granted before the block with this text.
    pub first: &'static [(&'static str, &'static str)],
    /// What is so when the reader has followed it.
    pub then: &'static str,
    /// What a stand-in in `programs` cannot show. It needs root.
    pub not_tried: &'static str,
    /// Text of blocks that stands for something of the reader's.
    pub means: &'static [(&'static str, &'static str)],
}

impl Page {
    pub const fn new(path: &'static str) -> Self {
        Self {
            path,
            files: &[],
            programs: &[],
            before: "",
            first: &[],
            then: "",
            not_tried: "",
            means: &[],
        }
    }

    /// Reads the page.
    ///
    /// # Panics
    /// If it says what is not so.
    pub async fn read(self) {
        if let Some(refusal) = refusal().await {
            not_tried(self.path, &refusal);
            return;
        }
        if !self.not_tried.is_empty() {
            not_tried(self.path, self.not_tried);
            if !rustix::process::geteuid().is_root() {
                return;
            }
        }
        let tries = std::env::var("LAPSED_TEST_READINGS");
        let tries = tries.map_or(TRIES, |tries| tries.parse().unwrap());
        let mut failures = Vec::new();
        for _ in 0..tries {
            match self.try_read().await {
                Ok(()) => break,
                Err(error) => failures.push(error),
            }
        }
        assert!(failures.len() < tries, "{}", failures.join("\n\n"));
        for failure in failures {
            // Not captured, since a fault that comes now and then looks like this, too.
            let line = format!("READ AGAIN: {failure}\n");
            let _ = std::io::stderr().write_all(line.as_bytes());
        }
    }

    async fn try_read(self) -> Result<(), String> {
        let blocks = blocks(self.path);
        let has_database = |text: &str| text.contains("3306");
        let with_maria = blocks
            .iter()
            .any(|block| block.use_ == Use::Sql || has_database(&block.text))
            || self.files.iter().any(|(_, text)| has_database(text));
        let mut reader = Reader {
            machine: Machine::start(with_maria).await,
            known: Known::default(),
            page: self,
            printed: String::new(),
            differences: Vec::new(),
            before: self.before.to_owned(),
        };
        reader.prepare().await?;
        for block in &blocks {
            reader.follow(block).await.map_err(|error| {
                let log = reader.machine.log();
                let log: Vec<&str> = log.lines().rev().take(40).collect();
                let log: Vec<&str> = log.into_iter().rev().collect();
                format!(
                    "{}: {error}\nin the terminals:\n{}",
                    block.place(),
                    log.join("\n")
                )
            })?;
        }
        let rest = format!("{}\n{}", reader.before, self.then);
        reader
            .shell(&rest)
            .await
            .map_err(|error| format!("{}: {error}\n{}", self.path, reader.machine.log()))?;
        match reader.differences.is_empty() {
            true => Ok(()),
            false => Err(reader.differences.join("\n\n")),
        }
    }
}

struct Reader {
    machine: Machine,
    known: Known,
    page: Page,
    /// By the last block that was typed or run.
    printed: String,
    /// Where the page shows what is not printed.
    differences: Vec<String>,
    /// Not yet typed.
    before: String,
}

impl Reader {
    async fn prepare(&mut self) -> Result<(), String> {
        for (name, text) in self.page.files {
            self.machine.write(name, text);
        }
        for (name, script) in self.page.programs {
            self.machine.program(name, script);
        }
        let packages = tokio::task::block_in_place(|| install_clients(&self.machine.home));
        let path = format!("export PYTHONPATH='{}'", packages.display());
        self.machine.type_(&path).await?;
        let texts = self.page.files.iter().chain(self.page.means);
        if texts
            .into_iter()
            .any(|(_, text)| text.contains("/lapsed_try"))
        {
            self.machine.create_database("lapsed_try").await?;
        }
        Ok(())
    }

    /// What the text of a block means here.
    fn meant(&self, text: &str) -> String {
        let text = text.replace(
            "/path/to/lapsed",
            &root().canonicalize().unwrap().display().to_string(),
        );
        let means = self.page.means.iter();
        means.fold(text, |text, (said, meant)| text.replace(said, meant))
    }

    async fn follow(&mut self, block: &Block) -> Result<(), String> {
        let text = self.meant(&block.text);
        let is_typed = !matches!(
            block.use_,
            Use::File(_) | Use::Append(_) | Use::Configuration | Use::Compiled(_) | Use::NotRun(_)
        );
        if is_typed {
            let before = std::mem::take(&mut self.before);
            self.shell(&before).await?;
        }
        if block.after_ctrl_c {
            self.machine.stop().await?;
        }
        for (in_block, commands) in self.page.first {
            if block.text.contains(in_block) {
                self.shell(commands).await?;
            }
        }
        match &block.use_ {
            Use::Compiled(_) | Use::NotRun(_) => Ok(()),
            Use::Shell => self.shell(&text).await,
            Use::Stays => self.machine.leave(command(&text)).await,
            Use::StaysWithoutPort => self.machine.leave_without_port(command(&text)).await,
            Use::Console => self.console(&text, &block.place()).await,
            Use::File(name) => {
                self.machine.write(name, &text);
                Ok(())
            }
            Use::Append(name) => {
                let old = std::fs::read_to_string(self.machine.home.join(name)).unwrap_or_default();
                self.machine.write(name, &format!("{old}\n{text}"));
                Ok(())
            }
            Use::Configuration => {
                self.machine.write("parsed.toml", &text);
                let said = self
                    .machine
                    .type_("lapsed --config parsed.toml check-config")
                    .await?;
                succeeded("check-config", &said)
            }
            Use::Sql => self.machine.sql(&text, database(&self.machine.home)).await,
            Use::Redis => {
                self.lines(&format!("redis-cli <<'LINES'\n{text}LINES"))
                    .await
            }
            Use::Snippet => self.snippet(&block.language, &text).await,
            Use::Printed => self.known.compare(&text, &self.printed),
            Use::Log => self.logged(&text).await,
        }
    }

    async fn logged(&mut self, text: &str) -> Result<(), String> {
        for line in text.lines() {
            let (machine, known) = (&self.machine, std::sync::Mutex::new(&mut self.known));
            until(format!("`{line}` is logged"), async || {
                known.lock().unwrap().is_logged(line, &machine.log())
            })
            .await;
        }
        Ok(())
    }

    /// Types a block line by line, as far as something stays in its terminal; what follows is typed in another.
    async fn shell(&mut self, text: &str) -> Result<(), String> {
        self.printed.clear();
        let mut rest = String::new();
        for line in text.lines() {
            if stays(line) {
                self.lines(&std::mem::take(&mut rest)).await?;
                self.machine.leave(line).await?;
            } else {
                rest += line;
                rest.push('\n');
            }
        }
        self.lines(&rest).await
    }

    async fn lines(&mut self, lines: &str) -> Result<(), String> {
        if lines.trim().is_empty() {
            return Ok(());
        }
        let said = self.machine.type_(lines).await?;
        self.printed += &said.stdout;
        succeeded(lines, &said)
    }

    async fn console(&mut self, text: &str, place: &str) -> Result<(), String> {
        let mut commands: Vec<(String, String)> = Vec::new();
        for line in text.lines() {
            match (line.strip_prefix("$ "), commands.last_mut()) {
                (Some(command), _) => commands.push((command.to_owned(), String::new())),
                (None, Some((command, _))) if command.ends_with('\\') => {
                    command.push('\n');
                    command.push_str(line);
                }
                (None, Some((_, printed))) => {
                    printed.push_str(line);
                    printed.push('\n');
                }
                (None, None) => return Err("the block does not begin with `$ `".to_owned()),
            }
        }
        for (command, expected) in commands {
            // What the page shows of an id is the one that was printed here.
            let command = self.known.replace(&command);
            if stays(&command) {
                self.machine.leave(&command).await?;
                self.logged(&expected).await?;
                continue;
            }
            let said = self.machine.type_(&command).await?;
            self.printed.clone_from(&said.stdout);
            if expected.is_empty() {
                succeeded(&command, &said)?;
                continue;
            }
            if let Err(error) = self.shown(&expected, &said) {
                // What a program in another terminal prints comes after the output of the command.
                let (here, there) = self.machine.parts(&expected, &said.stdout);
                if !there.is_empty() && self.shown(&here, &said).is_ok() {
                    self.logged(&there).await?;
                    continue;
                }
                let all = format!("{}{}", said.stdout, said.stderr);
                self.differences
                    .push(format!("{place}: $ {command}\n{error}\nin all:\n{all}"));
            }
        }
        Ok(())
    }

    /// Standard output, or standard error, or both are what the page shows.
    fn shown(&mut self, page: &str, said: &Said) -> Result<(), String> {
        let Said { stdout, stderr, .. } = said;
        let all = [
            stdout.clone(),
            stderr.clone(),
            format!("{stdout}{stderr}"),
            format!("{stderr}{stdout}"),
        ];
        let mut results = all.iter().map(|printed| self.known.compare(page, printed));
        let first = results.next().expect("there are four");
        match first.is_ok() || results.any(|result| result.is_ok()) {
            true => Ok(()),
            false => first,
        }
    }

    /// Lines of a program that has a client of Redis.
    async fn snippet(&mut self, language: &str, text: &str) -> Result<(), String> {
        let snippet = Snippet::new(language, text, 6379, 0);
        self.machine.write(snippet.file, &snippet.text);
        self.lines(snippet.command).await
    }
}

/// The database of the configuration, if there is one.
fn database(home: &Path) -> &'static str {
    let configuration = std::fs::read_to_string(home.join("lapsed.toml")).unwrap_or_default();
    match configuration.contains("/lapsed_try") {
        true => "lapsed_try",
        false => "",
    }
}

/// The command of a block that has one.
fn command(text: &str) -> &str {
    text.trim_end().trim_start_matches("$ ")
}

/// Whether a command goes on until Ctrl-C.
fn stays(line: &str) -> bool {
    if line.ends_with(" &") {
        return true;
    }
    let mut words = line
        .split_whitespace()
        .skip_while(|word| word.contains('='));
    if words.next() != Some("lapsed") {
        return false;
    }
    let mut words = words.skip_while(|word| *word == "--config" || word.ends_with(".toml"));
    match words.next() {
        Some("listen" | "dev") => true,
        Some("move") => words.any(|word| word == "--follow"),
        _ => false,
    }
}

fn succeeded(lines: &str, said: &Said) -> Result<(), String> {
    match said.failed {
        true => Err(format!(
            "`{}` failed: {}{}",
            lines.trim(),
            said.stdout,
            said.stderr
        )),
        false => Ok(()),
    }
}
