//! A connection to Redis that can swallow what is sent.

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;

use crate::support::tcp_proxy::in_front_of;

/// What happens to bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// They are taken and go nowhere; connections stay open.
    Swallow,
    /// Of what the server says, whatever holds an event goes nowhere.
    SwallowEvents,
}

/// Forwards to a port of this machine until told otherwise.
pub(crate) struct Proxy {
    port: u16,
    fault: watch::Sender<Fault>,
}

impl Proxy {
    pub(crate) async fn to(target: u16) -> Self {
        let (fault, current) = watch::channel(Fault::None);
        let port = in_front_of(target, move |client, server| {
            let current = current.clone();
            async move {
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                tokio::select! {
                    () = forward(from_client, to_server, current.clone()) => {}
                    () = forward(from_server, to_client, current) => {}
                }
            }
        })
        .await;
        Self { port, fault }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/0", self.port)
    }

    pub(crate) fn set(&self, fault: Fault) {
        self.fault.send_replace(fault);
    }
}

/// Ends when either side closes.
async fn forward(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    fault: watch::Receiver<Fault>,
) {
    let mut buffer = [0; 64 * 1024];
    loop {
        let Ok(count @ 1..) = from.read(&mut buffer).await else {
            return;
        };
        let bytes = &buffer[..count];
        let swallowed = match *fault.borrow() {
            Fault::None => false,
            Fault::Swallow => true,
            Fault::SwallowEvents => bytes.windows(8).any(|word| word == b"pmessage"),
        };
        if !swallowed && to.write_all(bytes).await.is_err() {
            return;
        }
    }
}
