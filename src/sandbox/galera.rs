use std::fs;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use super::SandboxError;
use super::maria::{MariaOptions, PrivateMaria, WSREP};
use super::network::{Machine, PrivateNetwork};
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
    group: Vec<(Ipv4Addr, u16)>,
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
        Self::start_on(&vec![None; nodes], database, options).await
    }

    /// Starts a cluster with a node on each machine of a network.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn start_in(network: &PrivateNetwork, database: &str) -> Result<Self, SandboxError> {
        let machines: Vec<_> = network.machines().iter().map(Some).collect();
        Self::start_on(&machines, database, |_, options| options).await
    }

    async fn start_on(
        machines: &[Option<&Machine>],
        database: &str,
        options: impl Fn(usize, MariaOptions) -> MariaOptions,
    ) -> Result<Self, SandboxError> {
        locate(PROVIDER, PACKAGE)?;
        let host =
            |machine: &Option<&Machine>| machine.map_or(Ipv4Addr::LOCALHOST, |it| it.group_address);
        let group = machines.iter().map(|it| (host(it), free_port())).collect();
        let mut cluster = Self {
            nodes: Vec::new(),
            group,
        };
        // All nodes begin with the same data: a joining one is then sent no copy.
        let alone = Self {
            nodes: Vec::new(),
            group: vec![(Ipv4Addr::LOCALHOST, free_port())],
        };
        let mut first = prepare(alone.options(0), None, None).await?;
        first.launch_with(&["--wsrep-new-cluster".into()]).await?;
        first.create_database(database).await?;
        if machines.iter().any(Option::is_some) {
            first.admit_other_machines().await?;
        }
        first.shutdown().await?;
        let data = first.data_dir();
        for (number, machine) in machines.iter().enumerate() {
            let options = options(number, cluster.options(number));
            let mut node = prepare(options, Some(data.clone()), *machine).await?;
            let begin = (number == 0).then(|| "--wsrep-new-cluster".to_owned());
            node.launch_with(begin.as_slice()).await?;
            cluster.nodes.push(node);
        }
        Ok(cluster)
    }

    /// The address of the group, for an arbitrator that joins it.
    #[must_use]
    pub fn group_address(&self) -> String {
        let hosts = self
            .group
            .iter()
            .map(|(host, port)| format!("{host}:{port}"));
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

    /// Starts a node that was killed or shut down as one without data: `donor` sends it all of its own by `rsync`, and takes
    /// no writes meanwhile. Waits until the node has them.
    ///
    /// # Errors
    /// As [`rejoin`](Self::rejoin); also if `rsync` is not installed.
    pub async fn copy_by_rsync(&mut self, number: usize, donor: usize) -> Result<(), SandboxError> {
        locate("rsync", "rsync")?;
        let node = &mut self.nodes[number];
        let state = node.data_dir().join("grastate.dat");
        fs::remove_file(&state)
            .map_err(SandboxError::io(|| format!("remove `{}`", state.display())))?;
        // As which the receiving `rsync` writes, if root starts it.
        node.belong_to("nobody")?;
        let options = [
            "--wsrep-sst-method=rsync".to_owned(),
            format!("--wsrep-sst-donor=node{donor}"),
        ];
        node.launch_with(&options).await
    }

    /// The options of a node, which those of the test may replace.
    fn options(&self, number: usize) -> MariaOptions {
        let (host, port) = self.group[number];
        let provider = format!(
            "gmcast.listen_addr=tcp://{host}:{port};ist.recv_addr={host}:{};gcache.size=32M",
            free_port()
        );
        [
            ("wsrep-provider", PROVIDER),
            ("wsrep-provider-options", &provider),
            ("wsrep-cluster-name", "sandbox"),
            ("wsrep-cluster-address", &self.group_address()),
            ("wsrep-node-name", &format!("node{number}")),
            ("wsrep-node-address", &format!("{host}:{port}")),
            ("wsrep-sst-method", "mariabackup"),
            ("wsrep-sst-auth", "root:"),
            (
                "wsrep-sst-receive-address",
                &format!("{host}:{}", free_port()),
            ),
            ("wsrep-slave-threads", "4"),
            ("binlog-format", "ROW"),
            ("innodb-autoinc-lock-mode", "2"),
        ]
        .into_iter()
        .fold(PrivateMaria::options(), |options, (name, value)| {
            options.set(name, value)
        })
    }
}

/// A node that does not run yet, on this machine or on one of a network.
async fn prepare(
    options: MariaOptions,
    data: Option<PathBuf>,
    machine: Option<&Machine>,
) -> Result<PrivateMaria, SandboxError> {
    let mut node = options.prepare(data).await?;
    if let Some(machine) = machine {
        node.place(machine)?;
    }
    node.set(WSREP);
    let incoming = format!("{}:{}", node.host(), node.port());
    node.set(&format!("--wsrep-node-incoming-address={incoming}"));
    Ok(node)
}
