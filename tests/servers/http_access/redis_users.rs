//! Users of the RESP server in the audit log, which both servers share.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use lapsed::ledger::{Collection, DocumentRange, Documents as _};
use serde_json::Value;

use crate::http_access::rig::{Site, bearer, client};
use crate::support::wait::until;

const MAIL: &str = "[[routes]]\nmatch = '^Mail@'\npull = { queue = 'mail', visibility = '10s' }\n";

/// A connection that sends a line and returns its reply.
struct Wire(TcpStream);

impl Wire {
    fn connect(site: &Site) -> Self {
        Self(TcpStream::connect(site.resp.unwrap()).unwrap())
    }

    /// Sends lines, and returns all of their replies.
    fn says(&mut self, lines: &str) -> String {
        const END: &str = "$3\r\nend\r\n";
        write!(self.0, "{lines}\r\nECHO end\r\n").unwrap();
        let (mut read, mut some) = (String::new(), [0; 4096]);
        while !read.ends_with(END) {
            let count = self.0.read(&mut some).unwrap();
            assert!(count > 0, "closed after {read:?}");
            read += std::str::from_utf8(&some[..count]).unwrap();
        }
        read.strip_suffix(END).unwrap().to_owned()
    }
}

/// Entries of the audit log that name a caller, as its verb, subject and number of tasks, sorted.
async fn entries(site: &Site, caller: &str) -> Vec<(String, String, u64)> {
    let range = DocumentRange::latest(100);
    let ledger = site.ledger();
    let found = ledger.documents(Collection::Audit, &range).await.unwrap();
    let entries = found
        .iter()
        .map(|it| serde_json::from_str(&it.body).unwrap());
    let of = |entry: &Value| entry["caller"] == caller;
    let mut found: Vec<_> = entries
        .filter(of)
        .map(|entry| {
            assert_eq!(entry["address"], "127.0.0.1");
            let text = |name: &str| entry[name].as_str().unwrap().to_owned();
            (
                text("verb"),
                text("subject"),
                entry["tasks"].as_u64().unwrap(),
            )
        })
        .collect();
    found.sort();
    found
}

/// The number of tasks of a caller in all entries.
async fn tasks_of(site: &Site, caller: &str) -> u64 {
    let entries = entries(site, caller).await;
    entries.iter().map(|(.., tasks)| tasks).sum()
}

fn entry(verb: &str, subject: &str, tasks: u64) -> (String, String, u64) {
    (verb.to_owned(), subject.to_owned(), tasks)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_user_with_a_password_changes_is_in_the_audit_log() {
    let hash = lapsed_server::resp::hash_password(b"right").unwrap();
    let resp = format!(
        "[resp]\nlisten = '127.0.0.1:0'\n[[resp.users]]\nname = 'till'\npassword = '{hash}'\nclasses = ['Order', 'Mail']\n{MAIL}"
    );
    let site = Site::start(&(client("root", "t-admin", "'admin'", "") + &resp));
    let mut till = Wire::connect(&site);
    assert_eq!(till.says("AUTH till right"), "+OK\r\n");
    // One pipeline: three tasks of one method, and what changes nothing.
    let replies = till.says(
        "SETEX Order@close@1 100 v\r\nSETEX Order@close@2 100 v\r\nSETEX Order@close@3 100 v\r\nGET Order@close@1",
    );
    assert_eq!(replies, "+OK\r\n+OK\r\n+OK\r\n$1\r\nv\r\n");
    until("three tasks are noted", async || {
        tasks_of(&site, "till").await == 3
    })
    .await;
    let replies = till.says(
        "SET Order@close@1 w NX EX 5\r\nDEL Order@close@9\r\nEXPIRE Order@close@1 200 LT\r\nSETEX User@end 5 v",
    );
    let denied = "-NOPERM this caller may touch tasks of `Order`, `Mail` only\r\n";
    assert_eq!(replies, format!("$-1\r\n:0\r\n:0\r\n{denied}"));
    let replies = till.says(
        "MULTI\r\nEXPIRE Order@close@1 200\r\nDEL Order@close@2 Order@close@9\r\nSETEX Order@open 100 v\r\nEXEC",
    );
    assert!(replies.ends_with("*3\r\n:1\r\n:1\r\n+OK\r\n"), "{replies}");
    let scheduled = till.says("LAPSED.SCHEDULE Order@report EVERY 3600000");
    assert!(scheduled.starts_with(':'), "{scheduled}");
    until("seven tasks are noted", async || {
        tasks_of(&site, "till").await == 7
    })
    .await;
    let expected = [
        entry("cancel", "Order@close@2", 1),
        entry("create", "Order@close", 3),
        entry("create", "Order@open", 1),
        entry("create", "Order@report", 1),
        entry("move", "Order@close@1", 1),
    ];
    assert_eq!(entries(&site, "till").await, expected);
    // A worker's report is noted if the task is dead then.
    till.says("SETEX Mail@send@1 1 v\r\nSETEX Mail@send@2 1 v");
    for report in ["done", "fail"] {
        let taken = till.says("LAPSED.TAKE mail BLOCK 60000");
        let lines: Vec<&str> = taken.split("\r\n").collect();
        let place = lines.iter().position(|line| *line == "claim").unwrap();
        let claim = lines[place + 2];
        let line = match report {
            "done" => format!("LAPSED.DONE {claim}"),
            _ => format!("LAPSED.FAIL {claim} broken PERMANENT"),
        };
        assert_eq!(till.says(&line), "+OK\r\n");
    }
    until("the failure is noted", async || {
        tasks_of(&site, "till").await == 10
    })
    .await;
    let failed = entries(&site, "till").await;
    let failed: Vec<_> = failed.iter().filter(|(verb, ..)| verb == "fail").collect();
    assert_eq!(failed.len(), 1, "{failed:?}");
    let (name, token) = bearer("t-admin");
    let page = site.get("/audit", &[(name, &token)]);
    assert!(page.body.contains("till"), "{}", page.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_of_redis_clients_without_a_password_have_no_entries() {
    let resp = "[resp]\nlisten = '127.0.0.1:0'\n";
    let site = Site::start(&(client("root", "t-admin", "'admin'", "") + resp));
    let mut wire = Wire::connect(&site);
    assert_eq!(wire.says("SETEX Order@close@1 100 v"), "+OK\r\n");
    // What follows is written after all that was noted before.
    let (name, token) = bearer("t-admin");
    let pause = r#"{"class": "Order"}"#;
    site.post("/v1/pauses", &[(name, &token)], pause)
        .assert_ok();
    assert_eq!(entries(&site, "root").await.len(), 1);
    assert_eq!(entries(&site, "default").await, []);
}
