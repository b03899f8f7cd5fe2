//! Endpoint of the server: where it is, and how to connect to it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
#[cfg(feature = "engine")]
use redis::aio::PubSub;
use redis::{AsyncConnectionConfig, ConnectionAddr};
use tokio::time::timeout;

use super::client::client;
use super::connector::Connector;
use super::master::{Masters, Mastership};
use super::{Address, EventKind, RedisError};
use lapsed_core::config::{ClusterUrl, RedisConfig, SentinelUrl};
use lapsed_core::task::RetryPolicy;

/// Most commands that wait to be written. Further callers wait, within their own deadlines.
const PIPELINE_BUFFER: usize = 1000;

/// Most bytes collected before a write. Bulk arming would otherwise flush every 8 KiB.
const WRITE_BOUNDARY: usize = 256 * 1024;

/// Longest time between two attempts to connect to a server that sentinels name, or that a cluster may replace.
const PAUSE_MAX_WITH_SENTINELS: Duration = Duration::from_millis(200);

/// The address of a server and its connection settings. Creating one does no I/O.
#[derive(Clone)]
pub struct Endpoint {
    client: redis::Client,
    /// Finds the server, if sentinels know it. The client has the other settings then.
    masters: Option<Arc<Masters>>,
    /// Nodes of a cluster by which the others are found.
    seeds: Vec<Address>,
    /// True for a node of a cluster.
    is_node: bool,
    /// Opens streams in place of the client.
    connector: Option<Arc<dyn Connector>>,
    node: Arc<str>,
    connect_timeout: Duration,
    response_timeout: Duration,
}

impl Endpoint {
    /// Parses the URL: that of a server, of the sentinels of a master, or of nodes of a cluster.
    ///
    /// # Errors
    /// Returns [`RedisError::Url`] if the URL is invalid.
    pub fn new(config: &RedisConfig) -> Result<Self, RedisError> {
        let text = config.url.expose();
        let sentinels = SentinelUrl::parse(text);
        let cluster = ClusterUrl::parse(text);
        let server = match (&sentinels, &cluster) {
            (Some(url), _) => &url.server,
            (None, Some(url)) => &url.server,
            (None, None) => text,
        };
        let masters = sentinels.as_ref().map(|url| Masters::new(url, config));
        let masters = masters.transpose()?.map(Arc::new);
        let client = client(server)?;
        let nodes = cluster.map_or(Vec::new(), |url| url.nodes);
        let seeds: Vec<Address> = nodes
            .into_iter()
            .map(|(host, port)| Address { host, port })
            .collect();
        Ok(Self {
            node: match (&masters, &seeds[..]) {
                (Some(masters), _) => masters.node().into(),
                (None, []) => client.get_connection_info().addr().to_string().into(),
                (None, seeds) => {
                    let seeds: Vec<String> = seeds.iter().map(Address::to_string).collect();
                    format!("cluster of {}", seeds.join(",")).into()
                }
            },
            masters,
            seeds,
            is_node: false,
            client,
            connector: None,
            connect_timeout: config.connect_timeout,
            response_timeout: config.response_timeout,
        })
    }

    /// The same, but each connection uses a stream of this connector. Of the URL, only the database and the credentials
    /// count.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    #[doc(hidden)]
    pub fn over(config: &RedisConfig, connector: Arc<dyn Connector>) -> Result<Self, RedisError> {
        let connector = Some(connector);
        Self::new(config).map(|endpoint| Self {
            connector,
            ..endpoint
        })
    }

    /// Nodes of a cluster by which the others are found; none for a single server.
    pub(super) fn seeds(&self) -> &[Address] {
        &self.seeds
    }

    /// The endpoint of a node of the cluster, with the same settings.
    pub(super) fn at(&self, address: &Address) -> Self {
        let info = self.client.get_connection_info().clone();
        let info = info.clone().set_addr(at(info.addr().clone(), address));
        Self {
            client: redis::Client::open(info).expect("the address alone has changed"),
            seeds: Vec::new(),
            is_node: true,
            node: address.to_string().into(),
            ..self.clone()
        }
    }

