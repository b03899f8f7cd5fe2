//! `lapsed dev`: a daemon without configuration and servers, to try things out.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use lapsed::config::{ConfigSource, RouteConfig};
use lapsed::engine::Handle;
use lapsed::ledger::Ledger as _;
use lapsed::ledger::sqlite::SqliteLedger;
use lapsed::{Config, ConfigError, UnixMs};
use lapsed_server::resp::SetForward;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use super::listen::{self, Listening};
use super::log::stderr_line;
use super::output;

/// The variable by which other commands find the file.
const LEDGER_URL: &str = "LAPSED__LEDGER__URL";

/// The file in which the tasks are by default.
const FILE: &str = "./lapsed.db";

/// The last route: what no other route runs is logged.
const LOG_THE_REST: &str = "[[routes]]\nmatch = '.'\nlog = {}";

/// What a path in a URL may not contain as it is.
const IN_PATH: &AsciiSet = &CONTROLS.add(b' ').add(b'%').add(b'?').add(b'#');

#[derive(Args, Clone)]
pub struct Dev {
    /// SQLite file with the tasks; created if missing
    #[arg(long, value_name = "FILE", default_value = FILE)]
    file: PathBuf,
    /// Address for Redis clients
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:6380", value_parser = address)]
    resp: SocketAddr,
    /// Address of HTTP
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8787", value_parser = address)]
    http: SocketAddr,
}

/// The clock of `lapsed dev`, which clients may set forward.
struct DevClock {
    ledger: Arc<SqliteLedger>,
    daemon: Handle,
}

impl fmt::Debug for DevClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DevClock").finish_non_exhaustive()
    }
}

impl SetForward for DevClock {
    fn set_forward(&self, by: Duration) -> BoxFuture<'static, Result<UnixMs, String>> {
        let (ledger, daemon) = (Arc::clone(&self.ledger), self.daemon.clone());
        async move {
            let now = ledger.set_clock_forward(by).await;
            let now = now.map_err(|error| error.to_string())?;
            tracing::info!(now = %now, "the clock was set forward");
            daemon.find_due();
            Ok(now)
        }
        .boxed()
    }
}

fn address(text: &str) -> Result<SocketAddr, String> {
    let expected = |_| "expected an IP address and a port, such as `127.0.0.1:6380`".to_owned();
    text.parse().map_err(expected)
}

impl Dev {
    pub async fn run(mut self, source: ConfigSource) -> anyhow::Result<ExitCode> {
        self.file = std::path::absolute(&self.file).context("find the current directory")?;
        let config = self.config(&source)?;
        let ledger = SqliteLedger::new(&config.ledger)?;
        let migrated = ledger.migrate(false).await;
        migrated.with_context(|| format!("open `{}`", self.file.display()))?;
        ledger.close().await;

        let (dev, from) = (self.clone(), source.clone());
        let load = move || dev.config(&from);
        let announce = |at| output::try_say(&self.welcome(at));
        let clock = |daemon| -> Option<Arc<dyn SetForward>> {
            Some(Arc::new(DevClock {
                ledger: Arc::new(ledger),
                daemon,
            }))
        };
        let result = listen::listen(config, &source, load, announce, clock).await;
        result.map_err(|error| match is_address_in_use(&error) {
            true => error.context(
                "another program, such as another `lapsed dev`, has an address: choose others with --resp and --http",
            ),
            false => error,
        })
    }

    /// The configuration as every command reads it, but with the file and the addresses of the options, and with a route
    /// for every task.
    fn config(&self, source: &ConfigSource) -> Result<Config, ConfigError> {
        let settings = [
            (LEDGER_URL, self.ledger_url()),
            ("LAPSED__TIMER", "ledger_poll".to_owned()),
            ("LAPSED__RESP__LISTEN", self.resp.to_string()),
            ("LAPSED__RESP__SOCKET", String::new()),
            ("LAPSED__HTTP__LISTEN", self.http.to_string()),
        ];
        let mut config = Config::load_with(source, &settings)?;
        config.routes.extend(log_the_rest());
        Ok(config)
    }

    /// The file as `ledger.url`.
    fn ledger_url(&self) -> String {
        let path = self.file.to_string_lossy();
        format!("sqlite://{}", utf8_percent_encode(&path, IN_PATH))
    }

    /// What to try, with the addresses that the system has chosen for port 0.
    fn welcome(&self, at: Listening) -> String {
        let file = self.file.display();
        let resp = at.resp.unwrap_or(self.resp);
        let host = match resp.ip().is_loopback() {
            true => String::new(),
            false => format!("-h {} ", resp.ip()),
        };
        let cli = format!("redis-cli {host}-p {}", resp.port());
        let http = at.http.unwrap_or(self.http);
        let url = self.ledger_url();
        format!(
            "Tasks are in {file}. Due tasks are logged here. Ctrl-C stops. Try in another terminal:\n  \
             {cli} SETEX Hello@world 5 '{{\"to\":\"you\"}}'\n  \
             {cli} TTL Hello@world\n  \
             {LEDGER_URL}={url} lapsed list\n  \
             open http://{http}/ in a browser"
        )
    }
}

/// Tells other commands of the file of `lapsed dev` in this directory if the configuration names no ledger.
pub fn note_file(config: &Config) {
    if config.ledger.url == Config::default().ledger.url && Path::new(FILE).exists() {
        stderr_line!(
            "note: the tasks of `lapsed dev` are in `{FILE}`, and this command does not look there: set {LEDGER_URL}=sqlite://{FILE}"
        );
    }
}

fn is_address_in_use(error: &anyhow::Error) -> bool {
    let mut causes = error.chain().filter_map(|cause| cause.downcast_ref());
    causes.any(|error: &io::Error| error.kind() == io::ErrorKind::AddrInUse)
}

fn log_the_rest() -> Vec<RouteConfig> {
    let config = Config::from_toml(LOG_THE_REST);
    config.expect("it is part of the program").routes
}
