use super::*;

/// A proxy in front of a server that answers each byte with its successor.
async fn proxy() -> Proxy {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            tokio::spawn(async move {
                while let Ok(byte) = client.read_u8().await {
                    client.write_u8(byte + 1).await.unwrap();
                }
            });
        }
    });
    Proxy::to(Protocol::Text, port).await.unwrap()
}

async fn connect(proxy: &Proxy) -> TcpStream {
    TcpStream::connect((Ipv4Addr::LOCALHOST, proxy.port()))
        .await
        .unwrap()
}

async fn ask(stream: &mut TcpStream, byte: u8) -> std::io::Result<u8> {
    stream.write_u8(byte).await?;
    stream.read_u8().await
}

#[tokio::test]
async fn what_is_withheld_arrives_when_it_passes_again() {
    let proxy = proxy().await;
    let mut stream = connect(&proxy).await;
    assert_eq!(ask(&mut stream, 1).await.unwrap(), 2);
    for mode in [Mode::NoQuestions, Mode::NoAnswers, Mode::Blackhole] {
        proxy.set(mode);
        stream.write_u8(5).await.unwrap();
        let answer = tokio::time::timeout(Duration::from_millis(50), stream.read_u8());
        assert!(answer.await.is_err(), "{mode:?}");
        proxy.set(Mode::Pass);
        assert_eq!(stream.read_u8().await.unwrap(), 6, "{mode:?}");
    }
    for mode in [Mode::Trickle, Mode::Delay(Duration::from_millis(5))] {
        proxy.set(mode);
        assert_eq!(ask(&mut stream, 8).await.unwrap(), 9, "{mode:?}");
    }
}

#[tokio::test]
async fn a_cut_closes_all_connections_and_a_refusal_new_ones() {
    let proxy = proxy().await;
    let mut stream = connect(&proxy).await;
    assert_eq!(ask(&mut stream, 1).await.unwrap(), 2);
    proxy.cut();
    assert!(ask(&mut stream, 1).await.is_err());
    proxy.set(Mode::Refuse);
    assert!(ask(&mut connect(&proxy).await, 1).await.is_err());
    proxy.set(Mode::Pass);
    assert_eq!(ask(&mut connect(&proxy).await, 1).await.unwrap(), 2);
}

#[tokio::test]
async fn a_trap_stops_a_connection_before_or_after_the_server_has_acted() {
    for place in [Place::Unsent, Place::Unanswered] {
        let proxy = proxy().await;
        let mut stream = connect(&proxy).await;
        let (sprung, has_sprung) = oneshot::channel();
        let (go, release) = oneshot::channel();
        proxy.set_trap(Some(Trap {
            text: "\x07",
            place,
            sprung,
            release,
        }));
        assert_eq!(ask(&mut stream, 1).await.unwrap(), 2);
        stream.write_u8(7).await.unwrap();
        has_sprung.await.unwrap();
        let _ = go.send(());
        assert!(stream.read_u8().await.is_err(), "{place:?}");
    }
}