    /// True if nodes are reached by their names: certificates have names, and a URL with names is from where they resolve.
    pub(super) fn goes_by_name(&self) -> bool {
        let is_tls = matches!(
            self.client.get_connection_info().addr(),
            ConnectionAddr::TcpTls { .. }
        );
        let is_ip = |seed: &Address| seed.host.parse::<std::net::IpAddr>().is_ok();
        is_tls || !self.seeds.iter().any(is_ip)
    }

    /// Returns `host:port`, the path of the socket, or the master and its sentinels, without credentials, for logs and
    /// metrics.
    pub fn node(&self) -> &str {
        &self.node
    }

    /// Asks each sentinel of the URL by itself. Returns its node and the address of the master that it names; nothing for
    /// the URL of a server.
    pub async fn sentinel_views(&self) -> Vec<(String, Result<String, RedisError>)> {
        match &self.masters {
            Some(masters) => masters.views().await,
            None => Vec::new(),
        }
    }

    /// True if the server is in this process, and follows the time of the runtime, which may be paused.
    #[cfg(feature = "engine")]
    pub(super) fn is_in_process(&self) -> bool {
        self.connector.is_some()
    }

    /// Returns the database number.
    pub fn database(&self) -> i64 {
        self.client.get_connection_info().redis_settings().db()
    }

    /// Returns the channel for events of this kind in the database.
    pub fn channel(&self, kind: EventKind) -> String {
        format!("__keyevent@{}__:{kind}", self.database())
    }

    /// Returns the channel for events of the key with this name in Redis.
    pub fn key_channel(&self, name: &str) -> String {
        format!("__keyspace@{}__:{name}", self.database())
    }

    /// Time between the last of these failed attempts to connect and the next one. Short if sentinels name the server: they
    /// may have named another meanwhile.
    pub(super) fn pause_after(&self, failures: u16, backoff: &RetryPolicy) -> Duration {
        let pause = backoff.delay(failures, rand::random());
        match self.masters.is_some() || self.is_node {
            true => pause.min(PAUSE_MAX_WITH_SENTINELS),
            false => pause,
        }
    }

    /// Longest time to wait for a reply.
    #[cfg(feature = "engine")]
    pub(super) fn response_timeout(&self) -> Duration {
        self.response_timeout
    }

    /// Opens a connection for commands.
    pub(super) async fn connect(&self) -> Result<(MultiplexedConnection, Mastership), RedisError> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.connect_timeout))
            .set_response_timeout(Some(self.response_timeout))
            .set_pipeline_buffer_size(PIPELINE_BUFFER)
            .set_write_backpressure_boundary(WRITE_BOUNDARY);
        let Some(connector) = &self.connector else {
            let (client, mastership) = self.server().await?;
            let connected = async {
                let connection = client.get_multiplexed_async_connection_with_config(&config);
                let mut connection = connection.await.map_err(refused_to_connect)?;
                if self.masters.is_some() {
                    require_master(&mut connection).await?;
                }
                Ok(connection)
            };
            return during(mastership, connected).await;
        };
        let connected = async {
            let stream = connector.connect().await?;
            let info = self.client.get_connection_info().redis_settings();
            MultiplexedConnection::new_with_config(info, stream, config).await
        };
        let (connection, driver) = self.in_time(connected).await?;
        // It ends with the last clone of the connection.
        tokio::spawn(driver);
        Ok((connection, Mastership::default()))
    }

    /// Opens a connection for subscriptions.
    #[cfg(feature = "engine")]
    pub(super) async fn connect_pubsub(&self) -> Result<(PubSub, Mastership), RedisError> {
        let Some(connector) = &self.connector else {
            let (client, mastership) = self.server().await?;
            // The crate sets no timeout here.
            let connected = self.in_time(client.get_async_pubsub());
            return during(mastership, connected).await;
        };
        let connected = async {
            let stream = connector.connect().await?;
            let info = self.client.get_connection_info().redis_settings();
            PubSub::new(info, stream).await
        };
        Ok((self.in_time(connected).await?, Mastership::default()))
    }

    /// The client for the server, which sentinels may have to name first.
    async fn server(&self) -> Result<(redis::Client, Mastership), RedisError> {
        let Some(masters) = &self.masters else {
            return Ok((self.client.clone(), Mastership::default()));
        };
        let ((host, port), mastership) = masters.find().await?;
        let info = self.client.get_connection_info().clone();
        let address = at(info.addr().clone(), &Address { host, port });
        let client = redis::Client::open(info.set_addr(address)).map_err(RedisError::Url)?;
        Ok((client, mastership))
    }

    async fn in_time<T>(
        &self,
        connected: impl Future<Output = redis::RedisResult<T>>,
    ) -> Result<T, RedisError> {
        match timeout(self.connect_timeout, connected).await {
            Ok(connected) => connected.map_err(refused_to_connect),
            Err(_) => Err(RedisError::silence()),
        }
    }
}

