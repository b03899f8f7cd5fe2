use super::SandboxError;
use super::maria::{MariaOptions, PrivateMaria, WSREP};
use super::port::free_port;
use super::process::locate;

const PACKAGE: &str = "galera-4";
const PROVIDER: &str = "/usr/lib/galera/libgalera_smm.so";

/// A private Galera cluster: MariaDB servers that commit each transaction together.
///
/// The nodes transfer missed transactions to one that returns (`IST`). One that has missed too many is copied by
/// `mariadb-backup`, for which Debian's packages `mariadb-backup` and `socat` must be installed.
#[derive(Debug)]
pub struct PrivateGalera {
    /// The nodes, running or not.
    pub nodes: Vec<PrivateMaria>,
    group: Vec<u16>,
}

impl PrivateGalera {
    /// Starts a cluster of `nodes` nodes, with an empty database, and waits until all have joined.
    ///
    /// # Errors
    /// As [`MariaOptions::start`](super::MariaOptions::start); also if the package `galera-4` is not installed.
    pub async fn start(nodes: usize, database: &str) -> Result<Self, SandboxError> {
        Self::start_with(nodes, database, |_, options| options).await
    }

    /// The same, with options for each node.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn start_with(
        nodes: usize,
        database: &str,
        options: impl Fn(usize, MariaOptions) -> MariaOptions,
    ) -> Result<Self, SandboxError> {
        locate(PROVIDER, PACKAGE)?;
        let group: Vec<u16> = (0..nodes).map(|_| free_port()).collect();
        let mut cluster = Self {
            nodes: Vec::new(),
            group,
        };
        // All nodes begin with the same data: a joining one is then sent no copy.
        let mut first = PrivateMaria::options().prepare(None).await?;
        cluster.configure(0, &mut first);
        first.launch_with(&["--wsrep-new-cluster".into()]).await?;
        first.create_database(database).await?;
        first.shutdown().await?;
        let data = first.data_dir();
        for number in 0..nodes {
            let options = options(number, PrivateMaria::options());
            let mut node = options.prepare(Some(data.clone())).await?;
            cluster.configure(number, &mut node);
            let begin = (number == 0).then(|| "--wsrep-new-cluster".to_owned());
            node.launch_with(begin.as_slice()).await?;
            cluster.nodes.push(node);
        }
        Ok(cluster)
    }

    /// The address of the group, for an arbitrator that joins it.
    #[must_use]
    pub fn group_address(&self) -> String {
        let hosts = self.group.iter().map(|port| format!("127.0.0.1:{port}"));
        format!("gcomm://{}", hosts.collect::<Vec<_>>().join(","))
    }

    /// Starts a node that was killed or shut down, and waits until it has the data of the others.
    ///
    /// # Errors
    /// If it cannot join: no majority of the cluster is there.
    pub async fn rejoin(&mut self, number: usize) -> Result<(), SandboxError> {
        let node = &mut self.nodes[number];
        // Where a killed node ended is in its tables, not in its state file.
        // Without the second option the purge of rows begins, and may never end: MariaDB 10.11.19 cannot open a table with an
        // indexed virtual column at that point, tries again for ever, and takes all memory.
        let log = node
            .run_to_end(&["--wsrep-recover", "--innodb-force-recovery=2"])
            .await?;
        let position = log.lines().rev().find_map(|line| {
            let (_, position) = line.split_once("Recovered position: ")?;
            Some(position.trim().to_owned())
        });
        let position = position.map(|position| format!("--wsrep-start-position={position}"));
        node.launch_with(position.as_slice()).await
    }

    fn configure(&self, number: usize, node: &mut PrivateMaria) {
        let group = self.group[number];
        let incoming = format!("127.0.0.1:{}", node.port());
        let provider = format!(
            "gmcast.listen_addr=tcp://127.0.0.1:{group};ist.recv_addr=127.0.0.1:{};gcache.size=32M",
            free_port()
        );
        node.set(WSREP);
        for (name, value) in [
            ("wsrep-provider", PROVIDER),
            ("wsrep-provider-options", &provider),
            ("wsrep-cluster-name", "sandbox"),
            ("wsrep-cluster-address", &self.group_address()),
            ("wsrep-node-name", &format!("node{number}")),
            ("wsrep-node-address", &format!("127.0.0.1:{group}")),
            ("wsrep-node-incoming-address", &incoming),
            ("wsrep-sst-method", "mariabackup"),
            ("wsrep-sst-auth", "root:"),
            (
                "wsrep-sst-receive-address",
                &format!("127.0.0.1:{}", free_port()),
            ),
            ("wsrep-slave-threads", "4"),
            ("binlog-format", "ROW"),
            ("innodb-autoinc-lock-mode", "2"),
        ] {
            node.set(&format!("--{name}={value}"));
        }
    }
}
