//! A port in front of a server that delays, withholds, slices and cuts what goes through it.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};
use tokio::time::sleep;

use crate::statements::Statements;

/// What happens to the bytes of each connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// They pass.
    #[default]
    Pass,
    /// Each piece waits for so long, in both directions.
    Delay(Duration),
    /// What clients send does not arrive. New connections are accepted.
    NoQuestions,
    /// What the server sends does not arrive.
    NoAnswers,
    /// Nothing arrives.
    Blackhole,
    /// A few bytes at a time.
    Trickle,
    /// Connections are closed at once.
    Refuse,
}

/// Bytes at a time of [`Mode::Trickle`], and how often.
const TRICKLE: (usize, Duration) = (48, Duration::from_millis(2));

/// Where a trap stops a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The server does not get the statement.
    Unsent,
    /// The server has carried it out, and the client gets no answer.
    Unanswered,
}

/// Stops the connection that sends a statement with this text. The connection closes when `release` is dropped or used.
pub struct Trap {
    pub text: &'static str,
    pub place: Place,
    pub sprung: oneshot::Sender<()>,
    pub release: oneshot::Receiver<()>,
}

/// What is spoken through a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    Mysql,
    /// Statements are found in it as they are.
    Text,
}

struct Shared {
    protocol: Protocol,
    trap: Mutex<Option<Trap>>,
    target: AtomicU16,
}

/// A port in front of a server.
pub struct Proxy {
    port: u16,
    mode: watch::Sender<Mode>,
    /// Changes when all connections are to close.
    cuts: watch::Sender<u64>,
    shared: Arc<Shared>,
}

impl Proxy {
    /// A free port of this machine in front of this one.
    ///
    /// # Errors
    /// If no port is free.
    pub async fn to(protocol: Protocol, target: u16) -> std::io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        let (mode, of_mode) = watch::channel(Mode::Pass);
        let (cuts, of_cuts) = watch::channel(0);
        let shared = Arc::new(Shared {
            protocol,
            trap: Mutex::default(),
            target: AtomicU16::new(target),
        });
        let accepted = Arc::clone(&shared);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if *of_mode.borrow() == Mode::Refuse {
                    continue;
                }
                let link = Link {
                    mode: of_mode.clone(),
                    cuts: of_cuts.clone(),
                    shared: Arc::clone(&accepted),
                };
                tokio::spawn(link.forward(client));
            }
        });
        Ok(Self {
            port,
            mode,
            cuts,
            shared,
        })
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// From now on, for all connections.
    pub fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
        if mode == Mode::Refuse {
            self.cut();
        }
    }

    /// Closes all connections.
    pub fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// Leads new connections to another server, and closes the others.
    pub fn lead_to(&self, target: u16) {
        self.shared.target.store(target, Ordering::Relaxed);
        self.cut();
    }

    /// Sets a trap, or takes it away.
    pub fn set_trap(&self, trap: Option<Trap>) {
        *self.shared.trap.lock().expect("no thread panics with it") = trap;
    }
}

/// One connection.
struct Link {
    mode: watch::Receiver<Mode>,
    cuts: watch::Receiver<u64>,
    shared: Arc<Shared>,
}

impl Link {
    async fn forward(mut self, client: TcpStream) {
        self.cuts.mark_unchanged();
        let target = self.shared.target.load(Ordering::Relaxed);
        let server = TcpStream::connect((Ipv4Addr::LOCALHOST, target));
        let Ok(server) = server.await else { return };
        let _ = (client.set_nodelay(true), server.set_nodelay(true));
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        let wire = Mutex::new(Wire::default());
        let questions = self.questions(from_client, to_server, &wire);
        let answers = self.answers(from_server, to_client, &wire);
        let mut cuts = self.cuts.clone();
        // Whichever ends first closes both sides.
        tokio::select! {
            () = questions => {}
            () = answers => {}
            _ = cuts.changed() => {}
        }
    }

    async fn questions(&self, mut from: OwnedReadHalf, mut to: OwnedWriteHalf, wire: &Mutex<Wire>) {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(count @ 1..) = from.read(&mut buffer).await {
            let bytes = &buffer[..count];
            let sprung = wire.lock().expect("no panic").sees(bytes, &self.shared);
            if let Some(trap) = sprung {
                match trap.place {
                    Place::Unsent => return trap.spring().await,
                    Place::Unanswered => wire.lock().expect("no panic").answer = Some(trap),
                }
            }
            if !self
                .pass(bytes, &mut to, &[Mode::NoQuestions, Mode::Blackhole])
                .await
            {
                return;
            }
        }
    }

    async fn answers(&self, mut from: OwnedReadHalf, mut to: OwnedWriteHalf, wire: &Mutex<Wire>) {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(count @ 1..) = from.read(&mut buffer).await {
            let bytes = &buffer[..count];
            let sprung = {
                let mut wire = wire.lock().expect("no panic");
                wire.statements.answered(bytes);
                wire.answer.take()
            };
            if let Some(trap) = sprung {
                return trap.spring().await;
            }
            if !self
                .pass(bytes, &mut to, &[Mode::NoAnswers, Mode::Blackhole])
                .await
            {
                return;
            }
        }
    }

    /// Writes in the way of the mode. False if the other side is gone.
    async fn pass(&self, bytes: &[u8], to: &mut OwnedWriteHalf, held: &[Mode]) -> bool {
        let mut mode = self.mode.clone();
        let now = *mode.borrow();
        if let Mode::Delay(delay) = now {
            sleep(delay).await;
        }
        if mode.wait_for(|mode| !held.contains(mode)).await.is_err() {
            return false;
        }
        if now != Mode::Trickle {
            return to.write_all(bytes).await.is_ok();
        }
        for piece in bytes.chunks(TRICKLE.0) {
            if to.write_all(piece).await.is_err() {
                return false;
            }
            if *mode.borrow() == Mode::Trickle {
                sleep(TRICKLE.1).await;
            }
        }
        true
    }
}

/// What is known of a connection.
#[derive(Default)]
struct Wire {
    statements: Statements,
    /// To be sprung at the next answer.
    answer: Option<Trap>,
}

impl Wire {
    /// Takes bytes from the client. Returns the trap that they spring.
    fn sees(&mut self, bytes: &[u8], shared: &Shared) -> Option<Trap> {
        let statements = match shared.protocol {
            Protocol::Mysql => self.statements.asked(bytes),
            Protocol::Text => Vec::new(),
        };
        let mut set = shared.trap.lock().expect("no panic");
        let trap = set.as_ref()?;
        let text = trap.text.as_bytes();
        let is_caught = match shared.protocol {
            Protocol::Mysql => statements.iter().any(|it| it.contains(trap.text)),
            Protocol::Text => bytes.windows(text.len()).any(|it| it == text),
        };
        is_caught.then(|| set.take()).flatten()
    }
}

impl Trap {
    async fn spring(self) {
        let _ = self.sprung.send(());
        let _ = self.release.await;
    }
}

#[cfg(test)]
mod tests;
