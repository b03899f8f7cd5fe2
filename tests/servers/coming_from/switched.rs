//! A program that schedules by the line of a page.

use std::process::Command;

use super::owner::{Fate, Owner, batch, code_in_text};
use crate::importing::programs::run;
use crate::support::snippet::{Snippet, install_clients};
use crate::support::wait::until;

/// A line of code in the text of a page: it schedules `..@42` half an hour ahead.
pub struct Line {
    pub page: &'static str,
    pub begin: &'static str,
    pub language: &'static str,
}

impl Line {
    /// As it is printed.
    fn text(&self) -> String {
        code_in_text(self.page, self.begin).remove(0)
    }

    fn key(&self) -> String {
        let text = self.text();
        let quoted = text.split(['\'', '"']).nth(1).unwrap();
        assert!(quoted.ends_with("@42"), "{text}");
        quoted.to_owned()
    }

    /// What the keys of such tasks begin with.
    pub fn keys(&self) -> String {
        self.key().replace("@42", "@")
    }

    /// For another task, after this many seconds.
    fn of(&self, key: &str, seconds: usize) -> String {
        let [before, after] = match self.language {
            "go" => [
                "30*time.Minute".to_owned(),
                format!("{seconds}*time.Second"),
            ],
            _ => ["1800".to_owned(), seconds.to_string()],
        };
        let text = self.text();
        assert!(text.contains(&before), "{text}");
        text.replacen(&self.key(), key, 1)
            .replacen(&before, &after, 1)
    }
}

impl Owner {
    /// Schedules the task of the page, and tasks of a batch. Those that are cancelled are so by `DEL` and `lapsed cancel` in turn.
    pub async fn switch(&mut self, line: &Line, name: &str, count: usize) {
        let begin = line.keys();
        let batch = batch(name, count);
        let mut lines = vec![line.text()];
        lines.extend(
            batch
                .iter()
                .map(|(name, _, delay)| line.of(&format!("{begin}{name}"), *delay)),
        );
        let directory = self.path().join(name);
        std::fs::create_dir(&directory).unwrap();
        let packages = install_clients(&directory);
        let (port, database) = (self.rig.redis.port(), self.rig.redis_database());
        let snippet = Snippet::new(line.language, &lines.join("\n"), port, database);
        std::fs::write(directory.join(snippet.file), &snippet.text).unwrap();
        let mut shell = Command::new("sh");
        shell.args(["-c", snippet.command]).current_dir(&directory);
        shell.env("PYTHONPATH", packages);
        run(shell, "");

        for (name, fate, _) in &batch {
            let key = format!("{begin}{name}");
            let due_ms: i64 = self.rig.redis_says(&["PEXPIRETIME", &key]).await;
            assert!(due_ms > 0, "{key} is not armed: {due_ms}");
            self.wants(name.clone(), *fate, due_ms / 1_000);
        }
        for (number, (name, fate, _)) in batch.into_iter().enumerate() {
            let key = format!("{begin}{name}");
            match (fate, number % 20) {
                (Fate::Cancelled, 0) => {
                    let deleted: i64 = self.rig.redis_says(&["DEL", &key]).await;
                    assert_eq!(deleted, 1, "{key}");
                }
                (Fate::Cancelled, _) => {
                    self.until_adopted(&key).await;
                    self.shell.text(&["cancel", &key]);
                }
                _ => {}
            }
        }
        self.until_adopted(&line.key()).await;
        let shown = self.shell.json(&["show", &line.key()]);
        assert_eq!(shown["state"], "pending", "{shown}");
        let ahead = format!(
            "SELECT CAST(end_time - UNIX_TIMESTAMP() AS SIGNED) FROM tb_time_limit_task WHERE `key` = '{}'",
            line.key()
        );
        let ahead = self.rig.number(&ahead).await;
        assert!((1_500..=1_801).contains(&ahead), "{ahead} s");
    }

    async fn until_adopted(&self, key: &str) {
        let count = format!("SELECT COUNT(*) FROM tb_time_limit_task WHERE `key` = '{key}'");
        until(format!("{key} has a row"), async || {
            self.rig.number(&count).await == 1
        })
        .await;
    }
}
