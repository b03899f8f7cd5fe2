//! The Unix socket of the RESP server: its file, who may connect, and what another program has left there.

use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;

use crate::support::not_tried::not_tried;
use crate::support::process::Process;
use crate::support::program::said;
use crate::support::wait::until;

/// A daemon on a file in this directory, with its socket there.
async fn listening(directory: &Path, settings: &str) -> Process {
    let daemon = started(directory, settings);
    daemon.until_logged("serving Redis clients").await;
    daemon
}

fn started(directory: &Path, settings: &str) -> Process {
    let socket = directory.join("resp.sock");
    let settings = format!(
        "http.listen = ''\nresp.socket = '{}'\n{settings}",
        socket.display()
    );
    Process::on_a_file(directory, &settings)
}

/// What `redis-cli` prints.
fn ask(socket: &Path, words: &[&str]) -> String {
    let mut cli = Command::new("redis-cli");
    let (code, stdout, stderr) = said(cli.arg("-s").arg(socket).args(words).output().unwrap());
    assert_eq!(code, 0, "{stderr}");
    stdout.trim().to_owned()
}

#[tokio::test]
async fn a_client_of_the_socket_schedules_a_task_and_the_file_goes_with_the_daemon() {
    let place = tempfile::tempdir().unwrap();
    let socket = place.path().join("resp.sock");
    let route = "[[routes]]\nmatch = '^Job@'\nlog = {}";
    let mut daemon = listening(place.path(), route).await;
    let file = std::fs::metadata(&socket).unwrap();
    assert!(file.file_type().is_socket());
    assert_eq!(file.mode() & 0o7777, 0o660);
    assert_eq!(ask(&socket, &["SETEX", "Job@socket@1", "1", ""]), "OK");
    daemon.until_logged("task.key=Job@socket@1").await;
    // It counts as a client of this machine.
    let client = ask(&socket, &["CLIENT", "INFO"]);
    assert!(client.contains(" addr=127.0.0.1:0 "), "{client}");
    assert!(ask(&socket, &["INFO", "server"]).contains("tcp_port:0"));
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.until_ended().await.code(), Some(0));
    assert!(!socket.exists());
}

#[tokio::test]
async fn the_socket_of_a_daemon_that_was_killed_is_replaced_and_that_of_a_living_one_is_not() {
    let place = tempfile::tempdir().unwrap();
    let socket = place.path().join("resp.sock");
    let mut killed = listening(place.path(), "").await;
    killed.signal(Signal::KILL);
    killed.until_ended().await;
    assert!(socket.exists());
    let _daemon = listening(place.path(), "").await;
    assert_eq!(ask(&socket, &["PING"]), "PONG");

    // Of another program: a ledger in a file has one daemon.
    let other = tempfile::tempdir().unwrap();
    let taken = other.path().join("resp.sock");
    let _living = UnixListener::bind(&taken).unwrap();
    let mut refused = started(other.path(), "");
    assert_eq!(refused.until_ended().await.code(), Some(1));
    let expected = format!(
        "cannot listen on `{}` (`resp.socket`): another program answers there",
        taken.display()
    );
    refused.until_logged(&expected).await;
    assert!(taken.exists());
}

#[tokio::test]
async fn a_file_that_is_no_socket_is_left_alone() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("resp.sock");
    std::fs::write(&file, "mine").unwrap();
    let mut refused = started(place.path(), "");
    assert_eq!(refused.until_ended().await.code(), Some(1));
    refused
        .until_logged("there is a file that is not a socket")
        .await;
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
}

/// A daemon that stops removes only a file of its own.
#[tokio::test]
async fn the_socket_that_another_program_has_put_there_stays() {
    let place = tempfile::tempdir().unwrap();
    let socket = place.path().join("resp.sock");
    let mut daemon = listening(place.path(), "").await;
    std::fs::remove_file(&socket).unwrap();
    let _other = UnixListener::bind(&socket).unwrap();
    daemon.signal(Signal::TERM);
    daemon.until_ended().await;
    assert!(socket.exists());
}

#[tokio::test]
async fn the_mode_of_the_file_says_who_may_connect() {
    if !rustix::process::geteuid().is_root() {
        let what = "another user, which needs root";
        return not_tried("the_mode_of_the_file_says_who_may_connect", what);
    }
    let as_another_user = |socket: &Path| {
        let mut cli = Command::new("setpriv");
        cli.args(["--reuid=65532", "--regid=65532", "--clear-groups"]);
        cli.args(["redis-cli", "-s"]).arg(socket).arg("PING");
        let (_, stdout, stderr) = said(cli.output().unwrap());
        stdout + &stderr
    };
    for (settings, expected) in [
        ("", "Permission denied"),
        ("resp.socket_mode = '666'", "PONG"),
    ] {
        let place = tempfile::tempdir().unwrap();
        // Others may look into the directory.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(place.path(), open).unwrap();
        let _daemon = listening(place.path(), settings).await;
        let socket = place.path().join("resp.sock");
        until("the socket answers", async || {
            ask(&socket, &["PING"]) == "PONG"
        })
        .await;
        let answer = as_another_user(&socket);
        assert!(answer.contains(expected), "{settings}: {answer}");
    }
}
