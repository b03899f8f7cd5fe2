//! What fails a browser test.

use crate::browser::{Browser, VIEWS};
use crate::daemon::Daemon;

/// Opens the first page and changes it.
async fn changed_by(script: &str) -> (Daemon, Browser) {
    let daemon = Daemon::start("");
    let browser = Browser::open(&daemon, "/").await;
    browser.view(VIEWS[3]).await;
    browser.get(script).await;
    (daemon, browser)
}

#[tokio::test]
#[should_panic(expected = "an error of the page")]
async fn an_error_on_the_console_fails_a_test() {
    let (_daemon, browser) = changed_by("console.error('an error of the page')").await;
    browser.close().await;
}

#[tokio::test]
#[should_panic(expected = "image-alt")]
async fn an_image_without_a_text_fails_a_test() {
    let (_daemon, browser) = changed_by("document.body.append(new Image(9, 9))").await;
    browser.check("the page").await;
}

#[tokio::test]
#[should_panic(expected = "wider than the window")]
async fn a_page_that_is_wider_than_a_phone_fails_a_test() {
    let (_daemon, browser) = changed_by("document.body.style.width = '1000px'").await;
    browser.check("the page").await;
}
