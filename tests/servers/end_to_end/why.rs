//! Why a task has not run, as the command line and the daemons of a ledger say.

use serde_json::Value;

use crate::support::http_client;
use crate::support::process::{Process, config_file};
use crate::support::rig::Rig;
use crate::support::setup::Setup;
use crate::support::shell::Shell;
use crate::support::wait::until;

const MAIL: &str = "[[routes]]\nmatch = '^Mail@'\npull = { queue = 'mail' }\n";
const REPORT: &str = "[[routes]]\nmatch = '^Report@'\nlog = {}\n";

/// A daemon with these routes beside those of the rig.
fn listen_also(rig: &Rig, routes: &str) -> Process {
    let config = config_file(rig);
    let text = std::fs::read_to_string(config.path()).unwrap();
    std::fs::write(config.path(), format!("{text}\n{routes}")).unwrap();
    Process::listen_with(config, &[("LAPSED__HTTP__LISTEN", "127.0.0.1:0")])
}

/// What the HTTP API of a daemon answers.
async fn asked(daemon: &Process, key: &str) -> Value {
    let address = daemon.address("http").await;
    let answer = http_client::client()
        .get(format!("http://{address}/v1/tasks/{key}/why"))
        .send()
        .await;
    serde_json::from_str(&answer.unwrap().text().await.unwrap()).unwrap()
}

async fn overdue(rig: &Rig, key: &str) {
    rig.run_sql(&format!(
        "INSERT INTO tb_time_limit_task (`key`, start_time, end_time) VALUES ('{key}', 1, UNIX_TIMESTAMP() - 300)"
    ))
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_daemon_of_several_warns_of_a_queue_without_workers_and_all_report_it() {
    let rig = Setup::new(MAIL).start().await;
    overdue(&rig, "Mail@send@1").await;
    let daemons = [listen_also(&rig, ""), listen_also(&rig, "")];
    const WARNING: &str = "overdue tasks wait for workers";
    let warned = || {
        let logs = daemons
            .iter()
            .map(|daemon| daemon.log().matches(WARNING).count());
        logs.sum::<usize>()
    };
    until("one warns", async || warned() > 0).await;
    let shell = Shell::of(&rig);
    let why = shell.json(&["why", "Mail@send@1"]);
    for why in [
        why,
        asked(&daemons[0], "Mail@send@1").await,
        asked(&daemons[1], "Mail@send@1").await,
    ] {
        assert_eq!(why["cause"], "no_worker", "{why}");
        let text = why["text"].as_str().unwrap();
        let said = text.starts_with("No worker asks any daemon for the queue `mail` since 20");
        assert!(said, "{why}");
        assert_eq!(why["remedy"], "Start the workers of the queue.");
        assert!(why["since"].is_string(), "{why}");
    }
    let said = shell.text(&["why", "Mail@send@1"]);
    assert!(
        said.ends_with("\n-> Start the workers of the queue.\n"),
        "{said}"
    );
    // The other one has counted, too, before it is looked at again.
    for daemon in &daemons {
        let counted = async || daemon.log().contains(WARNING) || is_quiet(daemon, WARNING).await;
        assert!(counted().await);
    }
    assert_eq!(warned(), 1);
}

/// True if a daemon has counted twice since its start, and has not logged this.
async fn is_quiet(daemon: &Process, text: &str) -> bool {
    let address = daemon.address("http").await;
    let client = http_client::client();
    until("it has counted twice", async || {
        let page = client.get(format!("http://{address}/metrics")).send().await;
        let page = page.unwrap().text().await.unwrap();
        let line = page
            .lines()
            .find(|line| line.starts_with("lapsed_overdue_seconds_max "));
        // The second pass is 15 s after the start; a task that was overdue for 300 s then is so for longer.
        line.is_some_and(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap() > 316.0)
    })
    .await;
    !daemon.log().contains(text)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_says_whether_any_daemon_has_a_route_for_it_and_which_one_is_gone() {
    let rig = Setup::new(MAIL).start().await;
    overdue(&rig, "Report@build@1").await;
    let shell = Shell::of(&rig);
    let why = |key: &str| shell.json(&["why", key]);
    assert_eq!(why("Report@build@1")["cause"], "no_daemon");
    let daemon = listen_also(&rig, "");
    until("the daemon is known", async || {
        why("Report@build@1")["cause"] == "no_route"
    })
    .await;
    assert_eq!(asked(&daemon, "Report@build@1").await["cause"], "no_route");
    rig.run_sql("UPDATE tb_time_limit_task SET end_time = UNIX_TIMESTAMP() + 3600")
        .await;
    let later = why("Report@build@1");
    assert_eq!(
        (&later["cause"], &later["then"]["cause"]),
        (&"not_due".into(), &"no_route".into())
    );
    let mut other = listen_also(&rig, REPORT);
    until("it has a route now", async || {
        why("Report@build@1")["then"].is_null()
    })
    .await;
    until("the daemon knows of the other", async || {
        asked(&daemon, "Report@build@1").await["then"].is_null()
    })
    .await;
    other.kill();
    let name = format!(":{}/", other.id());
    for by_api in [false, true] {
        until("the other is missed", async || {
            let why = match by_api {
                true => asked(&daemon, "Report@build@1").await,
                false => why("Report@build@1"),
            };
            why["then"]["cause"] == "away" && why["then"]["text"].as_str().unwrap().contains(&name)
        })
        .await;
    }
    shell.run(&["pause", "Report", "--reason", "books are closed"]);
    let paused = why("Report@build@1");
    assert_eq!(paused["then"]["cause"], "paused");
    let text = paused["then"]["text"].as_str().unwrap();
    assert!(text.contains(": books are closed."), "{text}");
    shell.run(&["cancel", "Report@build@1"]);
    assert_eq!(why("Report@build@1")["cause"], "ended");
    let (code, _, stderr) = shell.run(&["why", "None@x"]);
    assert_eq!(code, 1);
    assert!(stderr.contains("there is no task `None@x`"), "{stderr}");
}
