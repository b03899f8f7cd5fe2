//! The rules for every ledger, on the ledger in MariaDB.

use lapsed::Config;
use lapsed::config::LedgerConfig;
use lapsed::ledger::Ledger as _;
use lapsed::ledger::migrate::Options;
use lapsed::ledger::mysql::MysqlLedger;

use crate::support::maria;

/// The rules of a topic become one test, in their order on one table: they use keys of their own.
macro_rules! rules {
    ($($rule:ident)+) => {
        mod in_mysql {
            #[tokio::test]
            async fn every_rule_of_this_topic_holds() {
                let ledger = crate::ledger_rules::mysql_ledger(module_path!()).await;
                hold(&ledger).await;
            }

            #[tokio::test]
            async fn every_rule_of_this_topic_holds_if_columns_are_assigned_at_once() {
                let ledger = crate::ledger_rules::standard_ledger(module_path!()).await;
                hold(&ledger).await;
            }

            async fn hold(ledger: &lapsed::ledger::mysql::MysqlLedger) {
                $({
                    eprintln!("{}", stringify!($rule));
                    super::$rule(ledger).await;
                })+
            }
        }
    };
}

/// MariaDB's ledger in a database of this topic; or, to try another server, in a table of its own in the empty database
/// that `LAPSED_TEST_LEDGER_URL` names.
pub async fn mysql_ledger(topic: &str) -> MysqlLedger {
    let name = topic.rsplit("::").nth(1).expect("a module of a topic");
    let name = format!("conformance_{name}");
    let mut config = Config::default().ledger;
    match std::env::var("LAPSED_TEST_LEDGER_URL") {
        Ok(url) => (config.url, config.table) = (url.into(), name),
        Err(_) => config.url = maria::database(&name).await.into(),
    }
    migrated(&config).await
}

/// The ledger on a server that assigns the columns of an `UPDATE` at once, in a database of this topic.
pub async fn standard_ledger(topic: &str) -> MysqlLedger {
    let name = topic.rsplit("::").nth(1).expect("a module of a topic");
    let server = maria::standard_server().await;
    let mut config = Config::default().ledger;
    config.url = server.create_database(name).await.unwrap().into();
    migrated(&config).await
}

async fn migrated(config: &LedgerConfig) -> MysqlLedger {
    let ledger = MysqlLedger::new(config).unwrap();
    let options = Options::default().archive(true);
    ledger.migrate_with(&options).await.unwrap();
    ledger.check().await.unwrap();
    ledger
}
