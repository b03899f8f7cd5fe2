//! DNS resolver that leaves out addresses that webhooks may not reach.
//!
//! The addresses that are checked are those that are connected to. So DNS rebinding, a name that resolves to a public
//! address first and to the metadata service a moment later, does not work.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use async_trait::async_trait;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use crate::config::EgressPolicy;

/// Looks up names. A seam for tests.
#[async_trait]
pub(super) trait Lookup: Send + Sync + 'static {
    async fn look_up(&self, host: &str) -> std::io::Result<Vec<IpAddr>>;
}

/// The resolver of the machine.
pub(super) struct SystemLookup;

#[async_trait]
impl Lookup for SystemLookup {
    async fn look_up(&self, host: &str) -> std::io::Result<Vec<IpAddr>> {
        let found = tokio::net::lookup_host((host, 0)).await?;
        Ok(found.map(|address| address.ip()).collect())
    }
}

/// Resolves names to addresses that the egress policy allows.
pub(super) struct GuardedResolver<L> {
    lookup: Arc<L>,
    egress: EgressPolicy,
}

impl<L: Lookup> GuardedResolver<L> {
    pub(super) fn new(lookup: L, egress: EgressPolicy) -> Self {
        Self {
            lookup: Arc::new(lookup),
            egress,
        }
    }
}

/// All addresses of a name are refused.
#[derive(Debug, thiserror::Error)]
#[error(
    "`{host}` leads to {kind} address, `{address}`, where webhooks may not go; if it is meant, name the host or its network in `allow`"
)]
pub(super) struct Refused {
    host: String,
    kind: &'static str,
    address: IpAddr,
}

impl<L: Lookup> GuardedResolver<L> {
    async fn reachable(
        lookup: &L,
        egress: &EgressPolicy,
        host: String,
    ) -> Result<Vec<SocketAddr>, Box<dyn std::error::Error + Send + Sync>> {
        let found = lookup.look_up(&host).await?;
        let mut refused = None;
        let mut reachable = Vec::new();
        for address in found {
            match egress.refuses(address) {
                Some(kind) if !egress.names(&host) => refused = Some((kind, address)),
                // The port is that of the URL.
                _ => reachable.push(SocketAddr::new(address, 0)),
            }
        }
        match refused {
            Some((kind, address)) if reachable.is_empty() => Err(Box::new(Refused {
                host,
                kind,
                address,
            })),
            _ => Ok(reachable),
        }
    }
}

