//! What the server refuses, and what it may do a moment later.

use lapsed::ledger::{
    Adopted, Adoption, AdoptionRequest, Claims, LedgerError, Settled, Settlement,
};
use lapsed::task::{TaskKey, UnixMs, Verdict};

use crate::mysql::proxy::{Act, Proxy};
use crate::mysql::rig::{claimant, connect, overdue, start};

/// What passes: renamed, prepared statements used up, rights and passwords changed, disks full, proxies between servers,
/// Vitess, group replication, commits, TiDB.
const MAY_PASS: [u16; 22] = [
    1146, 1461, 1045, 1142, 1044, 1114, 1021, 1030, 1026, 9001, 9002, 1105, 3101, 1180, 1181, 1615,
    1412, 9007, 8002, 8022, 8028, 65_000,
];

/// What a member of a group says while it joins, leaves, is offline, becomes the primary or is none any more, and when a commit
/// conflicts. It may work later, or over another connection.
const OF_A_GROUP: [u16; 15] = [
    1290, 1836, 3032, 3100, 3101, 3781, 3782, 3783, 3796, 3797, 3799, 4094, 4311, 4312, 4313,
];

/// What is about a value.
const ABOUT_DATA: [u16; 7] = [1406, 1366, 1264, 3140, 1292, 1267, 3988];

#[tokio::test]
async fn only_data_errors_are_permanent() {
    let (_server, ledger, url) = start().await;
    let armings = overdue(&ledger, 1).await;
    let claim = ledger.claim(&armings, &claimant()).await.unwrap().remove(0);
    let settlement = Settlement {
        lease: claim.lease,
        verdict: Verdict::Complete,
    };
    let request = AdoptionRequest {
        key: TaskKey::parse("Job@key").unwrap(),
        due: UnixMs(1),
        heard: UnixMs(1),
        from_key: true,
        is_entry: false,
        over: None,
        payload: None,
    };
    let number = std::sync::Arc::new(std::sync::atomic::AtomicU16::new(0));
    let told = std::sync::Arc::clone(&number);
    let writes = move |sql: &str| {
        let writes = sql.contains("SET status = 1") || sql.starts_with("INSERT INTO");
        match told.load(std::sync::atomic::Ordering::SeqCst) {
            0 => Act::Pass,
            number if writes => Act::Refuse(number),
            _ => Act::Pass,
        }
    };
    let proxy = Proxy::before(&url, writes).await;
    let through = connect(&proxy.url(&url));
    for (numbers, about_data) in [(&MAY_PASS[..], false), (&ABOUT_DATA[..], true)] {
        for one in numbers {
            number.store(*one, std::sync::atomic::Ordering::SeqCst);
            let error = through.settle(std::slice::from_ref(&settlement)).await;
            let error = error.unwrap_err();
            assert_eq!(error.is_about_data(), about_data, "{one}: {error}");
            let adopted = through.adopt(std::slice::from_ref(&request)).await;
            let refused = matches!(adopted.as_deref(), Ok([Adopted::Refused(_)]));
            let passes = matches!(
                adopted,
                Err(LedgerError::Refused { .. } | LedgerError::Unavailable { .. })
            );
            assert_eq!((refused, passes), (about_data, !about_data), "{one}");
        }
    }
    for one in OF_A_GROUP {
        number.store(one, std::sync::atomic::Ordering::SeqCst);
        let error = through.settle(std::slice::from_ref(&settlement)).await;
        let error = error.unwrap_err();
        assert!(error.is_transient(), "{one}: {error}");
    }
    number.store(0, std::sync::atomic::Ordering::SeqCst);
    assert_eq!(
        through.settle(&[settlement]).await.unwrap(),
        [Settled::Applied]
    );
}
