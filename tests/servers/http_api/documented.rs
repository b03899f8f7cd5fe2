//! The endpoints that docs/http.md names.

use super::rig::Api;

const PAGE: &str = include_str!("../../../docs/http.md");

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