impl<L: Lookup> Resolve for GuardedResolver<L> {
    fn resolve(&self, name: Name) -> Resolving {
        let (lookup, egress) = (Arc::clone(&self.lookup), self.egress.clone());
        Box::pin(async move {
            let found = Self::reachable(&lookup, &egress, name.as_str().to_owned()).await?;
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::config::{Config, TargetConfig, WebhookConfig};
    use crate::handler::webhook::{ClientKey, Webhook};

    /// Answers from a list, one after the other; the last one stays.
    struct Script {
        answers: Vec<Vec<IpAddr>>,
        asked: AtomicUsize,
    }

    impl Script {
        fn new(answers: &[&[&str]]) -> Self {
            let read = |answer: &&[&str]| answer.iter().map(|ip| ip.parse().unwrap()).collect();
            Self {
                answers: answers.iter().map(read).collect(),
                asked: AtomicUsize::new(0),
            }
        }
    }

    #[async_trait]
    impl Lookup for Script {
        async fn look_up(&self, _: &str) -> std::io::Result<Vec<IpAddr>> {
            let number = self.asked.fetch_add(1, Ordering::Relaxed);
            Ok(self.answers[number.min(self.answers.len() - 1)].clone())
        }
    }

    fn egress(entries: &[&str]) -> EgressPolicy {
        let entries: Vec<String> = entries.iter().map(|entry| (*entry).to_owned()).collect();
        EgressPolicy::parse(&entries).unwrap()
    }

    async fn resolve(resolver: &impl Resolve, name: &str) -> Result<Vec<String>, String> {
        match resolver.resolve(name.parse().unwrap()).await {
            Ok(found) => Ok(found.map(|address| address.ip().to_string()).collect()),
            Err(error) => Err(error.to_string()),
        }
    }

    #[tokio::test]
    async fn a_name_is_held_to_what_it_leads_to_each_time() {
        let rebinding = Script::new(&[&["1.1.1.1"], &["169.254.169.254"]]);
        let resolver = GuardedResolver::new(rebinding, EgressPolicy::default());
        assert_eq!(resolve(&resolver, "x.example").await.unwrap(), ["1.1.1.1"]);
        assert_eq!(
            resolve(&resolver, "x.example").await.unwrap_err(),
            "`x.example` leads to a link-local address, `169.254.169.254`, where webhooks may not go; if it is meant, name the host or its network in `allow`"
        );
    }

    /// What is found, what is allowed, what is left.
    type Case<'a> = (&'a [&'a str], &'a [&'a str], Option<&'a [&'a str]>);

    #[tokio::test]
    async fn of_several_addresses_only_those_that_may_be_reached_are_left() {
        let told: [Case; 6] = [
            (&["10.0.0.1", "1.1.1.1", "::1"], &[], Some(&["1.1.1.1"])),
            (&["10.0.0.1", "::ffff:127.0.0.1"], &[], None),
            (
                &["10.0.0.1", "10.1.0.1"],
                &["10.1.0.0/16"],
                Some(&["10.1.0.1"]),
            ),
            (
                &["10.0.0.1", "127.0.0.1"],
                &["X.example"],
                Some(&["10.0.0.1", "127.0.0.1"]),
            ),
            (&["10.0.0.1"], &["other.example"], None),
            (&["64:ff9b::7f00:1", "2002:7f00:1::"], &[], None),
        ];
        for (found, allow, left) in told {
            let resolver = GuardedResolver::new(Script::new(&[found]), egress(allow));
            let resolved = resolve(&resolver, "x.example").await.ok();
            let left = left.map(|left| left.iter().map(|ip| (*ip).to_owned()).collect());
            assert_eq!(resolved, left, "{found:?} with {allow:?}");
        }
    }

    fn webhook(url: &str, allow: &str) -> WebhookConfig {
        let text =
            format!("[[routes]]\nmatch = '.'\nwebhook = {{ url = '{url}', allow = [{allow}] }}");
        match Config::from_toml(&text).unwrap().routes.remove(0).target {
            TargetConfig::Webhook(webhook) => *webhook,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn nothing_is_sent_where_a_name_may_not_lead() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let accepted = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&accepted);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                counter.fetch_add(1, Ordering::Relaxed);
                let mut request = [0; 4096];
                assert!(stream.read(&mut request).await.unwrap() > 0);
                let answer = b"HTTP/1.1 204 Fine\r\nconnection: close\r\n\r\n";
                stream.write_all(answer).await.unwrap();
            }
        });
        for (allow, connections) in [("", 0), ("'10.0.0.0/8'", 0), ("'rebound.example'", 1)] {
            // The port and host are those of the URL, whatever the name leads to.
            let config = webhook(&format!("http://rebound.example:{port}/secret"), allow);
            let client = ClientKey::of(&config).build_with(Script::new(&[&["127.0.0.1"]]));
            let client = client.unwrap();
            let webhook = Webhook::new(config, Ok(client.clone()));
            let sent = client.post(format!("http://rebound.example:{port}/secret"));
            let sent = sent.timeout(Duration::from_secs(10)).send().await;
            assert_eq!(accepted.swap(0, Ordering::Relaxed), connections, "{allow}");
            match sent {
                Ok(answer) => assert_eq!((answer.status().as_u16(), connections), (204, 1)),
                Err(error) => {
                    let error = webhook.explain(error);
                    assert!(
                        error.starts_with("`rebound.example` leads to a loopback address"),
                        "{error}"
                    );
                }
            }
        }
    }

    struct Mute;

    #[async_trait]
    impl Lookup for Mute {
        async fn look_up(&self, _: &str) -> std::io::Result<Vec<IpAddr>> {
            std::future::pending().await
        }
    }

    #[tokio::test]
    async fn connecting_has_a_limit_that_counts_the_name_too() {
        let mut config = webhook("http://shop.example/", "");
        config.connect_timeout = Duration::from_millis(50);
        let client = ClientKey::of(&config).build_with(Mute).unwrap();
        let webhook = Webhook::new(config, Ok(client.clone()));
        let sent = client
            .post("http://shop.example/")
            .timeout(Duration::from_secs(10));
        let error = sent.send().await.unwrap_err();
        assert_eq!(webhook.explain(error), "no connection within 50 ms");
    }
}
