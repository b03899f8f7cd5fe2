//! What every ledger must do, run against each of them. Names are rules.
//!
//! A rule is a function of a ledger. It stands in the file of its topic, whose `rules!` lists it; a rule or topic that is
//! left out is never used, and the compiler says so.

/// Each rule becomes a test of the ledger in memory, one of the ledger in SQLite, and a step of the one test of MariaDB.
macro_rules! rules {
    ($($rule:ident)+) => {
        mod in_memory {
            $(#[tokio::test(start_paused = true)]
            async fn $rule() {
                super::$rule(&lapsed::ledger::memory::MemoryLedger::default()).await;
            })+
        }

        mod in_sqlite {
            $(#[tokio::test]
            async fn $rule() {
                let file = crate::ledger_conformance::rig::SqliteFile::create().await;
                super::$rule(&file.ledger).await;
            })+
        }

        /// All rules of this topic, one after the other.
        pub async fn every_rule(ledger: &impl lapsed::ledger::transfer::Transfers) {
            $({
                eprintln!("{}", stringify!($rule));
                $rule(ledger).await;
            })+
        }
    };
}

mod adopted_tasks;
mod adoption;
mod arming;
mod cancelling;
mod changes;
mod claims;
mod dead_letters;
mod documents;
mod history;
mod leases;
mod moving;
mod near_scans;
mod pauses;
mod pruning;
mod rig;
mod scans;
mod series;
mod series_changes;
mod settlements;
mod survey;
mod uniqueness;

mod in_mysql {
    use super::*;

    /// One table for all: the rules use keys of their own.
    #[tokio::test]
    async fn every_rule() {
        let ledger = &rig::mysql_ledger().await;
        arming::every_rule(ledger).await;
        claims::every_rule(ledger).await;
        settlements::every_rule(ledger).await;
        leases::every_rule(ledger).await;
        cancelling::every_rule(ledger).await;
        scans::every_rule(ledger).await;
        near_scans::every_rule(ledger).await;
        adoption::every_rule(ledger).await;
        adopted_tasks::every_rule(ledger).await;
        history::every_rule(ledger).await;
        dead_letters::every_rule(ledger).await;
        pruning::every_rule(ledger).await;
        uniqueness::every_rule(ledger).await;
        series::every_rule(ledger).await;
        series_changes::every_rule(ledger).await;
        survey::every_rule(ledger).await;
        pauses::every_rule(ledger).await;
        documents::every_rule(ledger).await;
        moving::every_rule(ledger).await;
        changes::every_rule(ledger).await;
    }
}
