//! HAProxy in front of the nodes of a replicated server, with the configuration and the checks of
//! docs/replicated-mysql.md.

use std::fs::{self, File, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use lapsed_sandbox::PrivateMaria;
use sqlx::{Connection, MySqlConnection};
use tempfile::TempDir;

use crate::pages::block::blocks;
use crate::support::wait::until;

/// Ends with this value.
pub struct Balancer {
    process: Child,
    directory: TempDir,
    url: String,
}

/// How the balancer finds the node that is written to.
pub struct Check {
    /// A word of its script on the page.
    pub word: &'static str,
    /// SQL: creates its user.
    pub user: &'static str,
}

impl Balancer {
    /// `user` is who connects through it to the database `lapsed`.
    pub async fn start(nodes: &[PrivateMaria], check: &Check, user: &str) -> Self {
        let mut connection = MySqlConnection::connect(&nodes[0].url("lapsed"))
            .await
            .unwrap();
        sqlx::raw_sql(check.user)
            .execute(&mut connection)
            .await
            .unwrap();
        let directory = TempDir::new().unwrap();
        let program = directory.path().join("is-the-writer");
        write_program(&program, &block("sh", check.word));
        let port = free_port();
        let mut text = block("haproxy", "")
            .replace("/usr/local/bin/galera-is-synced", program.to_str().unwrap())
            .replace("127.0.0.1:3307", &format!("127.0.0.1:{port}"));
        for (number, node) in nodes.iter().enumerate() {
            let address = format!("10.0.0.{}:3306", number + 1);
            assert!(text.contains(&address), "{text}");
            text = text.replace(&address, &format!("{}:{}", node.host(), node.port()));
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
            url: format!("mysql://{user}@127.0.0.1:{port}/lapsed"),
        };
        until("a node is the writer", async || {
            balancer.writer().await.is_some()
        })
        .await;
        balancer
    }

    /// The URL of the database, on the writer.
    pub fn url(&self) -> String {
        self.url.clone()
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

/// The first block of the page in this language that has the word.
fn block(language: &str, word: &str) -> String {
    let mut blocks = blocks("docs/replicated-mysql.md").into_iter();
    let block = blocks.find(|block| block.language == language && block.text.contains(word));
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

pub fn free_port() -> u16 {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    socket.local_addr().unwrap().port()
}
