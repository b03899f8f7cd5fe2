//! Starts the mailer: in Python if there is one, else in Rust.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};
use lapsed::rusqlite::{Connection, params};
use redis::{AsyncConnectionConfig, RedisResult, Value, cmd, from_redis_value};
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};

use crate::house::MAIL_TAKES;
use crate::market::now;

/// The program in Python, part of this binary: it may run anywhere.
const PROGRAM: &str = include_str!("mailer.py");

/// The number of mails at a time, as in `mailer.py`.
const AT_ONCE: usize = 8;

/// The process of the mailer.
pub(crate) struct Mailer {
    port: u16,
    database: PathBuf,
    has_python: bool,
    child: Child,
}

impl Mailer {
    pub(crate) fn start(port: u16, database: &Path) -> Result<Self> {
        let mut python = std::process::Command::new("python3");
        python.args([
            "-c",
            "import sqlite3, sys; assert sys.version_info >= (3, 8)",
        ]);
        python.stdout(Stdio::null()).stderr(Stdio::null());
        let has_python = python.status().is_ok_and(|status| status.success());
        Ok(Self {
            port,
            database: database.to_owned(),
            has_python,
            child: spawn(port, database, has_python)?,
        })
    }

    pub(crate) fn start_again(&mut self) -> Result<()> {
        self.child = spawn(self.port, &self.database, self.has_python)?;
        Ok(())
    }

    pub(crate) fn language(&self) -> &'static str {
        match self.has_python {
            true => "mailer.py",
            false => "without Python, mailer.rs",
        }
    }

    /// SIGKILL: the mails that it sends are given out again when their leases run out.
    pub(crate) async fn kill(&mut self) -> Result<()> {
        self.child.kill().await.context("kill the mailer")
    }
}

fn spawn(port: u16, database: &Path, has_python: bool) -> Result<Child> {
    let mut command = match has_python {
        true => {
            let mut python = Command::new("python3");
            python.args(["-c", PROGRAM]);
            python
        }
        false => {
            let mut program = Command::new(std::env::current_exe()?);
            program.arg("mailer");
            program
        }
    };
    command.arg(port.to_string()).arg(database);
    command.stdin(Stdio::piped()).kill_on_drop(true);
    command.spawn().context("start the mailer")
}

/// The mailer in Rust. Runs until standard input is closed.
pub(crate) async fn run(port: &str, database: &Path) -> Result<()> {
    let client = redis::Client::open(format!("redis://127.0.0.1:{port}"))?;
    for _ in 0..AT_ONCE {
        let (client, database) = (client.clone(), database.to_owned());
        tokio::spawn(async move {
            loop {
                // The daemon is gone, and starts again.
                let Err(_) = work(&client, &database).await;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        });
    }
    let mut stdin = tokio::io::stdin();
    while matches!(stdin.read(&mut [0; 64]).await, Ok(1..)) {}
    Ok(())
}

/// Takes and settles tasks until the daemon is gone.
async fn work(client: &redis::Client, database: &Path) -> Result<std::convert::Infallible> {
    // A take waits longer than commands usually do.
    let patient = AsyncConnectionConfig::new().set_response_timeout(None);
    let mut connection = client
        .get_multiplexed_async_connection_with_config(&patient)
        .await?;
    let db = Connection::open(database)?;
    db.busy_timeout(Duration::from_secs(5))?;
    loop {
        let mut take = cmd("LAPSED.TAKE");
        take.arg(&["mail", "BLOCK", "5000", "WORKER", "mailer.rs"]);
        let tasks: Option<Vec<HashMap<String, Value>>> = take.query_async(&mut connection).await?;
        for mut task in tasks.unwrap_or_default() {
            let mut field = |name: &str| -> Result<String> {
                let value = task.remove(name).context("a task has this field")?;
                Ok(from_redis_value(value)?)
            };
            let claim = field("claim")?;
            let (key, id, attempt) = (field("key")?, field("id")?, field("attempt")?);
            tokio::time::sleep(MAIL_TAKES).await;
            tell_winner(&db, &key, &id, attempt.parse()?)?;
            let done: RedisResult<String> = cmd("LAPSED.DONE")
                .arg(claim)
                .query_async(&mut connection)
                .await;
            match done {
                // Another worker has it.
                Err(error) if !error.is_io_error() => eprintln!("{key}: {error}"),
                done => drop(done?),
            }
        }
    }
}

/// As in `mailer.py`.
fn tell_winner(db: &Connection, key: &str, id: &str, attempt: u16) -> Result<()> {
    let auction: i64 = key.rsplit('@').next().unwrap_or_default().parse()?;
    let (_, due_ms) = id
        .rsplit_once('-')
        .context("an id ends with the due time")?;
    let due_ms: i64 = due_ms.parse()?;
    let tx = db.unchecked_transaction()?;
    tx.execute("DELETE FROM tb_shown_bid WHERE auction_id = ?1", [auction])?;
    tx.execute(
        "INSERT INTO tb_effects (key, arming, attempt, due_ms, effect, at_ms) SELECT ?1, ?2, ?3, ?4, 'end announced', ?5
         WHERE NOT EXISTS (SELECT 1 FROM tb_effects WHERE arming = ?2)",
        params![key, id, attempt, due_ms, now().0],
    )?;
    Ok(tx.commit()?)
}
