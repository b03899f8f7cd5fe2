//! Auctions that end on time, whatever happens to the daemon that ends them.
//!
//! ```text
//! make demo-servers
//! ```
//!
//! It starts a Redis and a MariaDB of its own, opens auctions from Rust and in the way of the PHP listener's base
//! class, kills the daemon during its work, cuts its subscription, and counts the effects. The exit code is 0 only if
//! no task was lost, ran twice or ran early.
//!
//! - `market.rs`: the application. It schedules and cancels tasks; no daemon in this process.
//! - `worker.rs`: the daemon, a child process. It has the handlers; `../daemon.rs` is how this process starts and kills it.
//! - `../report.rs`: the count, from what the handlers' transactions left in the database.

#[path = "../daemon.rs"]
mod daemon;
#[path = "../house.rs"]
mod house;
mod market;
#[path = "../report.rs"]
mod report;
mod worker;

use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lapsed::Config;
use lapsed::ledger::Admin;
use lapsed::ledger::mysql::MysqlLedger;
use lapsed_sandbox::{PrivateMaria, PrivateRedis};
use tokio::time::{Instant, sleep, sleep_until};

use crate::daemon::Daemon;
use crate::house::{AUCTIONS, DOWN_FOR, KILL_AFTER, PATIENCE, SECOND_FAULT_AFTER};
use crate::market::Market;
use crate::report::{Evidence, Outage, Report};

#[tokio::main]
async fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    let result = match args.get(1).map(String::as_str) {
        None => show().await,
        Some("worker") if args.len() == 3 => worker::run(Path::new(&args[2])).await.map(|()| true),
        Some(_) => Err(anyhow::anyhow!("expected no arguments: make demo-servers")),
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

/// Runs the demo in a temporary directory. Keeps the log of the daemon after a failure.
async fn show() -> Result<bool> {
    let dir = tempfile::tempdir().context("make a temporary directory")?;
    let result = play(dir.path()).await;
    if !matches!(result, Ok(true)) && dir.path().join("daemon.log").exists() {
        eprintln!(
            "the daemon's log: {}",
            dir.keep().join("daemon.log").display()
        );
    }
    result
}

async fn play(dir: &Path) -> Result<bool> {
    println!("starting a private Redis and MariaDB ...");
    let redis = PrivateRedis::start().await.context("start Redis")?;
    let maria = PrivateMaria::start().await.context("start MariaDB")?;
    let database = maria.create_database("auction").await?;

    let toml = format!(
        r#"
        redis.url = "{}"
        ledger.url = "{database}"
        engine.lease = "3s"          # so that a killed daemon is noticed soon
        retry.ladder = ["250ms", "1s", "2s", "4s"]
        retry.max_attempts = 5
        http.listen = ""
        "#,
        redis.url()
    );
    let config_file = dir.join("lapsed.toml");
    std::fs::write(&config_file, &toml).context("write the configuration")?;
    let config = Config::from_toml(&toml)?;

    let ledger = MysqlLedger::new(&config.ledger)?;
    ledger.migrate().await?;
    let market = Market::new(&config).await?;
    let mut daemon = Daemon::start(dir, &config_file).await?;

    let stage = Stage {
        started: Instant::now(),
        bar: progress_bar(),
        market: &market,
        ledger: &ledger,
    };
    stage.say(&format!(
        "the daemon listens (process {}); {AUCTIONS} auctions open one after the other",
        daemon.id()
    ));
    let program = async {
        let (opened, outage) =
            tokio::try_join!(market.open_all(), stage.faults(&mut daemon, &redis))?;
        stage.until_all_is_done().await?;
        anyhow::Ok((opened, outage))
    };
    let (opened, outage) = tokio::select! {
        result = program => result?,
        result = market.pay_some() => match result? {},
        result = stage.show_progress() => match result? {},
    };
    stage.bar.finish_and_clear();
    daemon.stop().await?;

    let report = Report::of(Evidence {
        opened,
        outages: vec![outage],
        cancelled: market.cancelled(),
        effects: market.effects().await?,
        orders: market.orders().await?,
        shown_bids: market.shown_bids().await?,
        note: "PHP's time() drops the fraction of a second: such a row falls due up to 1 s before its key",
    });
    println!("{report}");
    Ok(report.is_clean())
}

/// Where the story is told.
struct Stage<'a> {
    started: Instant,
    bar: ProgressBar,
    market: &'a Market,
    ledger: &'a MysqlLedger,
}

