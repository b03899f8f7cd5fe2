//! A person at a browser: looks for things by what they say, and waits for what is to come.

use std::cell::{Cell, RefCell};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::axe;
use crate::daemon::Daemon;
use crate::driver::{Chromium, Driver, Element};
use crate::support::wait::until;

/// Browsers at a time: each uses a core while it starts.
static BROWSERS: Semaphore = Semaphore::const_new(4);

/// Most bytes of a page with all that it loads.
const PAGE_BYTES_MAX: u64 = 150_000;

/// Finds the first visible element of a selector with a text, which may be empty.
const FIND: &str = "const [selector, text] = arguments;
    const found = [...document.querySelectorAll(selector)].filter(element => element.checkVisibility());
    const says = element => (element.innerText || element.getAttribute('aria-label') || '').trim();
    return found.find(element => says(element) === text)
        ?? found.find(element => says(element).includes(text)) ?? null;";

/// Bytes of the page and of what it has loaded, as transferred.
const BYTES: &str = "const kinds = ['navigation', 'resource'];
    const loaded = kinds.flatMap(kind => performance.getEntriesByType(kind));
    return loaded.reduce((bytes, entry) => bytes + entry.encodedBodySize, 0);";

/// A window in which the dashboard is looked at.
#[derive(Debug, Clone, Copy)]
pub struct View {
    pub device: &'static str,
    width: u32,
    height: u32,
    pub scheme: &'static str,
}

/// All views that pages are made for.
pub const VIEWS: [View; 4] = [
    View::desktop("light"),
    View::desktop("dark"),
    View::phone("light"),
    View::phone("dark"),
];

impl View {
    const fn desktop(scheme: &'static str) -> Self {
        Self {
            device: "desktop",
            width: 1280,
            height: 800,
            scheme,
        }
    }

    const fn phone(scheme: &'static str) -> Self {
        Self {
            device: "phone",
            width: 390,
            height: 844,
            scheme,
        }
    }
}

/// A browser on the dashboard of a daemon. To be [closed](Self::close).
pub struct Browser {
    driver: Driver,
    origin: String,
    /// Beginnings of messages of the console that a test expects.
    expected: RefCell<Vec<String>>,
    is_closed: Cell<bool>,
    /// Of the window.
    width: Cell<u32>,
    _permit: SemaphorePermit<'static>,
}

impl Browser {
    /// Opens a page in English on a desktop.
    pub async fn open(daemon: &Daemon, path: &str) -> Self {
        Self::open_in("en", daemon, path).await
    }

    /// Opens a page in a language.
    pub async fn open_in(language: &str, daemon: &Daemon, path: &str) -> Self {
        Self::start(Chromium::HeadlessShell, language, daemon, path).await
    }

    /// Opens a page in a browser in which the user allows pages of this daemon to notify.
    pub async fn open_with_notifications(daemon: &Daemon, path: &str) -> Self {
        let this = Self::start(Chromium::Whole, "en", daemon, path).await;
        let allowed = json!({"origin": this.origin, "permissions": ["notifications"]});
        let granted = this.driver.devtools("Browser.grantPermissions", allowed);
        granted.await;
        this
    }

    async fn start(chromium: Chromium, language: &str, daemon: &Daemon, path: &str) -> Self {
        let permit = BROWSERS.acquire().await.expect("it is never closed");
        let this = Self {
            driver: Driver::start(chromium, language).await,
            origin: daemon.origin.clone(),
            expected: RefCell::default(),
            is_closed: Cell::new(false),
            width: Cell::new(VIEWS[0].width),
            _permit: permit,
        };
        this.view(VIEWS[0]).await;
        this.go(path).await;
        this
    }

    /// Opens another window with a page.
    pub async fn open_another(&self, path: &str) {
        self.driver.open_window().await;
        self.go(path).await;
    }

    /// Goes to a window that was opened before, counted from 0.
    pub async fn go_to_window(&self, number: usize) {
        self.driver.go_to_window(number).await;
    }

    /// Loads a page, given by its path and query.
    pub async fn go(&self, path: &str) {
        self.driver
            .navigate(&format!("{}{path}", self.origin))
            .await;
    }

    /// Changes the window and the colour scheme of the system.
    pub async fn view(&self, view: View) {
        let View {
            width,
            height,
            scheme,
            device,
        } = view;
        self.width.set(width);
        let window = json!({
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": device == "phone",
        });
        let scheme = json!({"name": "prefers-color-scheme", "value": scheme});
        let driver = &self.driver;
        driver
            .devtools("Emulation.setDeviceMetricsOverride", window)
            .await;
        driver
            .devtools("Emulation.setEmulatedMedia", json!({"features": [scheme]}))
            .await;
    }

    /// The browser is in this time zone from now on.
    pub async fn move_to_zone(&self, zone: &str) {
        let zone = json!({"timezoneId": zone});
        self.driver
            .devtools("Emulation.setTimezoneOverride", zone)
            .await;
    }

    /// Runs no JavaScript of pages from now on.
    pub async fn switch_scripts_off(&self) {
        let off = json!({"value": true});
        self.driver
            .devtools("Emulation.setScriptExecutionDisabled", off)
            .await;
    }

    /// The path and query of the page.
    pub async fn path(&self) -> String {
        let path = "return location.pathname + location.search";
        self.get(path).await.as_str().unwrap().to_owned()
    }

    /// The visible text of the page.
    pub async fn text(&self) -> String {
        self.text_of("body").await
    }

