//! The commands of docs/http.md, as they are.

use std::process::Command;

use super::rig::Api;

const PAGE: &str = include_str!("../../../docs/http.md");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_commands_of_the_page_work() {
    let api = Api::start().await;
    let blocks = PAGE.split("```sh\n").skip(1);
    let script: String = blocks
        .map(|block| block.split("```").next().unwrap())
        .collect();
    let script = script.replace("http://127.0.0.1:8787", &api.url(""));
    assert!(script.matches("curl ").count() > 25, "{script}");
    let run = tokio::task::spawn_blocking(move || {
        Command::new("bash")
            .args(["-e", "-x", "-o", "pipefail", "-c", &script])
            .output()
            .expect("bash is there")
    });
    let ended = run.await.unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        ended.status.success(),
        "{}\n{}",
        text(&ended.stdout),
        text(&ended.stderr)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_names_every_endpoint_of_the_description() {
    let api = Api::start().await;
    let description = api.get("/openapi.json").await.json();
    let paths = description["paths"].as_object().unwrap();
    assert!(paths.len() > 15);
    for (path, methods) in paths {
        for method in methods.as_object().unwrap().keys() {
            let request = format!("`{} {path}`", method.to_uppercase());
            assert!(PAGE.contains(&request), "docs/http.md lacks {request}");
        }
    }
}
