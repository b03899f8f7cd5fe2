//! A RESP server in this process, and a connection to it that sends bytes and reads bytes.

use std::net::SocketAddr;
use std::sync::Arc;

use lapsed::engine::{Metrics, PullQueues};
use lapsed::{Config, Engine, Handlers, TaskClient};
use lapsed_server::resp::Listener;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::support::wait::DEADLINE;

/// A RESP server on a ledger in memory.
pub struct RespServer {
    pub tasks: TaskClient,
    pub metrics: Arc<Metrics>,
    queues: Option<PullQueues>,
    address: SocketAddr,
    _stop: oneshot::Sender<()>,
}

impl RespServer {
    pub fn open() -> Self {
        Self::with("")
    }

    /// On the ledger of these tasks.
    pub fn of(tasks: TaskClient) -> Self {
        let (config, ..) = Self::parts("");
        Self::serve(&config, tasks, None)
    }

    /// With these settings of `[resp]`.
    pub fn with(settings: &str) -> Self {
        let (config, _, tasks) = Self::parts(settings);
        Self::serve(&config, tasks, None)
    }

    /// On a running engine, with these routes.
    pub fn working(routes: &str) -> Self {
        let (config, engine, tasks) = Self::parts(routes);
        let queues = engine.handle().pull();
        tokio::spawn(engine.run_until(std::future::pending()));
        Self::serve(&config, tasks, Some(queues))
    }

    fn parts(settings: &str) -> (Config, Engine, TaskClient) {
        let config = format!("[resp]\nlisten = '127.0.0.1:0'\n{settings}");
        let config = Config::from_toml(&config).unwrap();
        let (engine, tasks) = lapsed::in_memory(&config, Handlers::new());
        (config, engine, tasks)
    }

    fn serve(config: &Config, tasks: TaskClient, workers: Option<PullQueues>) -> Self {
        let metrics = Arc::new(Metrics::default());
        let listener = Listener::open(&config.resp, tasks.clone(), Arc::clone(&metrics));
        let mut listener = listener.unwrap().unwrap();
        if let Some(workers) = workers.clone() {
            listener = listener.with_workers(workers);
        }
        let address = listener.address().unwrap();
        let (stop, stopped) = oneshot::channel();
        tokio::spawn(listener.serve(async move {
            let _ = stopped.await;
        }));
        Self {
            tasks,
            metrics,
            queues: workers,
            address,
            _stop: stop,
        }
    }

    /// Number of calls of workers that wait.
    pub fn waiting(&self) -> usize {
        let queues = self.queues.as_ref().expect("an engine runs").status();
        let workers = queues.iter().flat_map(|queue| &queue.workers);
        workers.map(|worker| worker.waiting).sum()
    }

    pub async fn connect(&self) -> Wire {
        Wire(TcpStream::connect(self.address).await.unwrap())
    }

    /// A connection from another address of this machine.
    pub async fn connect_from(&self, address: &str) -> Wire {
        let socket = TcpSocket::new_v4().unwrap();
        socket
            .bind(format!("{address}:0").parse().unwrap())
            .unwrap();
        Wire(socket.connect(self.address).await.unwrap())
    }

    /// Sends these lines on a connection of their own and returns what is answered to each.
    pub async fn says(&self, line: &str) -> String {
        self.connect().await.says(line).await
    }
}

/// A connection.
pub struct Wire(pub TcpStream);

impl Wire {
    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).await.unwrap();
    }

    /// Sends an inline command and returns the reply, without its last line break.
    pub async fn says(&mut self, line: &str) -> String {
        self.send(format!("{line}\r\nECHO end-of-reply\r\n")).await;
        const END: &str = "$12\r\nend-of-reply\r\n";
        let reply = self.read_until(END).await;
        let reply = reply.strip_suffix(END).unwrap();
        reply.strip_suffix("\r\n").unwrap_or(reply).to_owned()
    }

    /// Reads until what was read ends with this.
    pub async fn read_until(&mut self, end: &str) -> String {
        let mut read = Vec::new();
        let reading = async {
            while !read.ends_with(end.as_bytes()) {
                let mut some = [0; 4096];
                let count = self.0.read(&mut some).await.unwrap();
                assert!(
                    count > 0,
                    "closed after {:?}",
                    String::from_utf8_lossy(&read)
                );
                read.extend_from_slice(&some[..count]);
            }
        };
        if timeout(DEADLINE, reading).await.is_err() {
            panic!("expected {end:?}, got {:?}", String::from_utf8_lossy(&read));
        }
        String::from_utf8(read).unwrap()
    }

    /// Reads until the other side closes.
    pub async fn rest(&mut self) -> String {
        let mut read = Vec::new();
        let reading = self.0.read_to_end(&mut read);
        let ended = timeout(DEADLINE, reading).await;
        // A reset is an end, too.
        let _ = ended.expect("the connection is closed");
        String::from_utf8(read).unwrap()
    }
}
