//! A wire to the ledger that can be cut at the worst moment: what was asked has arrived, the answer never comes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::tcp_proxy::in_front_of;

/// Tells for each packet of a client whether its answer is to be lost.
type Cut = Arc<dyn Fn(&[u8]) -> bool + Send + Sync>;

/// Forwards to a server on this machine.
pub struct Wire {
    pub port: u16,
    cuts: Arc<AtomicUsize>,
}

impl Wire {
    /// A wire that is cut, `most` times in all, behind packets that `cut` picks.
    pub async fn to(
        target: u16,
        most: usize,
        cut: impl Fn(&[u8]) -> bool + Send + Sync + 'static,
    ) -> Self {
        let cuts = Arc::new(AtomicUsize::new(0));
        let done = Arc::clone(&cuts);
        let cut: Cut = Arc::new(move |packet: &[u8]| {
            cut(packet)
                && done
                    .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |cuts| {
                        (cuts < most).then_some(cuts + 1)
                    })
                    .is_ok()
        });
        let port = in_front_of(target, move |client, server| {
            forward(client, server, Arc::clone(&cut))
        })
        .await;
        Self { port, cuts }
    }

    /// How often it was cut.
    pub fn cuts(&self) -> usize {
        self.cuts.load(Ordering::SeqCst)
    }
}

/// Ends, and closes both sides, when either side closes or the wire is cut.
async fn forward(mut client: TcpStream, mut server: TcpStream, cut: Cut) {
    let (mut asked, mut answered) = ([0; 64 * 1024], [0; 64 * 1024]);
    loop {
        tokio::select! {
            read = client.read(&mut asked) => {
                let Ok(count @ 1..) = read else { return };
                if server.write_all(&asked[..count]).await.is_err() {
                    return;
                }
                if cut(&asked[..count]) {
                    // It has acted when it answers.
                    let _ = server.read(&mut answered).await;
                    return;
                }
            }
            read = server.read(&mut answered) => {
                let Ok(count @ 1..) = read else { return };
                if client.write_all(&answered[..count]).await.is_err() {
                    return;
                }
            }
        }
    }
}
