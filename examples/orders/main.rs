//! Orders that are paid in time or closed: each step and the task that follows it in one transaction, without an outbox.
//!
//! ```text
//! cargo run --example orders
//! ```
//!
//! It starts a Redis and a MariaDB of its own, places orders, pays some of them close to their deadline, kills the worker in
//! the middle, and does the accounts. The exit code is 0 only if they add up.
//!
//! - `shop.rs`: the application. Placing an order schedules its closing, paying it calls that off, each in one transaction.
//! - `worker.rs`: closing returns the stock and schedules a reminder, in one transaction with its completion.
//! - `process.rs`: how this process starts and kills the worker, a child process.
//! - `accounts.rs`: what is in the database in the end.

mod accounts;
mod process;
mod shop;
mod worker;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use lapsed::Config;
use lapsed::ledger::Admin;
use lapsed::ledger::mysql::MysqlLedger;
use lapsed_sandbox::{PrivateMaria, PrivateRedis};
use tokio::time::{Instant, sleep};

use crate::accounts::Accounts;
use crate::process::Worker;
use crate::shop::Shop;

const KILL_AFTER: Duration = Duration::from_secs(4);
const DOWN_FOR: Duration = Duration::from_secs(1);

/// What is open then is lost.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::main]
async fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    let result = match args.get(1).map(String::as_str) {
        None => play().await,
        Some("worker") if args.len() == 3 => worker::run(Path::new(&args[2])).await.map(|()| true),
        Some(_) => Err(anyhow::anyhow!(
            "expected no arguments: cargo run --example orders"
        )),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn play() -> Result<bool> {
    println!("starting a private Redis and MariaDB ...");
    let redis = PrivateRedis::start().await.context("start Redis")?;
    let maria = PrivateMaria::start().await.context("start MariaDB")?;
    let database = maria.create_database("orders").await?;
    let toml = format!(
        r#"
        redis.url = "{}"
        ledger.url = "{database}"
        engine.lease = "2s"          # so that a killed worker is noticed soon
        retry.ladder = ["250ms", "1s", "2s"]
        http.listen = ""
        "#,
        redis.url()
    );
    let file = tempfile::NamedTempFile::new().context("make a temporary file")?;
    std::fs::write(file.path(), &toml).context("write the configuration")?;
    let config = Config::from_toml(&toml)?;
    let ledger = MysqlLedger::new(&config.ledger)?;
    ledger.migrate().await?;
    let shop = Shop::open(&config).await?;
    let mut worker = Worker::start(file.path()).await?;

    let began = Instant::now();
    let say = |what: String| println!("{:5.1} s  {what}", began.elapsed().as_secs_f64());
    say(format!(
        "the worker listens (process {}); {} orders are placed one after the other",
        worker.id(),
        shop::ORDERS
    ));
    let faults = async {
        sleep(KILL_AFTER).await;
        worker.kill().await?;
        let running = ledger.stats().await?.running;
        say(format!(
            "killed the worker (SIGKILL) with {running} closings going on; the orders go on"
        ));
        sleep(DOWN_FOR).await;
        worker = Worker::start(file.path()).await?;
        say(format!("started it again (process {})", worker.id()));
        anyhow::Ok(worker)
    };
    let (too_late, worker) = tokio::try_join!(shop.trade(), faults)?;
    say("all orders are placed; waiting for the last deadlines".to_owned());
    loop {
        let stats = ledger.stats().await?;
        if stats.pending + stats.waiting + stats.running == 0 || began.elapsed() > PATIENCE {
            break;
        }
        sleep(Duration::from_millis(100)).await;
    }
    worker.stop().await?;
    let accounts = Accounts::of(&shop, &ledger, too_late).await?;
    println!("{accounts}");
    Ok(accounts.add_up())
}
