//! A port in front of a server, for tests that disturb the connection.

use std::net::Ipv4Addr;

use tokio::net::{TcpListener, TcpStream};

/// A free port of this machine. `forward` gets each client that connects to it, with a connection to the server's port;
/// both close when it returns. A client is turned away while the server is down.
pub async fn in_front_of<F>(
    server: u16,
    forward: impl Fn(TcpStream, TcpStream) -> F + Send + 'static,
) -> u16
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            if let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, server)).await {
                tokio::spawn(forward(client, server));
            }
        }
    });
    port
}
