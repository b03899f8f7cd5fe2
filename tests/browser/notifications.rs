//! Notifications of the desktop when the state of the installation turns bad.

use serde_json::{Value, json};

use crate::browser::Browser;
use crate::daemon::Daemon;
use crate::support::wait::until;

/// Tasks of `Push` wait for a worker.
const SETTINGS: &str = r#"
alerts.overdue = "4s"
[[routes]]
match = '^Push@'
pull = { queue = "push" }
"#;

/// Keeps the titles of the notifications that the page makes.
const RECORD: &str = "window.told = [];
    const real = window.Notification;
    window.Notification = class extends real {
        constructor(title, options) { super(title, options); told.push(title); }
    };";

/// Another window covers the page.
const HIDE: &str = "Object.defineProperty(document, 'hidden', { get: () => true });
    document.dispatchEvent(new Event('visibilitychange'));";

/// The notifications of each window.
async fn told(browser: &Browser, windows: usize) -> Vec<Vec<String>> {
    let mut all = Vec::new();
    for window in 0..windows {
        browser.go_to_window(window).await;
        let titles = browser.get("return told").await;
        all.push(serde_json::from_value(titles).unwrap());
    }
    all
}

/// Waits until a window has read that the state is this.
async fn reads(browser: &Browser, window: usize, state: &str) {
    browser.go_to_window(window).await;
    until(format!("window {window} reads `{state}`"), async || {
        let read = "return document.querySelector('[data-state]')?.dataset.state";
        browser.get(read).await == state
    })
    .await;
}

#[tokio::test]
async fn one_window_of_many_notifies_when_the_state_turns_bad_and_only_if_it_was_asked_to() {
    let daemon = Daemon::listen(SETTINGS).await;
    let browser = Browser::open_with_notifications(&daemon, "/").await;
    browser.open_another("/tasks").await;
    browser.open_another("/upcoming").await;
    let windows = 3;
    for window in 0..windows {
        reads(&browser, window, "good").await;
        browser.get(RECORD).await;
    }
    let switched_on = "return document.querySelector('#notify input').checked";
    assert_eq!(browser.get(switched_on).await, false);

    let turns_bad = async || {
        daemon.schedule([json!({"key": "Push@notify@1", "in": "0s"})]);
        for window in 0..windows {
            reads(&browser, window, "bad").await;
        }
    };
    turns_bad().await;
    assert_eq!(told(&browser, windows).await.concat(), [""; 0]);

    daemon.run(&["cancel", "Push@notify@1"]);
    for window in 0..windows {
        reads(&browser, window, "good").await;
    }
    browser.click("#notify", "Notify me").await;
    assert_eq!(browser.get(switched_on).await, true);
    browser.go_to_window(0).await;
    until("the other windows have the switch on, too", async || {
        browser.get(switched_on).await == Value::Bool(true)
    })
    .await;
    // Nobody looks at any of them.
    for window in 0..windows {
        browser.go_to_window(window).await;
        browser.get(HIDE).await;
    }
    turns_bad().await;
    let said = told(&browser, windows).await.concat();
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].starts_with("Overdue tasks: 1"), "{said:?}");
    browser.close().await;
}
