//! Failed logins in the audit log of the ledger: that guesses were made, from where, and how many.
//!
//! The first failure of an address within ten minutes is written at once, and how many followed when they are over. A flood
//! thus fills neither the table nor the memory. What was guessed is never written.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::sleep;

use super::subnet::subnet;
use lapsed::ledger::{Collection, Ledger, LedgerError};

/// Failures of an address within this time share two entries: the first one, and the others.
const WINDOW: Duration = Duration::from_secs(600);

/// Maximum number of addresses within [`WINDOW`] that have entries of their own. The failures of others are one entry.
const ADDRESSES_MAX: usize = 50;

/// Entries that are deleted at a time because they are too old.
const PRUNE_BATCH: u32 = 1_000;

/// Writes failed logins at one server. Cheap to clone.
#[derive(Clone)]
pub struct LoginLog(Arc<Shared>);

struct Shared {
    /// `http` or `resp`.
    server: &'static str,
    ledger: Arc<dyn Ledger>,
    keep: Duration,
    /// `None` while no login fails.
    window: Mutex<Option<Failed>>,
}

/// The failures of a window that are not written yet.
#[derive(Debug, Default)]
struct Failed {
    addresses: HashMap<Option<IpAddr>, u64>,
    others: u64,
}

impl LoginLog {
    /// Writes the failures at a server, `http` or `resp`, into this ledger, and keeps entries for this long.
    pub fn new(server: &'static str, ledger: Arc<dyn Ledger>, keep: Duration) -> Self {
        Self(Arc::new(Shared {
            server,
            ledger,
            keep,
            window: Mutex::default(),
        }))
    }

    /// Notes that a login from an address has failed. Does not wait for the ledger.
    pub fn add(&self, address: Option<IpAddr>) {
        let address = address.map(subnet);
        let (is_first_of_all, is_first) = {
            let mut window = self.window();
            let is_first_of_all = window.is_none();
            let failed = window.get_or_insert_default();
            let has_room = failed.addresses.len() < ADDRESSES_MAX;
            match failed.addresses.get_mut(&address) {
                Some(count) => {
                    *count += 1;
                    (false, false)
                }
                None if has_room => {
                    failed.addresses.insert(address, 0);
                    (is_first_of_all, true)
                }
                None => {
                    failed.others += 1;
                    (false, false)
                }
            }
        };
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        if is_first {
            let this = self.clone();
            runtime.spawn(async move { this.write(&text_of(address), 1).await });
        }
        if is_first_of_all {
            let this = self.clone();
            runtime.spawn(async move { this.end_window().await });
        }
    }

    /// Writes what has followed the first failures, at the end of the window.
    async fn end_window(&self) {
        sleep(WINDOW).await;
        let Failed { addresses, others } = self.window().take().unwrap_or_default();
        for (address, count) in addresses.into_iter().filter(|(_, count)| *count > 0) {
            self.write(&text_of(address), count).await;
        }
        if others > 0 {
            self.write("", others).await;
        }
        let before = self.0.ledger.clock().now().minus(self.0.keep);
        let old = self
            .0
            .ledger
            .delete_documents(Collection::Audit, before, PRUNE_BATCH);
        if let Err(error) = old.await {
            tracing::debug!(%error, "could not delete old entries of the audit log");
        }
    }

    async fn write(&self, address: &str, count: u64) {
        if let Err(error) = self.insert(address, count).await {
            tracing::debug!(%error, "a failed login is missing in the audit log");
        }
    }

    async fn insert(&self, address: &str, count: u64) -> Result<(), LedgerError> {
        let reason = match count {
            1 => "a wrong token or password".to_owned(),
            count => format!("{count} more wrong tokens or passwords within 10 min"),
        };
        // The form of the entries of changes.
        let entry = serde_json::json!({
            "caller": "unknown",
            "address": address,
            "verb": "login_failed",
            "subject": self.0.server,
            "tasks": 0,
            "reason": reason,
        });
        let name = format!("login-{:016x}", rand::random::<u64>());
        let ledger = &self.0.ledger;
        ledger
            .insert_document(Collection::Audit, &name, &entry.to_string())
            .await?;
        Ok(())
    }

    fn window(&self) -> MutexGuard<'_, Option<Failed>> {
        self.0
            .window
            .lock()
            .expect("nothing panics while holding it")
    }
}

/// An address as text; empty if it is not known. Of IPv6, its network.
fn text_of(address: Option<IpAddr>) -> String {
    match address {
        None => String::new(),
        Some(IpAddr::V4(address)) => address.to_string(),
        Some(IpAddr::V6(network)) => format!("{network}/64"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lapsed::ledger::memory::MemoryLedger;
    use lapsed::ledger::{DocumentRange, Documents as _};

    async fn entries(ledger: &MemoryLedger) -> Vec<(String, String)> {
        let range = DocumentRange::latest(1_000);
        let page = ledger.documents(Collection::Audit, &range).await.unwrap();
        let entries = page.into_iter().map(|document| {
            let entry: serde_json::Value = serde_json::from_str(&document.body).unwrap();
            assert_eq!(entry["verb"], "login_failed");
            let text = |member: &str| entry[member].as_str().unwrap().to_owned();
            (text("address"), text("reason"))
        });
        let mut entries: Vec<_> = entries.collect();
        entries.sort();
        entries
    }

    fn address(last: usize) -> Option<IpAddr> {
        Some(IpAddr::from([10, 0, (last >> 8) as u8, last as u8]))
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_that_guesses_on_has_two_entries_within_ten_minutes() {
        let ledger = Arc::new(MemoryLedger::default());
        let log = LoginLog::new("http", Arc::clone(&ledger) as _, Duration::from_secs(9_000));
        for _ in 0..10_000 {
            log.add(address(1));
        }
        log.add(Some("2001:db8::7".parse().unwrap()));
        sleep(Duration::from_secs(1)).await;
        let one = "a wrong token or password".to_owned();
        let at_once = [
            ("10.0.0.1".to_owned(), one.clone()),
            ("2001:db8::/64".to_owned(), one),
        ];
        assert_eq!(entries(&ledger).await, at_once);
        sleep(WINDOW).await;
        let more = "9999 more wrong tokens or passwords within 10 min".to_owned();
        let found = entries(&ledger).await;
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found.contains(&("10.0.0.1".to_owned(), more)), "{found:?}");
        sleep(10 * WINDOW).await;
        assert_eq!(entries(&ledger).await.len(), 3, "nothing has failed since");
        log.add(address(1));
        sleep(Duration::from_secs(1)).await;
        assert_eq!(entries(&ledger).await.len(), 4, "another window");
    }

    #[tokio::test(start_paused = true)]
    async fn guesses_of_many_addresses_share_an_entry_and_old_ones_are_deleted() {
        let ledger = Arc::new(MemoryLedger::default());
        let log = LoginLog::new("resp", Arc::clone(&ledger) as _, 2 * WINDOW);
        for last in 0..5_000 {
            log.add(address(last));
        }
        sleep(WINDOW + Duration::from_secs(1)).await;
        let found = entries(&ledger).await;
        assert_eq!(found.len(), ADDRESSES_MAX + 1);
        assert_eq!(found[0].0, "", "of the others");
        let others = 5_000 - ADDRESSES_MAX;
        assert!(
            found[0].1.starts_with(&format!("{others} more")),
            "{found:?}"
        );
        sleep(3 * WINDOW).await;
        log.add(address(1));
        sleep(WINDOW + Duration::from_secs(1)).await;
        assert_eq!(entries(&ledger).await.len(), 1);
    }
}