    /// The visible text of the first element of a selector; empty if there is none.
    pub async fn text_of(&self, selector: &str) -> String {
        let body = "return document.querySelector(arguments[0])?.innerText ?? ''";
        let text = self.driver.execute(body, json!([selector])).await;
        let text = text.unwrap_or_default();
        text.as_str().unwrap_or_default().to_owned()
    }

    /// What a function body returns in the page.
    pub async fn get(&self, body: &str) -> Value {
        let got = self.driver.execute(body, json!([])).await;
        got.unwrap_or_else(|refusal| panic!("`{body}`: {refusal:?}"))
    }

    /// Waits until the page shows a text.
    pub async fn shows(&self, text: &str) {
        let path = self.path().await;
        until(format!("`{path}` shows `{text}`"), async || {
            self.text().await.contains(text)
        })
        .await;
    }

    /// Waits until an element shows a text.
    pub async fn shows_in(&self, selector: &str, text: &str) {
        until(format!("`{selector}` shows `{text}`"), async || {
            self.text_of(selector).await.contains(text)
        })
        .await;
    }

    /// Waits for a visible element with this text, and clicks it.
    pub async fn click(&self, selector: &str, text: &str) {
        until(
            format!("`{selector}` with `{text}` can be clicked"),
            // A panel may be replaced between the two commands.
            async || match self.find(selector, text).await {
                Some(element) => self.driver.click(&element).await.is_ok(),
                None => false,
            },
        )
        .await;
    }

    /// Waits for a field, empties it and types.
    pub async fn type_in(&self, selector: &str, text: &str) {
        until(format!("`{selector}` can be typed in"), async || {
            let Some(field) = self.find(selector, "").await else {
                return false;
            };
            let empty = "const field = document.querySelector(arguments[0]);
                if (field) { field.value = ''; }";
            let emptied = self.driver.execute(empty, json!([selector])).await;
            emptied.is_ok() && self.driver.type_into(&field, text).await.is_ok()
        })
        .await;
    }

    /// Presses keys, as the page would get them outside a field.
    pub async fn press(&self, keys: &str) {
        let body = self.driver.find("return document.body", json!([])).await;
        let body = body.expect("the page has a body");
        self.driver.type_into(&body, keys).await.unwrap();
    }

    /// Presses keys where the focus is.
    pub async fn press_focused(&self, keys: &str) {
        let at = "return document.activeElement";
        let at = self.driver.find(at, json!([])).await;
        let at = at.expect("an element has the focus, or the body");
        self.driver.type_into(&at, keys).await.unwrap();
    }

    async fn find(&self, selector: &str, text: &str) -> Option<Element> {
        self.driver.find(FIND, json!([selector, text])).await
    }

    /// From now on, the console may say what contains this.
    pub fn expect_in_console(&self, part: &str) {
        self.expected.borrow_mut().push(part.to_owned());
    }

    /// Looks at the page in all views: see [`check`](Self::check). Keeps a picture of each in `target/screenshots`.
    pub async fn picture(&self, name: &str) {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent();
        let place = target.expect("it is below `target`").join("screenshots");
        std::fs::create_dir_all(&place).unwrap();
        for view in VIEWS {
            self.view(view).await;
            let shot = json!({"format": "png", "captureBeyondViewport": true});
            let shot = self.driver.devtools("Page.captureScreenshot", shot).await;
            let png = STANDARD.decode(shot["data"].as_str().unwrap()).unwrap();
            let file = format!("{name}-{}-{}.png", view.device, view.scheme);
            std::fs::write(place.join(&file), png).unwrap();
            self.check(&file).await;
        }
        self.view(VIEWS[0]).await;
    }

    /// The page fits into the window, it is light, and axe-core finds nothing serious.
    pub async fn check(&self, name: &str) {
        let page = self
            .get("return document.documentElement.scrollWidth")
            .await;
        // A phone shows a page that is too wide smaller: its `innerWidth` grows with the page.
        let (page, window) = (page.as_u64().unwrap(), u64::from(self.width.get()));
        assert!(
            page <= window,
            "{name} is wider than the window: {page} of {window}"
        );
        let bytes = self.get(BYTES).await.as_u64().unwrap();
        assert!(bytes <= PAGE_BYTES_MAX, "{name} has {bytes} bytes");
        let bad = axe::violations(&self.driver).await;
        assert!(bad.is_empty(), "{name}: {}", bad.join("\n"));
    }

    /// Ends the visit. The console has said nothing bad meanwhile.
    pub async fn close(self) {
        self.is_closed.set(true);
        let is_bad = |entry: &Value| {
            let message = entry["message"].as_str().unwrap_or_default();
            let expected = self.expected.borrow();
            entry["level"] == "SEVERE" && !expected.iter().any(|part| message.contains(part))
        };
        // The driver hears of entries in their order, but later than the page has written them.
        const LAST: &str = "the visit ends";
        self.get(&format!("console.error('{LAST}')")).await;
        let is_last = |entry: &Value| entry["message"].as_str().unwrap_or_default().contains(LAST);
        let said = RefCell::new(Vec::new());
        until("the console has been read", async || {
            let read = self.driver.console().await;
            said.borrow_mut().extend(read);
            said.borrow().iter().any(is_last)
        })
        .await;
        let mut said = said.into_inner();
        said.retain(|entry| !is_last(entry) && is_bad(entry));
        assert!(said.is_empty(), "the console says: {said:#?}");
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let is_good = self.is_closed.get() || std::thread::panicking();
        assert!(
            is_good,
            "the browser is to be closed: that looks at its console"
        );
    }
}
