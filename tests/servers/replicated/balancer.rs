//! What stands beside the nodes of a Galera cluster: HAProxy, with the configuration and the check of
//! docs/replicated-mysql.md, and an arbitrator.

use std::fs::{self, File, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use lapsed_sandbox::PrivateGalera;
use sqlx::{Connection, MySqlConnection};
use tempfile::TempDir;

use crate::pages::block::blocks;
use crate::support::wait::until;

/// Ends with this value.
pub struct Balancer {
    process: Child,
    directory: TempDir,
    port: u16,
}

impl Balancer {
    pub async fn start(cluster: &PrivateGalera) -> Self {
        let mut connection = MySqlConnection::connect(&cluster.nodes[0].url("lapsed"))
            .await
            .unwrap();
        sqlx::raw_sql("CREATE USER haproxy IDENTIFIED BY 'secret'")
            .execute(&mut connection)
            .await
            .unwrap();
        let directory = TempDir::new().unwrap();
        let check = directory.path().join("galera-is-synced");
        write_program(&check, &block("sh"));
        let port = free_port();
        let mut text = block("haproxy")
            .replace("/usr/local/bin/galera-is-synced", check.to_str().unwrap())
            .replace("127.0.0.1:3307", &format!("127.0.0.1:{port}"));
        for (number, node) in cluster.nodes.iter().enumerate() {
            let address = format!("10.0.0.{}:3306", number + 1);
            assert!(text.contains(&address), "{text}");
            text = text.replace(&address, &format!("127.0.0.1:{}", node.port()));
        }
        let file = directory.path().join("haproxy.cfg");
        fs::write(&file, text).unwrap();
        let process = Command::new("/usr/sbin/haproxy")
            .arg("-f")
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(directory.path().join("log")).unwrap())
            .spawn()
            .expect("haproxy starts");
        let balancer = Self {
            process,
            directory,
            port,
        };
        until("a node is the writer", async || {
            balancer.writer().await.is_some()
        })
        .await;
        balancer
    }

    /// The URL of the database, on the writer.
    pub fn url(&self) -> String {
        format!("mysql://root@127.0.0.1:{}/lapsed", self.port)
    }

    /// The port of the node to which a new connection leads.
    pub async fn writer(&self) -> Option<u16> {
        let mut connection = MySqlConnection::connect(&self.url()).await.ok()?;
        let port: Result<i64, _> = sqlx::query_scalar("SELECT CAST(@@port AS SIGNED)")
            .fetch_one(&mut connection)
            .await;
        port.ok().map(|port| u16::try_from(port).unwrap())
    }
}

/// The block of this language in the page.
fn block(language: &str) -> String {
    let mut blocks = blocks("docs/replicated-mysql.md").into_iter();
    let block = blocks.find(|block| block.language == language);
    block.expect("the page has such a block").text
}

/// Writes a script that can be run.
pub fn write_program(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
}

impl Drop for Balancer {
    fn drop(&mut self) {
        // Shown if the test fails.
        let log = fs::read_to_string(self.directory.path().join("log"));
        println!("haproxy: {}", log.unwrap_or_default());
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A member of the cluster without data, which only votes. Ends with this value.
pub struct Arbitrator {
    process: Child,
    /// It writes its view of the cluster to where it is started.
    _directory: TempDir,
}

impl Arbitrator {
    pub fn start(cluster: &PrivateGalera) -> Self {
        let port = free_port();
        let directory = TempDir::new().unwrap();
        let process = Command::new("garbd")
            .current_dir(directory.path())
            .arg(format!("--address={}", cluster.group_address()))
            .arg("--group=sandbox")
            .arg(format!(
                "--options=gmcast.listen_addr=tcp://127.0.0.1:{port}"
            ))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Self {
            process: process.expect("garbd starts"),
            _directory: directory,
        }
    }
}

impl Drop for Arbitrator {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn free_port() -> u16 {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    socket.local_addr().unwrap().port()
}
