//! A client that a generator makes from the description of the API.

use std::path::Path;
use std::process::{Command, Output};

use super::rig::Api;
use crate::support::registry;

const SOURCE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../tests/servers/http_api/generated"
);

const DESCRIPTION: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../src/server/http/api/openapi.json"
);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_generated_client_schedules_works_and_operates() {
    let api = Api::start().await;
    let base = api.url("");
    let used = tokio::task::spawn_blocking(move || {
        let home = registry::pip(Path::new(SOURCE));
        let packages = home.join("packages");
        let made = tempfile::tempdir().unwrap();
        let python = |args: &[&str]| -> Output {
            let mut command = Command::new("python3");
            command.args(args).current_dir(made.path());
            let path = std::env::join_paths([packages.as_path(), made.path()]).unwrap();
            command.env("PYTHONPATH", path).output().unwrap()
        };
        let generated = python(&[
            "-m",
            "openapi_python_client",
            "generate",
            "--path",
            DESCRIPTION,
            "--meta",
            "none",
            "--output-path",
            "lapsed_client",
        ]);
        assert!(
            made.path().join("lapsed_client/client.py").exists(),
            "{generated:?}"
        );
        python(&[&format!("{SOURCE}/use.py"), &base])
    });
    let used = used.await.unwrap();
    let errors = String::from_utf8_lossy(&used.stderr);
    assert!(used.status.success(), "{errors}");
    assert_eq!(used.stdout, b"ok\n");
}
