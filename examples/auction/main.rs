//! Auctions that end on time, whatever happens to the daemon that ends them. No server is needed.
//!
//! ```text
//! make demo
//! ```
//!
//! It starts a daemon on a SQLite file, opens auctions with SQL and with Redis commands, kills the daemon and then a worker
//! during their work, and counts the effects. The exit code is 0 only if no task was lost, ran twice or ran early.
//!
//! - `market.rs`: the application. It schedules and cancels tasks; no daemon in this process.
//! - `worker.rs`: the daemon, a child process. It has two handlers; `daemon.rs` is how this process starts and kills it.
//! - `mailer.py`: a worker in Python, which asks the daemon for tasks; `mailer.rs` is the same in Rust, for machines without
//!   Python.
//! - `report.rs`: the count, from what the handlers' transactions left in the database.
//!
//! `servers` has the same on Redis and MariaDB: `make demo-servers`.

mod daemon;
mod house;
mod mailer;
mod market;
mod report;
mod worker;

use std::io::IsTerminal;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::time::{Instant, sleep, sleep_until};

use crate::daemon::Daemon;
use crate::house::{AUCTIONS, DOWN_FOR, KILL_AFTER, PATIENCE, SECOND_FAULT_AFTER};
use crate::mailer::Mailer;
use crate::market::{Market, now};
use crate::report::{Evidence, Outage, Report};

#[tokio::main]
async fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match args[1..] {
        [] => show().await,
        ["worker", config] => worker::run(Path::new(config)).await.map(|()| true),
        ["mailer", port, database] => mailer::run(port, Path::new(database)).await.map(|()| true),
        _ => Err(anyhow::anyhow!("expected no arguments: make demo")),
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
    let (database, port) = (dir.join("auction.db"), free_port()?);
    let toml = format!(
        r#"
        ledger.url = "sqlite://{}"
        resp.listen = "127.0.0.1:{port}"
        engine.lease = "3s"          # so that a killed daemon is noticed soon
        retry.ladder = ["250ms", "1s", "2s", "4s"]
        retry.max_attempts = 5
        http.listen = ""
        routes = [{{ match = "^AuctionCutDown@announceEnd@", pull = {{ queue = "mail", visibility = "3s" }} }}]
        "#,
        database.display()
    );
    let config_file = dir.join("lapsed.toml");
    std::fs::write(&config_file, &toml).context("write the configuration")?;

    let mut daemon = Daemon::start(dir, &config_file).await?;
    let market = Market::new(&database, port)?;
    let mut mailer = Mailer::start(port, &database)?;

    let stage = Stage {
        started: Instant::now(),
        bar: progress_bar(),
        market: &market,
    };
    stage.say(&format!(
        "the daemon listens on port {port} (process {}), the mailer asks it for tasks ({}); {AUCTIONS} auctions open one after the other",
        daemon.id(),
        mailer.language(),
    ));
    let program = async {
        let (opened, outages) =
            tokio::try_join!(market.open_all(), stage.faults(&mut daemon, &mut mailer))?;
        stage.until_all_is_done().await?;
        anyhow::Ok((opened, outages))
    };
    let (opened, outages) = tokio::select! {
        result = program => result?,
        result = market.pay_some() => match result? {},
        result = stage.show_progress() => match result? {},
    };
    stage.bar.finish_and_clear();
    drop(mailer);
    daemon.stop().await?;

    let report = Report::of(Evidence {
        opened,
        outages,
        cancelled: market.cancelled(),
        effects: market.effects()?,
        orders: market.orders()?,
        shown_bids: market.shown_bids()?,
        note: "a row that the auction house itself inserts, in the transaction that opens the auction",
    });
    println!("{report}");
    Ok(report.is_clean())
}

/// Where the story is told.
struct Stage<'a> {
    started: Instant,
    bar: ProgressBar,
    market: &'a Market,
}

impl Stage<'_> {
    fn say(&self, what: &str) {
        let at = self.started.elapsed().as_secs_f64();
        self.bar.suspend(|| println!("{at:5.1} s  {what}"));
    }

    /// The daemon is killed and comes back; later the mailer is. Tells when one of them was not there.
    async fn faults(&self, daemon: &mut Daemon<'_>, mailer: &mut Mailer) -> Result<Vec<Outage>> {
        sleep_until(self.started + KILL_AFTER).await;
        self.until_running(3).await?;
        let from = now();
        daemon.kill().await?;
        let (_, running) = self.market.open_and_running()?;
        self.say(&format!(
            "killed the daemon (SIGKILL) with {running} runs going on; the auctions go on"
        ));
        sleep(DOWN_FOR).await;
        daemon.start_again().await?;
        let without_daemon = Outage { from, until: now() };
        self.say(&format!(
            "started it again (process {}); leases of the killed one run out within 3 s",
            daemon.id()
        ));

        sleep_until(self.started + SECOND_FAULT_AFTER).await;
        self.until_running(1).await?;
        let from = now();
        mailer.kill().await?;
        let (_, running) = self.market.open_and_running()?;
        self.say(&format!(
            "killed the mailer (SIGKILL) with {running} runs going on; its leases run out within 3 s"
        ));
        mailer.start_again()?;
        Ok(vec![without_daemon, Outage { from, until: now() }])
    }

    /// Waits until so many runs are going on, for three seconds at most: a fault is to hit something.
    async fn until_running(&self, count: u64) -> Result<()> {
        let in_vain = Instant::now() + Duration::from_secs(3);
        while self.market.open_and_running()?.1 < count && Instant::now() < in_vain {
            sleep(Duration::from_millis(1)).await;
        }
        Ok(())
    }

    async fn until_all_is_done(&self) -> Result<()> {
        self.say("all auctions are open, no more faults; waiting for the last deadlines");
        while self.market.open_and_running()?.0 > 0 && self.started.elapsed() < PATIENCE {
            sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }

    async fn show_progress(&self) -> Result<std::convert::Infallible> {
        loop {
            if !self.bar.is_hidden() {
                let (done, text) = self.market.progress()?;
                self.bar.set_position(done);
                self.bar.set_message(text);
            }
            sleep(Duration::from_millis(200)).await;
        }
    }
}

/// Picks a port below those that Linux gives to outgoing connections: a client that reconnects in a loop could connect to
/// itself there, while there is no daemon.
fn free_port() -> Result<u16> {
    let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    (16_380..32_768)
        .find(is_free)
        .context("find a free port for the daemon")
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