impl Stage<'_> {
    fn say(&self, what: &str) {
        let at = self.started.elapsed().as_secs_f64();
        self.bar.suspend(|| println!("{at:5.1} s  {what}"));
    }

    /// The daemon is killed and comes back; later its subscription is cut. Tells when there was no daemon.
    async fn faults(&self, daemon: &mut Daemon<'_>, redis: &PrivateRedis) -> Result<Outage> {
        sleep_until(self.started + KILL_AFTER).await;
        // In the middle of something, if it has anything to do within the next seconds.
        let in_vain = Instant::now() + Duration::from_secs(3);
        while self.ledger.stats().await?.running < 3 && Instant::now() < in_vain {
            sleep(Duration::from_millis(1)).await;
        }
        let from = self.market.now().await?;
        daemon.kill().await?;
        let running = self.ledger.stats().await?.running;
        self.say(&format!(
            "killed the daemon (SIGKILL) with {running} runs going on; the auctions go on"
        ));

        sleep(DOWN_FOR).await;
        daemon.start_again().await?;
        let until = self.market.now().await?;
        self.say(&format!(
            "started it again (process {}); leases of the killed one run out within 3 s",
            daemon.id()
        ));

        sleep_until(self.started + SECOND_FAULT_AFTER).await;
        let mut redis = redis::Client::open(redis.url())?
            .get_multiplexed_async_connection()
            .await?;
        let cut: u32 = redis::cmd("CLIENT")
            .arg(&["KILL", "TYPE", "pubsub"])
            .query_async(&mut redis)
            .await?;
        let at = Instant::now();
        ensure!(cut > 0, "the daemon has no subscription in Redis");
        while subscribers(&mut redis).await? == 0 {
            ensure!(
                at.elapsed() < Duration::from_secs(15),
                "the daemon has not subscribed again within 15 s"
            );
            sleep(Duration::from_millis(1)).await;
        }
        self.say(&format!(
            "cut the subscription (CLIENT KILL TYPE pubsub); the daemon is back after {} ms",
            at.elapsed().as_millis()
        ));
        Ok(Outage { from, until })
    }

    async fn until_all_is_done(&self) -> Result<()> {
        self.say("all auctions are open, no more faults; waiting for the last deadlines");
        loop {
            let stats = self.ledger.stats().await?;
            if stats.pending + stats.waiting + stats.running == 0
                || self.started.elapsed() > PATIENCE
            {
                return Ok(());
            }
            sleep(Duration::from_millis(100)).await;
        }
    }

    async fn show_progress(&self) -> Result<std::convert::Infallible> {
        loop {
            if !self.bar.is_hidden() {
                let (done, text) = self.market.progress().await?;
                self.bar.set_position(done);
                self.bar.set_message(text);
            }
            sleep(Duration::from_millis(200)).await;
        }
    }
}

async fn subscribers(redis: &mut redis::aio::MultiplexedConnection) -> Result<usize> {
    let list: String = redis::cmd("CLIENT")
        .arg(&["LIST", "TYPE", "pubsub"])
        .query_async(redis)
        .await?;
    Ok(list.lines().count())
}

/// On a terminal a live line, else nothing.
fn progress_bar() -> ProgressBar {
    if !std::io::stdout().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("         {bar:30} {pos}/{len} tasks  {msg}")
        .expect("the template is well formed");
    ProgressBar::with_draw_target(Some(3 * AUCTIONS), ProgressDrawTarget::stdout())
        .with_style(style)
}
