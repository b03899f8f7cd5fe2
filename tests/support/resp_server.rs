//! RESP servers in this process, on each ledger. No engine runs: tasks stay pending.

use std::path::Path;
use std::sync::Arc;

use lapsed::engine::Metrics;
use lapsed::ledger::Ledger as _;
use lapsed::ledger::sqlite::SqliteLedger;
use lapsed::timer::ledger_poll::LedgerPoll;
use lapsed::{Config, Handlers, TaskClient};
use lapsed_server::resp::Listener;
use tempfile::TempDir;
use tokio::sync::oneshot;

use crate::support::rig::Rig;

/// Settings of every server.
const SETTINGS: &str = "timer = 'ledger_poll'\nresp.listen = '127.0.0.1:0'";

/// A RESP server. The runtime must have a thread beside that of a test which blocks.
pub struct RespServer {
    port: u16,
    _stop: oneshot::Sender<()>,
    _file: Option<TempDir>,
    _rig: Option<Rig>,
}

impl RespServer {
    pub fn in_memory() -> Self {
        let config = Config::from_toml(SETTINGS).unwrap();
        let (_, tasks) = lapsed::in_memory(&config, Handlers::new());
        Self::open(&config, tasks)
    }

    /// On a Unix socket with this path, and on no port.
    pub fn on_socket(path: &Path) -> Self {
        let settings = format!("resp.socket = '{}'", path.display());
        let config = Config::from_toml(&settings).unwrap();
        let (_, tasks) = lapsed::in_memory(&config, Handlers::new());
        Self::open(&config, tasks)
    }

    pub async fn on_sqlite() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("lapsed.db");
        let settings = format!("{SETTINGS}\nledger.url = 'sqlite://{}'", file.display());
        let config = Config::from_toml(&settings).unwrap();
        let ledger = Arc::new(SqliteLedger::new(&config.ledger).unwrap());
        ledger.migrate(false).await.unwrap();
        let timer = Arc::new(LedgerPoll::exact(ledger.clock().clone()));
        let server = Self::open(&config, TaskClient::with_parts(ledger, timer));
        Self {
            _file: Some(directory),
            ..server
        }
    }

    pub async fn on_mysql() -> Self {
        let rig = Rig::new(SETTINGS).await;
        let tasks = rig.client().await.into();
        let server = Self::open(&rig.config(), tasks);
        Self {
            _rig: Some(rig),
            ..server
        }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    fn open(config: &Config, tasks: TaskClient) -> Self {
        let listener = Listener::open(&config.resp, tasks, Arc::new(Metrics::default()));
        let listener = listener.unwrap().unwrap();
        let port = listener.address().map_or(0, |address| address.port());
        let (stop, stopped) = oneshot::channel();
        tokio::spawn(listener.serve(async move {
            let _ = stopped.await;
        }));
        Self {
            port,
            _stop: stop,
            _file: None,
            _rig: None,
        }
    }
}
