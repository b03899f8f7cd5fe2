//! One connection: reads requests, and writes replies and messages.

use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;

use crate::commands::{self, server::client as client_command};
use crate::keyspace::Bytes;
use crate::pubsub;
use crate::reply::Reply;
use crate::request::{self, Malformed, Words};
use crate::server::{Client, DATABASES, State};
use crate::shared::Shared;
use crate::way::Way;

/// What a connection remembers.
struct Session {
    id: u64,
    db: u32,
    /// The commands since `MULTI`.
    queued: Option<Vec<Arc<Words>>>,
    is_refused: bool,
}

/// Serves a stream until it ends, or is killed.
pub(crate) async fn serve<S>(shared: Arc<Shared>, stream: S, way: Arc<Way>)
where
    S: AsyncRead + AsyncWrite + Send,
{
    let (mut input, mut output) = tokio::io::split(stream);
    let (id, mut replies) = open(&mut shared.state(), &way);
    let write = async {
        while let Some(mut bytes) = replies.recv().await {
            while let Ok(more) = replies.try_recv() {
                bytes.extend(more);
            }
            way.replies_pass().await;
            if output.write_all(&bytes).await.is_err() {
                return;
            }
        }
    };
    let read = async {
        let mut session = Session::new(id);
        let mut bytes = Vec::new();
        while let Ok(1..) = input.read_buf(&mut bytes).await {
            way.requests_pass().await;
            let mut at = 0;
            loop {
                shared.answers().await;
                match request::parse(&bytes[at..]) {
                    Ok(Some((words, length))) => {
                        at += length;
                        session.answer(&mut shared.state(), words);
                    }
                    Ok(None) => break,
                    Err(Malformed(why)) => {
                        let reply = Reply::Error(format!("ERR Protocol error: {why}"));
                        reply_to(&shared.state(), id, &reply);
                        return;
                    }
                }
            }
            bytes.drain(..at);
        }
    };
    tokio::select! {
        () = write => {}
        () = read => {}
    }
    shared.state().clients.remove(&id);
}

fn open(state: &mut State, way: &Way) -> (u64, mpsc::UnboundedReceiver<Bytes>) {
    let (out, replies) = mpsc::unbounded_channel();
    let id = state.next_client;
    state.next_client += 1;
    let client = Client {
        out,
        link: Arc::clone(&way.name),
        name: String::new(),
        channels: Default::default(),
        patterns: Default::default(),
        watched: Default::default(),
        is_dirty: false,
    };
    state.clients.insert(id, client);
    (id, replies)
}

fn name_of(words: &Words) -> String {
    String::from_utf8_lossy(&words[0]).to_ascii_lowercase()
}

/// Sends a reply, unless the connection was killed.
fn reply_to(state: &State, id: u64, reply: &Reply) {
    if let Some(client) = state.clients.get(&id) {
        drop(client.out.send(reply.bytes()));
    }
}

impl Session {
    fn new(id: u64) -> Self {
        Self {
            id,
            db: 0,
            queued: None,
            is_refused: false,
        }
    }

    /// Runs a request of a connection, and sends its replies.
    fn answer(&mut self, state: &mut State, words: Words) {
        if words.is_empty() || !state.clients.contains_key(&self.id) {
            return;
        }
        let words = Arc::new(words);
        let name = name_of(&words);
        let replies = self.answers(state, &name, &words);
        for reply in replies {
            reply_to(state, self.id, &reply);
        }
        if name == "quit" {
            state.clients.remove(&self.id);
        }
    }

    fn answers(&mut self, state: &mut State, name: &str, words: &Arc<Words>) -> Vec<Reply> {
        if let Some(replies) = pubsub::answer(state, self.id, name, words) {
            return replies;
        }
        vec![match name {
            "multi" => self.begin(),
            "exec" => self.exec(state),
            "discard" => match self.end() {
                Some(_) => {
                    self.unwatch(state);
                    Reply::ok()
                }
                None => Reply::Error("ERR DISCARD without MULTI".to_owned()),
            },
            "watch" if self.queued.is_some() => {
                Reply::Error("ERR WATCH inside MULTI is not allowed".to_owned())
            }
            _ => {
                if let Some(queued) = &mut self.queued {
                    match commands::check(words) {
                        Ok(()) => queued.push(Arc::clone(words)),
                        Err(refusal) => {
                            self.is_refused = true;
                            return vec![Reply::Error(refusal)];
                        }
                    }
                    return vec![Reply::Status("QUEUED".to_owned())];
                }
                self.run(state, name, words)
            }
        }]
    }

    /// Runs a command that may concern the connection.
    fn run(&mut self, state: &mut State, name: &str, words: &Arc<Words>) -> Reply {
        match (name, &words[1..]) {
            ("select", [number]) => match std::str::from_utf8(number).map(str::parse::<u32>) {
                Ok(Ok(number)) if number < DATABASES => {
                    self.db = number;
                    Reply::ok()
                }
                Ok(Ok(_)) => Reply::Error("ERR DB index is out of range".to_owned()),
                _ => Reply::Error("ERR invalid DB index".to_owned()),
            },
            ("watch", keys @ [_, ..]) => {
                for key in keys {
                    state.expire_if_due(self.db, key);
                }
                if let Some(client) = state.clients.get_mut(&self.id) {
                    let keys = keys.iter().map(|key| (self.db, key.clone()));
                    client.watched.extend(keys);
                }
                Reply::ok()
            }
            ("unwatch", []) => {
                self.unwatch(state);
                Reply::ok()
            }
            ("client", [verb, words @ ..]) => client_command(state, self.id, verb, words),
            ("quit", _) => Reply::ok(),
            _ => commands::run_in(state, self.db, words),
        }
    }

    fn unwatch(&self, state: &mut State) {
        if let Some(client) = state.clients.get_mut(&self.id) {
            client.watched.clear();
            client.is_dirty = false;
        }
    }

    fn exec(&mut self, state: &mut State) -> Reply {
        let is_refused = self.is_refused;
        let Some(queued) = self.end() else {
            return Reply::Error("ERR EXEC without MULTI".to_owned());
        };
        let is_dirty = state
            .clients
            .get(&self.id)
            .is_some_and(|client| client.is_dirty);
        self.unwatch(state);
        if is_refused {
            let text = "EXECABORT Transaction discarded because of previous errors.";
            return Reply::Error(text.to_owned());
        }
        if is_dirty {
            return Reply::NilArray;
        }
        let run = |words: Arc<Words>| self.run(state, &name_of(&words), &words);
        Reply::Array(queued.into_iter().map(run).collect())
    }

    fn begin(&mut self) -> Reply {
        if self.queued.is_some() {
            return Reply::Error("ERR MULTI calls can not be nested".to_owned());
        }
        self.queued = Some(Vec::new());
        Reply::ok()
    }

    fn end(&mut self) -> Option<Vec<Arc<Words>>> {
        self.is_refused = false;
        self.queued.take()
    }
}
