//! Events of keys, and messages to subscribers.

use super::State;
use crate::events::{Class, Delivery, Fate};
use crate::glob;
use crate::keyspace::Bytes;
use crate::reply::Reply;

impl State {
    /// Notes and publishes what happened to a key.
    pub(crate) fn notify(&mut self, class: Class, event: &'static str, db: u32, key: &[u8]) {
        let due = self.db(db).get(key).and_then(|entry| entry.due);
        self.notify_due(class, event, db, key, due);
    }

    pub(crate) fn notify_due(
        &mut self,
        class: Class,
        event: &'static str,
        db: u32,
        key: &[u8],
        due: Option<i64>,
    ) {
        if class != Class::New {
            self.note(event, db, key, due);
            self.changed(db, key);
        }
        if !self.flags.has(char::from(class as u8)) {
            return;
        }
        if self.flags.has('K') {
            let channel = [format!("__keyspace@{db}__:").as_bytes(), key].concat();
            self.publish(&channel, event.as_bytes(), true);
        }
        if self.flags.has('E') {
            let channel = format!("__keyevent@{db}__:{event}");
            self.publish(channel.as_bytes(), key, true);
        }
    }

    /// Sends a message to the subscribers. Returns their number.
    pub(crate) fn publish(&mut self, channel: &[u8], message: &[u8], is_event: bool) -> usize {
        let mut to: Vec<(u64, Reply)> = Vec::new();
        let bulk = |word: &[u8]| Reply::bulk(word);
        for (id, client) in &self.clients {
            if client.channels.contains(channel) {
                let words = vec![bulk(b"message"), bulk(channel), bulk(message)];
                to.push((*id, Reply::Array(words)));
            }
        }
        for (id, client) in &self.clients {
            let patterns = client.patterns.iter();
            for pattern in patterns.filter(|pattern| glob::matches(pattern, channel)) {
                let words = vec![
                    bulk(b"pmessage"),
                    bulk(pattern),
                    bulk(channel),
                    bulk(message),
                ];
                to.push((*id, Reply::Array(words)));
            }
        }
        let receivers = to.len();
        for (id, reply) in to {
            self.deliver(id, channel, message, is_event, reply.bytes());
        }
        receivers
    }

    fn deliver(&mut self, id: u64, channel: &[u8], message: &[u8], is_event: bool, bytes: Bytes) {
        let Some(client) = self.clients.get(&id) else {
            return;
        };
        let delivery = Delivery {
            channel,
            message,
            link: &client.link,
            is_event,
        };
        let judged = self.judge.as_mut().map(|judge| judge(&delivery));
        let fate = match judged {
            None | Some(Fate::Arrives) if is_event => self.odds.draw(&mut self.random),
            judged => judged.unwrap_or(Fate::Arrives),
        };
        // The receiver is gone if the connection is ending.
        match fate {
            Fate::Arrives => drop(client.out.send(bytes)),
            Fate::Lost => {}
            Fate::Twice => {
                drop(client.out.send(bytes.clone()));
                drop(client.out.send(bytes));
            }
            Fate::Late(wait) => {
                let out = client.out.downgrade();
                tokio::spawn(async move {
                    tokio::time::sleep(wait).await;
                    out.upgrade().map(|out| out.send(bytes))
                });
            }
        }
    }
}
