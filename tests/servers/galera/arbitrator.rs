//! A member of a Galera cluster without data.

use std::process::{Child, Command, Stdio};

use lapsed_sandbox::PrivateGalera;
use tempfile::TempDir;

use crate::replicated::balancer::free_port;

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
