//! Several daemons of one ledger: what the pages of one say of the others.

use serde_json::json;

use crate::browser::Browser;
use crate::daemon::{Daemon, Servers};
use crate::support::wait::until;

const MAIL: &str = "[[routes]]\nmatch = '^Mail@'\npull = { queue = 'mail', visibility = '1s' }\n";
const PUSH: &str = "[[routes]]\nmatch = '^Push@'\npull = { queue = 'push' }\n";

/// What the page says of the workers of other daemons for a queue: daemon, workers, waiting, last asked.
async fn elsewhere(browser: &Browser, queue: &str) -> Vec<String> {
    let cells = format!(
        "return [...document.querySelectorAll('table[aria-label$=\": {queue}\"] tbody tr > *')].map(it => it.innerText)"
    );
    let cells = browser.get(&cells).await;
    serde_json::from_value(cells).unwrap()
}

async fn until_workers(browser: &Browser, queue: &str, workers: &str, waiting: &str) {
    let said = format!("{workers} workers of another daemon, {waiting} of them waiting");
    until(said, async || {
        let cells = elsewhere(browser, queue).await;
        cells.get(1..3) == Some(&[workers.to_owned(), waiting.to_owned()])
    })
    .await;
}

#[tokio::test]
async fn the_queues_of_a_daemon_show_the_workers_of_the_others() {
    let servers = Servers::start().await;
    let first = servers.listen(MAIL).await;
    let second = servers.listen(&format!("{MAIL}{PUSH}")).await;
    let browser = Browser::open(&first, "/queues").await;
    browser.shows("No worker has asked this daemon").await;
    let workers = [second.worker("mail"), second.worker("push")];
    until_workers(&browser, "mail", "1", "1").await;
    until_workers(&browser, "push", "1", "1").await;
    browser
        .shows("No route of this daemon has this queue")
        .await;
    browser.picture("queues-fleet").await;
    browser.check("queues-fleet").await;
    // The tasks of the queue go there.
    first.schedule((0..20).map(|n| json!({"key": format!("Mail@send@{n}"), "in": "0s"})));
    first.until_listed("done", 20).await;
    let why = |daemon: &Daemon| {
        let body = json!({"key": "Mail@send@later", "in": "1h"});
        let created = daemon.call("/v1/tasks", body);
        let origin = daemon.origin.clone();
        async move {
            created.await;
            let url = format!("{origin}/v1/tasks/Mail@send@later/why");
            let text = crate::driver::client().get(url).send().await.unwrap();
            text.text().await.unwrap()
        }
    };
    // While a worker is busy for longer than its lease, no worker is known to ask.
    until(
        "the first daemon knows that a worker asks the second one",
        async || {
            let asked = why(&first).await;
            assert!(asked.contains("\"cause\":\"not_due\""), "{asked}");
            !asked.contains("no_worker")
        },
    )
    .await;
    until("the page knows it, too", async || {
        !browser.text().await.contains("No worker asks")
    })
    .await;
    // No worker is left.
    drop(workers);
    until_workers(&browser, "mail", "0", "0").await;
    first.schedule([json!({"key": "Mail@send@last", "in": "0s"})]);
    browser
        .shows("No worker asks any daemon for the queue `mail` since")
        .await;
    browser.close().await;
}

#[tokio::test]
async fn daemons_without_heartbeats_say_that_they_know_of_no_others() {
    let servers = Servers::start().await;
    let settings = format!("timer = 'ledger_poll'\n{MAIL}");
    let first = servers.listen(&settings).await;
    let second = servers.listen(&settings).await;
    let browser = Browser::open(&first, "/queues").await;
    browser
        .shows("The daemons of this ledger do not know of each other")
        .await;
    // A worker of the other daemon gets the tasks: nothing is said against it here.
    let worker = second.worker("mail");
    first.schedule([
        json!({"key": "Mail@send@1", "in": "0s"}),
        json!({"key": "Mail@send@later", "in": "1h"}),
    ]);
    first.until_listed("done", 1).await;
    browser.go("/task?key=Mail%40send%40later").await;
    browser.shows("Mail@send@later").await;
    let page = browser.text().await;
    assert!(!page.contains("No worker asks"), "{page}");
    drop(worker);
    first.schedule([json!({"key": "Mail@send@2", "in": "0s"})]);
    browser.go("/queues").await;
    browser
        .shows("No worker asks the daemon that answers for the queue `mail`")
        .await;
    browser.picture("queues-unknown").await;
    browser.close().await;
}
