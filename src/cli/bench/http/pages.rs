//! Pages of the dashboard: how long each takes, and how large it is.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::LazyLock;
use std::time::Duration;

use anyhow::ensure;
use hyper::StatusCode;
use regex::Regex;

use crate::bench::connection::Connection;
use crate::bench::progress::bar;
use crate::bench::samples::{Lateness, Samples};
use crate::bench::stats::{Row, Stat, Value};
use crate::bench::tasks::{FAR, task};

/// Pages, beside that of one task. Some filters match nothing: then the ledger has to look the longest.
const PAGES: [&str; 18] = [
    "/",
    "/upcoming",
    "/tasks",
    "/tasks?state=pending",
    "/tasks?class=Bench",
    "/tasks?class=Absent",
    "/tasks?prefix=Bench%40run%4030000",
    "/tasks?prefix=Absent",
    "/tasks?tag=absent",
    "/tasks?state=dead",
    "/dead",
    "/recurring",
    "/pauses",
    "/queues",
    "/daemons",
    "/doctor",
    "/audit",
    "/schedule",
];

/// A part of a page that could not be read in time.
const FAILED_PANEL: &str = "class=\"failed\"";

/// Scripts, styles and pictures of a page.
static ASSET: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r#"(?:src|href)="(/assets/[^"]+)""#).expect("the pattern is constant")
});

/// Loads each page several times, as plain text and compressed, one at a time.
pub async fn load(
    address: SocketAddr,
    pending: u32,
    times: u32,
    run: u32,
) -> anyhow::Result<Vec<Row>> {
    let mut browser = Browser {
        connection: Connection::open(address).await?,
        assets: BTreeMap::new(),
    };
    let mut pages: Vec<String> = PAGES.map(str::to_owned).to_vec();
    if pending > 0 {
        let key = task(FAR).key().to_string().replace('@', "%40");
        pages.push(format!("/task?key={key}"));
    }
    let bar = bar("pages", pages.len() as u64);
    let mut rows = Vec::new();
    for page in pages {
        let stats = browser.visit(&page, times).await?;
        rows.push(Row {
            label: page,
            run: Some(run),
            stats,
        });
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(rows)
}

/// A page as it was sent, without what it loads.
pub struct Loaded {
    pub html: String,
    /// Parts that could not be read in time.
    pub failed_panels: u64,
    pub took: Duration,
}

/// Loads a page as plain text.
///
/// # Errors
/// The daemon does not answer, or not with the page.
pub async fn get(connection: &mut Connection, page: &str) -> anyhow::Result<Loaded> {
    let answer = connection.get(page, false).await?;
    ensure!(
        answer.status == StatusCode::OK,
        "the daemon answered `{page}` with {}",
        answer.status
    );
    let html = String::from_utf8_lossy(&answer.body).into_owned();
    Ok(Loaded {
        failed_panels: html.matches(FAILED_PANEL).count() as u64,
        html,
        took: answer.took,
    })
}

struct Browser {
    connection: Connection,
    /// Compressed sizes by path.
    assets: BTreeMap<String, usize>,
}

impl Browser {
    async fn visit(&mut self, page: &str, times: u32) -> anyhow::Result<Vec<Stat>> {
        let mut took = Vec::new();
        let (mut failed, mut html) = (0, String::new());
        for _ in 0..times {
            let loaded = get(&mut self.connection, page).await?;
            html = loaded.html;
            failed += loaded.failed_panels;
            took.push(u64::try_from(loaded.took.as_micros()).unwrap_or(u64::MAX));
        }
        let compressed = self.connection.get(page, true).await?.body.len();
        let mut transferred = compressed;
        for asset in ASSET.captures_iter(&html) {
            transferred += self.asset(&asset[1]).await?;
        }
        let first_ms = took.first().map(|us| *us as f64 / 1e3);
        let samples = Samples::new(took.iter().map(|us| Lateness::Started(*us)));
        let ms = |percent| match samples.percentile(percent) {
            Some(Lateness::Started(us)) => Value::Measured(us as f64 / 1e3, 1),
            _ => Value::Unknown,
        };
        let kb = |bytes: usize| Value::Measured(bytes as f64 / 1e3, 1);
        Ok(vec![
            Stat::measured("first_ms", first_ms, 1),
            Stat::new("p50_ms", ms(50.0)),
            Stat::new("max_ms", ms(100.0)),
            Stat::count("failed_panels", failed),
            Stat::new("html_kb", kb(html.len())),
            Stat::new("html_gzip_kb", kb(compressed)),
            Stat::new("with_assets_gzip_kb", kb(transferred)),
        ])
    }

    /// Compressed size of an asset.
    async fn asset(&mut self, path: &str) -> anyhow::Result<usize> {
        if let Some(size) = self.assets.get(path) {
            return Ok(*size);
        }
        let answer = self.connection.get(path, true).await?;
        ensure!(
            answer.status == StatusCode::OK,
            "the daemon answered `{path}` with {}",
            answer.status
        );
        self.assets.insert(path.to_owned(), answer.body.len());
        Ok(answer.body.len())
    }
}
