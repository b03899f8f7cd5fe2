//! Webhooks over TLS: whom they trust, and which HTTP they speak.

use std::sync::{Arc, Mutex};

use lapsed::Handlers;
use lapsed::task::State;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;

use crate::support::rig::Rig;

/// An HTTPS server whose authority nobody trusts yet.
struct Shop {
    url: String,
    authority: tempfile::NamedTempFile,
    /// `h2` or `http/1.1`, for each request.
    spoken: Arc<Mutex<Vec<String>>>,
}

impl Shop {
    async fn start(offers: &[&str]) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &authority).unwrap();
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate.der().clone()],
                key.serialize_der().try_into().unwrap(),
            )
            .unwrap();
        config.alpn_protocols = offers.iter().map(|name| name.as_bytes().to_vec()).collect();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}/hook", listener.local_addr().unwrap());
        let spoken = Arc::new(Mutex::new(Vec::new()));
        tokio::spawn(serve(
            listener,
            TlsAcceptor::from(Arc::new(config)),
            Arc::clone(&spoken),
        ));
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), authority.pem()).unwrap();
        Self {
            url,
            authority: file,
            spoken,
        }
    }
}

async fn serve(listener: TcpListener, acceptor: TlsAcceptor, spoken: Arc<Mutex<Vec<String>>>) {
    while let Ok((stream, _)) = listener.accept().await {
        let Ok(mut stream) = acceptor.accept(stream).await else {
            continue;
        };
        let protocol = stream.get_ref().1.alpn_protocol().unwrap_or_default();
        let protocol = String::from_utf8(protocol.to_vec()).unwrap();
        let spoken = Arc::clone(&spoken);
        tokio::spawn(async move {
            if protocol == "h2" {
                let mut connection = h2::server::handshake(stream).await.unwrap();
                while let Some(Ok((_, mut answer))) = connection.accept().await {
                    spoken.lock().unwrap().push(protocol.clone());
                    let fine = http::Response::builder().status(204).body(()).unwrap();
                    answer.send_response(fine, true).unwrap();
                }
                return;
            }
            let mut bytes = Vec::new();
            while !bytes.ends_with(b"}") {
                stream.read_buf(&mut bytes).await.unwrap();
            }
            spoken.lock().unwrap().push(protocol);
            let answer = b"HTTP/1.1 204 Fine\r\nconnection: close\r\n\r\n";
            stream.write_all(answer).await.unwrap();
            stream.shutdown().await.unwrap();
        });
    }
}

async fn post(shop: &Shop, webhook: &str) -> (Rig, String) {
    let rig = Rig::new(&format!(
        "retry.max_attempts = 1\n[[routes]]\nmatch = '.'\nwebhook = {{ url = '{}', allow = ['127.0.0.1'], {webhook} }}",
        shop.url
    ))
    .await;
    let daemon = rig.daemon_with(Handlers::new());
    daemon.create("Hook@it", 0).await;
    crate::support::wait::until("the task is over", async || {
        rig.state("Hook@it").await.is_finished()
    })
    .await;
    let error = rig.record("Hook@it").await.last_error.unwrap_or_default();
    (rig, error)
}

#[tokio::test]
async fn a_server_that_speaks_http_2_is_spoken_to_in_it() {
    for (offers, protocol) in [
        (&["h2", "http/1.1"][..], "h2"),
        (&["http/1.1"], "http/1.1"),
        (&[], ""),
    ] {
        let shop = Shop::start(offers).await;
        let trust = format!("ca_file = '{}'", shop.authority.path().display());
        let (rig, error) = post(&shop, &trust).await;
        assert_eq!(rig.state("Hook@it").await, State::Done, "{error}");
        assert_eq!(*shop.spoken.lock().unwrap(), [protocol]);
    }
}

#[tokio::test]
async fn a_server_with_an_unknown_certificate_authority_receives_no_task() {
    let shop = Shop::start(&["h2"]).await;
    let (rig, error) = post(&shop, "").await;
    assert_eq!(rig.state("Hook@it").await, State::Dead);
    assert!(error.contains("certificate"), "{error}");
    assert!(shop.spoken.lock().unwrap().is_empty());
}
