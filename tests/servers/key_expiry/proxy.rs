//! A connection to Redis that can swallow or delay what is sent.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::support::tcp_proxy::in_front_of;

/// What happens to bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// They are taken and go nowhere; connections stay open.
    Swallow,
    /// Of what the server says, whatever holds an event goes nowhere.
    SwallowEvents,
    /// What a client says goes nowhere from the first inspection of a key on. Such a connection is closed when the fault
    /// ends: no stream lacks a part of what came before.
    SwallowInspections,
    /// Events, and what comes behind them, pass at 100 kB a second.
    SlowEvents,
}

/// Forwards to a port of this machine until told otherwise.
pub(crate) struct Proxy {
    port: u16,
    fault: watch::Sender<Fault>,
    swallowed: Arc<AtomicUsize>,
}

impl Proxy {
    pub(crate) async fn to(target: u16) -> Self {
        let (fault, current) = watch::channel(Fault::None);
        let swallowed = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&swallowed);
        let port = in_front_of(target, move |client, server| {
            let (current, counted) = (current.clone(), Arc::clone(&counted));
            async move {
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                tokio::select! {
                    () = forward(from_client, to_server, current.clone(), &counted) => {}
                    () = forward(from_server, to_client, current, &counted) => {}
                }
            }
        })
        .await;
        Self {
            port,
            fault,
            swallowed,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/0", self.port)
    }

    pub(crate) fn set(&self, fault: Fault) {
        self.fault.send_replace(fault);
    }

    /// How often something was swallowed.
    pub(crate) fn swallowed(&self) -> usize {
        self.swallowed.load(Ordering::SeqCst)
    }
}

/// Ends when either side closes.
async fn forward(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    fault: watch::Receiver<Fault>,
    swallowed: &AtomicUsize,
) {
    let mut buffer = [0; 64 * 1024];
    let mut lacks_a_part = false;
    loop {
        let Ok(count @ 1..) = from.read(&mut buffer).await else {
            return;
        };
        let bytes = &buffer[..count];
        let contains = |word: &[u8]| bytes.windows(word.len()).any(|found| found == word);
        let fault = *fault.borrow();
        let is_swallowed = match fault {
            Fault::None | Fault::SlowEvents => false,
            Fault::Swallow => true,
            Fault::SwallowEvents => contains(b"pmessage"),
            Fault::SwallowInspections => {
                lacks_a_part |= contains(b"GETRANGE");
                lacks_a_part
            }
        };
        if lacks_a_part && fault == Fault::None {
            return;
        }
        if is_swallowed {
            swallowed.fetch_add(1, Ordering::SeqCst);
            continue;
        }
        let is_slow = fault == Fault::SlowEvents && contains(b"pmessage");
        let piece = if is_slow { 1_000 } else { bytes.len() };
        for piece in bytes.chunks(piece) {
            if to.write_all(piece).await.is_err() {
                return;
            }
            if is_slow {
                sleep(Duration::from_millis(10)).await;
            }
        }
    }
}
