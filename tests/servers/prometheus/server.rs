//! A Prometheus server that scrapes a daemon.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::rule_tests::rules;
use crate::support::process::{Process, config_file};
use crate::support::rig::Rig;
use crate::support::wait::{DEADLINE, until};

/// A server with the rules that users get; killed on drop.
struct Prometheus {
    child: Child,
    directory: TempDir,
    port: u16,
}

impl Prometheus {
    fn start(scraped: u16) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let config = directory.path().join("prometheus.yml");
        let text = format!(
            "global: {{ scrape_interval: 1s, evaluation_interval: 1s }}\nrule_files: ['{}']\n\
             scrape_configs:\n- job_name: lapsed\n  static_configs: [{{ targets: ['127.0.0.1:{scraped}'] }}]\n",
            rules().display()
        );
        fs::write(&config, text).unwrap();
        let port = free_port();
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!(
                "--storage.tsdb.path={}",
                directory.path().join("data").display()
            ))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .stdout(Stdio::null())
            .stderr(fs::File::create(directory.path().join("log")).unwrap())
            .spawn()
            .expect("`prometheus` runs; scripts/install-servers --tests installs it");
        Self {
            child,
            directory,
            port,
        }
    }

    /// The answer of the API; `None` while it is not ready.
    async fn ask(&self, path: &str, query: &[(&str, &str)]) -> Option<Value> {
        let url = format!("http://127.0.0.1:{}/api/v1/{path}", self.port);
        let url = url::Url::parse_with_params(&url, query).unwrap();
        let target = &url[url::Position::BeforePath..];
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await.ok()?;
        let request = format!("GET {target} HTTP/1.0\r\n\r\n");
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.ok()?;
        serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()
    }

    /// The value of a series; `None` if there is none.
    async fn value(&self, query: &str) -> Option<String> {
        let answer = self.ask("query", &[("query", query)]).await?;
        Some(answer["data"]["result"][0]["value"][1].as_str()?.to_owned())
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// The queries of the dashboard, with its variables filled in.
fn dashboard_queries() -> Vec<String> {
    fn walk(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                found.extend(
                    fields
                        .get("expr")
                        .and_then(Value::as_str)
                        .map(str::to_owned),
                );
                fields.values().for_each(|value| walk(value, found));
            }
            Value::Array(values) => values.iter().for_each(|value| walk(value, found)),
            _ => {}
        }
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/grafana/dashboard.json");
    let dashboard: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    let mut found = Vec::new();
    walk(&dashboard, &mut found);
    let filled = found.iter().map(|query| query.replace("$job", "lapsed"));
    filled
        .map(|query| query.replace("$__rate_interval", "5s"))
        .collect()
}

#[tokio::test]
async fn prometheus_scrapes_a_daemon_takes_the_rules_and_answers_the_dashboard() {
    let port = free_port();
    let rig = Rig::new(&format!("http.listen = '127.0.0.1:{port}'")).await;
    let mut daemon = Process::listen_with(config_file(&rig), &[]);
    let prometheus = Prometheus::start(port);
    until("the daemon is scraped", async || {
        prometheus.value("lapsed_ledger_up").await.as_deref() == Some("1")
    })
    .await;

    let loaded = prometheus.ask("rules", &[]).await.unwrap();
    let rules = loaded["data"]["groups"][0]["rules"]
        .as_array()
        .unwrap()
        .clone();
    assert_eq!(rules.len(), 13, "{loaded}");
    let errors = rules.iter().filter(|rule| rule["health"] == "err").count();
    assert_eq!(errors, 0, "{loaded}");

    let queries = dashboard_queries();
    assert!(queries.len() > 10, "{queries:?}");
    for query in queries {
        let answer = prometheus.ask("query", &[("query", &query)]).await.unwrap();
        assert_eq!(answer["status"], "success", "{query}: {answer}");
    }

    daemon.kill();
    let down = async || prometheus.value("up").await.as_deref() == Some("0");
    let noticed = tokio::time::timeout(DEADLINE, async { until("it is down", down).await }).await;
    assert!(noticed.is_ok(), "{}", prometheus.log());
}
