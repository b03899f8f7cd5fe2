//! A server in front of the server: sees each statement of a client, and may answer in its place.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Mutex, Notify};

use crate::support::tcp_proxy::in_front_of;

/// What is done with a statement that is about to be executed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// The server sees it.
    Pass,
    /// The client is told that the server refused it with this number.
    Refuse(u16),
    /// The server gets it with these words behind it.
    With(&'static str),
    /// The server gets it when [`Proxy::let_go`] is called, whoever still waits for the answer.
    Hold,
}

type Rule = Arc<dyn Fn(&str) -> Act + Send + Sync>;

/// Forwards to a server on this machine.
pub struct Proxy {
    port: u16,
    held: Arc<Held>,
}

#[derive(Default)]
struct Held {
    count: AtomicUsize,
    ended: AtomicUsize,
    let_go: Notify,
}

impl Proxy {
    /// In front of the server of this URL. Prepared statements are seen with their texts, when they are executed; those
    /// whose rule is [`Act::With`], when they are prepared.
    pub async fn before(url: &str, rule: impl Fn(&str) -> Act + Send + Sync + 'static) -> Self {
        let server: u16 = port_of(url).parse().unwrap();
        let (rule, held): (Rule, Arc<Held>) = (Arc::new(rule), Arc::default());
        let holding = Arc::clone(&held);
        let port = in_front_of(server, move |client, server| {
            forward(client, server, Arc::clone(&rule), Arc::clone(&holding))
        })
        .await;
        Self { port, held }
    }

    /// The URL of the server behind it, through it.
    pub fn url(&self, url: &str) -> String {
        url.replace(port_of(url), &self.port.to_string()) + "?ssl-mode=disabled"
    }

    /// How many statements were held.
    pub fn held(&self) -> usize {
        self.held.count.load(Ordering::SeqCst)
    }

    /// How many sessions with a statement that is held the server has ended.
    pub fn ended(&self) -> usize {
        self.held.ended.load(Ordering::SeqCst)
    }

    /// All statements that are held reach the server.
    pub fn let_go(&self) {
        self.held.let_go.notify_waiters();
    }

    /// The statement that was held first reaches the server.
    pub fn let_first_go(&self) {
        self.held.let_go.notify_one();
    }
}

fn port_of(url: &str) -> &str {
    url.split([':', '/']).nth(4).unwrap()
}

/// Statements that were prepared on a connection.
#[derive(Default)]
struct Prepared {
    /// One of them is held.
    is_held: bool,
    /// Whose numbers are not known yet.
    asked: Option<String>,
    texts: HashMap<u32, String>,
}

async fn forward(client: TcpStream, server: TcpStream, rule: Rule, held: Arc<Held>) {
    let ((from_client, to_client), (from_server, to_server)) =
        (client.into_split(), server.into_split());
    let prepared = Arc::new(Mutex::new(Prepared::default()));
    let to_client = Arc::new(Mutex::new(to_client));
    tokio::spawn(answers(
        from_server,
        Arc::clone(&to_client),
        Arc::clone(&prepared),
        Arc::clone(&held),
    ));
    let _ = questions(from_client, to_server, to_client, prepared, rule, held).await;
}

async fn packet(from: &mut (impl AsyncReadExt + Unpin)) -> std::io::Result<Vec<u8>> {
    let mut packet = vec![0; 4];
    from.read_exact(&mut packet).await?;
    let length = u32::from_le_bytes([packet[0], packet[1], packet[2], 0]) as usize;
    packet.resize(4 + length, 0);
    from.read_exact(&mut packet[4..]).await?;
    Ok(packet)
}

fn framed(number: u8, body: &[u8]) -> Vec<u8> {
    let length = (body.len() as u32).to_le_bytes();
    [&[length[0], length[1], length[2], number], body].concat()
}

async fn answers(
    mut server: OwnedReadHalf,
    client: Arc<Mutex<OwnedWriteHalf>>,
    prepared: Arc<Mutex<Prepared>>,
    held: Arc<Held>,
) {
    while let Ok(packet) = packet(&mut server).await {
        let mut prepared = prepared.lock().await;
        if packet[3] == 1
            && let Some(text) = prepared.asked.take()
            && packet.get(4) == Some(&0)
        {
            let id = u32::from_le_bytes(packet[5..9].try_into().unwrap());
            prepared.texts.insert(id, text);
        }
        drop(prepared);
        if client.lock().await.write_all(&packet).await.is_err() {
            return;
        }
    }
    if prepared.lock().await.is_held {
        held.ended.fetch_add(1, Ordering::SeqCst);
    }
    let _ = client.lock().await.shutdown().await;
}

async fn questions(
    mut client: OwnedReadHalf,
    mut server: OwnedWriteHalf,
    to_client: Arc<Mutex<OwnedWriteHalf>>,
    prepared: Arc<Mutex<Prepared>>,
    rule: Rule,
    held: Arc<Held>,
) -> std::io::Result<()> {
    const QUERY: u8 = 0x03;
    const PREPARE: u8 = 0x16;
    const EXECUTE: u8 = 0x17;
    loop {
        let packet = packet(&mut client).await?;
        let (number, body) = (packet[3], &packet[4..]);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let act = match (number, body.first()) {
            (0, Some(&PREPARE)) => {
                let sql = text(&body[1..]);
                let act = match rule(&sql) {
                    with @ Act::With(_) => with,
                    _ => Act::Pass,
                };
                prepared.lock().await.asked = Some(sql);
                act
            }
            (0, Some(&QUERY)) => rule(&text(&body[1..])),
            (0, Some(&EXECUTE)) => {
                let id = u32::from_le_bytes(body[1..5].try_into().unwrap());
                match prepared.lock().await.texts.get(&id).map(|sql| rule(sql)) {
                    Some(Act::With(_)) | None => Act::Pass,
                    Some(act) => act,
                }
            }
            _ => Act::Pass,
        };
        match act {
            Act::Pass => server.write_all(&packet).await?,
            Act::With(words) => {
                let body = [body, words.as_bytes()].concat();
                server.write_all(&framed(0, &body)).await?;
            }
            Act::Refuse(number) => {
                let number = number.to_le_bytes();
                let body = [&[0xff, number[0], number[1]], b"#HY000no".as_slice()].concat();
                to_client.lock().await.write_all(&framed(1, &body)).await?;
            }
            Act::Hold => {
                let let_go = held.let_go.notified();
                prepared.lock().await.is_held = true;
                held.count.fetch_add(1, Ordering::SeqCst);
                let_go.await;
                server.write_all(&packet).await?;
            }
        }
    }
}