/// Returns the address of another server that is reached in the same way.
fn at(way: ConnectionAddr, address: &Address) -> ConnectionAddr {
    let (host, port) = (address.host.clone(), address.port);
    match way {
        ConnectionAddr::TcpTls {
            insecure,
            tls_params,
            ..
        } => ConnectionAddr::TcpTls {
            host,
            port,
            insecure,
            tls_params,
        },
        _ => ConnectionAddr::Tcp(host, port),
    }
}

/// Gives up an attempt to connect when the sentinels name another server.
async fn during<T>(
    mastership: Mastership,
    connected: impl Future<Output = Result<T, RedisError>>,
) -> Result<(T, Mastership), RedisError> {
    tokio::select! {
        connected = connected => Ok((connected?, mastership)),
        () = mastership.clone().over() => Err(RedisError::Replica(None)),
    }
}

/// Asks a server for its role. One that has just come back may not know yet that another was promoted.
async fn require_master(connection: &mut MultiplexedConnection) -> Result<(), RedisError> {
    let role: redis::RedisResult<redis::Value> = redis::cmd("ROLE").query_async(connection).await;
    let role = role.map_err(|error| RedisError::of("ROLE", error));
    match role {
        Ok(redis::Value::Array(fields)) => match fields.first() {
            Some(redis::Value::BulkString(role)) if role == b"master" => Ok(()),
            _ => Err(RedisError::Replica(None)),
        },
        Ok(_) => Err(RedisError::Replica(None)),
        // A user without this right relies on what the sentinels say.
        Err(RedisError::NoPermission { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Classifies an error of connecting. A refused `AUTH` is known by its code; what else a server may refuse is the database.
fn refused_to_connect(error: redis::RedisError) -> RedisError {
    RedisError::of("SELECT", error)
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The client's `Debug` shows the password.
        f.debug_struct("Endpoint")
            .field("node", &self.node)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lapsed_core::config::Config;

    fn endpoint(url: &str) -> Result<Endpoint, RedisError> {
        Endpoint::new(&RedisConfig {
            url: url.into(),
            ..Config::default().redis
        })
    }

    #[test]
    fn a_url_names_server_and_database_and_is_shown_without_its_password() {
        let urls = [
            ("redis://user:secret@h:7000/3", "h:7000", 3),
            ("rediss://:secret@h/1", "h:6379", 1),
            (
                "unix:///run/redis.sock?db=2&pass=secret",
                "/run/redis.sock",
                2,
            ),
            (
                "redis+sentinel://user:secret@s1,s2:7000/tasks/2?sentinel_password=secret",
                "tasks of s1:26379,s2:7000",
                2,
            ),
        ];
        for (url, node, database) in urls {
            let endpoint = endpoint(url).unwrap();
            assert_eq!(
                (endpoint.node(), endpoint.database()),
                (node, database),
                "{url}"
            );
            assert!(!format!("{endpoint:?}").contains("secret"));
        }
        assert_eq!(endpoint("redis://h/x").unwrap_err().reason(), "url");
    }
}
