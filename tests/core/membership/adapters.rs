//! What members know of each other, by each adapter: in memory, and in a model of Redis.

use std::slice::from_ref;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use lapsed::membership::{
    AUDIT_LOCK_TTL, AskedQueues, Audit, AuditLockState, Capabilities, Heartbeat, LIFETIME,
    MemberId, Membership, MemoryMembership, Readiness, RedisMembership,
};
use lapsed::{Config, UnixMs};
use lapsed_model_redis::{Link, ModelRedis, Options};
use lapsed_redis::{Endpoint, LedgerName, Names};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::sleep;

const NOW: UnixMs = UnixMs(1_800_000_000_000);
const A: MemberId = MemberId(0xa);
const B: MemberId = MemberId(0xb);

/// Each rule becomes a test of each adapter.
macro_rules! rules {
    ($($rule:ident)+) => {
        mod in_memory {
            $(#[tokio::test(start_paused = true)]
            async fn $rule() {
                super::$rule(&super::MemoryMembership::default()).await;
            })+
        }

        mod in_redis {
            $(#[tokio::test(start_paused = true)]
            async fn $rule() {
                super::$rule(&super::Place::new().membership).await;
            })+
        }
    };
}

rules! {
    members_see_each_other_until_they_leave
    one_member_at_a_time_has_the_audit_lock
    an_audit_lock_is_released_by_the_member_that_has_it
    a_finished_audit_answers_for_those_that_it_covers
}

/// A model of Redis, and a member's way to it.
struct Place {
    redis: Arc<ModelRedis>,
    link: Arc<Link>,
    membership: RedisMembership,
}

impl Place {
    fn new() -> Self {
        let redis = ModelRedis::new(Options {
            start: NOW,
            ..Options::default()
        });
        let (link, config) = (Link::new(&redis, "member"), Config::default());
        let endpoint = Endpoint::over(&config.redis, link.clone()).unwrap();
        let identity = Arc::new(OnceLock::from("shop".to_owned()));
        let ledger = LedgerName::new("", identity);
        Self {
            membership: RedisMembership::on(endpoint, &config.redis, ledger),
            redis,
            link,
        }
    }

    /// The name of the hash of heartbeats.
    fn hash() -> String {
        Names::new(&Config::default().redis.key_prefix).members("shop")
    }

    /// The ids of all heartbeats in Redis, read or not.
    fn written(&self) -> String {
        let ids = self.redis.execute(0, &["HKEYS", &Self::hash()]).bytes();
        String::from_utf8(ids).unwrap()
    }
}

fn ms(ahead: i64) -> UnixMs {
    UnixMs(NOW.0 + ahead)
}

fn heartbeat(id: MemberId, until: UnixMs) -> Heartbeat {
    Heartbeat {
        id,
        name: "host:7".into(),
        version: "1.2.0".into(),
        since: NOW,
        until,
        readiness: Readiness::Ready,
        listening: true,
        expired_only: false,
        forwards: true,
        timer: "key_expiry".into(),
        capabilities: Capabilities {
            handlers: vec!["Order@close".into()],
            ..Capabilities::default()
        },
        idle_since: Vec::new(),
        queues: AskedQueues::default(),
    }
}

fn audit(began_ms: i64, capabilities: u64) -> Audit {
    Audit {
        began: UnixMs(began_ms),
        capabilities,
    }
}

fn sorted(mut heartbeats: Vec<Heartbeat>) -> Vec<Heartbeat> {
    heartbeats.sort_by_key(|heartbeat| heartbeat.id);
    heartbeats
}

async fn exchange(membership: &impl Membership, own: &Heartbeat, now: UnixMs) -> Vec<Heartbeat> {
    sorted(membership.exchange(own, now).await.unwrap())
}

async fn members_see_each_other_until_they_leave(membership: &impl Membership) {
    let [a, b] = [A, B].map(|id| heartbeat(id, ms(3_000)));
    assert_eq!(exchange(membership, &a, NOW).await, from_ref(&a));
    assert_eq!(exchange(membership, &b, NOW).await, [a.clone(), b.clone()]);
    let later = heartbeat(A, ms(4_000));
    assert_eq!(exchange(membership, &later, NOW).await, [later, b.clone()]);
    membership.leave(A).await.unwrap();
    assert_eq!(exchange(membership, &b, NOW).await, [b]);
    assert!(membership.shows_all());
}

async fn one_member_at_a_time_has_the_audit_lock(membership: &impl Membership) {
    let wanted = audit(0, 7);
    let lock = async |id| membership.lock_audit(id, wanted).await.unwrap();
    assert_eq!(lock(A).await, AuditLockState::Acquired);
    assert_eq!(lock(B).await, AuditLockState::Taken(Some(A)));
    // It extends the lock.
    sleep(AUDIT_LOCK_TTL - Duration::from_secs(1)).await;
    assert_eq!(lock(A).await, AuditLockState::Acquired);
    sleep(AUDIT_LOCK_TTL - Duration::from_secs(1)).await;
    assert_eq!(lock(B).await, AuditLockState::Taken(Some(A)));
    sleep(Duration::from_millis(1_001)).await;
    assert_eq!(lock(B).await, AuditLockState::Acquired);
}

async fn an_audit_lock_is_released_by_the_member_that_has_it(membership: &impl Membership) {
    let wanted = audit(0, 7);
    let lock = async |id| membership.lock_audit(id, wanted).await.unwrap();
    lock(A).await;
    membership.unlock_audit(B).await.unwrap();
    membership.leave(B).await.unwrap();
    assert_eq!(lock(B).await, AuditLockState::Taken(Some(A)));
    membership.unlock_audit(A).await.unwrap();
    assert_eq!(lock(B).await, AuditLockState::Acquired);
    membership.leave(B).await.unwrap();
    assert_eq!(lock(A).await, AuditLockState::Acquired);
}

async fn a_finished_audit_answers_for_those_that_it_covers(membership: &impl Membership) {
    let lock = async |id, wanted| membership.lock_audit(id, wanted).await.unwrap();
    let finish = async || {
        membership
            .finish_audit(A, audit(1_000, 0xfe))
            .await
            .unwrap()
    };
    finish().await;
    // It is no lock that its member could release.
    membership.unlock_audit(A).await.unwrap();
    for id in [A, B] {
        assert_eq!(lock(id, audit(999, 0xfe)).await, AuditLockState::Done);
    }
    for wanted in [audit(1_000, 0xfe), audit(999, 0xef)] {
        finish().await;
        assert_eq!(lock(B, wanted).await, AuditLockState::Acquired);
        assert_eq!(
            lock(A, audit(0, 0xfe)).await,
            AuditLockState::Taken(Some(B))
        );
    }
    finish().await;
    sleep(AUDIT_LOCK_TTL + Duration::from_millis(1)).await;
    assert_eq!(lock(B, audit(999, 0xfe)).await, AuditLockState::Acquired);
}

#[tokio::test(start_paused = true)]
async fn a_value_of_the_audit_lock_that_no_member_writes_locks_and_answers_for_no_audit() {
    let place = Place::new();
    let lock = async || {
        let state = place.membership.lock_audit(A, audit(0, 7)).await;
        state.unwrap()
    };
    lock().await;
    let history = place.redis.take_history();
    let name = String::from_utf8(history.last().unwrap().key.clone()).unwrap();
    let write = |value: &str| place.redis.execute(0, &["SET", &name, value]);
    write("someone");
    assert_eq!(lock().await, AuditLockState::Taken(None));
    write("audited:1000:0000000000000007");
    assert_eq!(lock().await, AuditLockState::Done);
    for mark in ["audited:1000", "audited:x:7", "audited:1000:x"] {
        write(mark);
        assert_eq!(lock().await, AuditLockState::Acquired, "{mark}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_heartbeat_that_expired_a_minute_ago_is_removed_by_the_next_member_that_reads_it() {
    let place = Place::new();
    let (a, b) = (heartbeat(A, ms(60_001)), heartbeat(B, ms(0)));
    exchange(&place.membership, &b, NOW).await;
    let read = async |now| exchange(&place.membership, &a, now).await;
    assert_eq!(read(ms(60_000)).await, [a.clone(), b]);
    assert_eq!(read(ms(60_001)).await, from_ref(&a));
    let left = place.membership.heartbeats().await.unwrap();
    assert_eq!(left, Some(vec![a.clone()]));
}

#[tokio::test(start_paused = true)]
async fn a_heartbeat_that_cannot_be_read_is_left_to_the_version_that_wrote_it() {
    let place = Place::new();
    let (hash, id) = (Place::hash(), B.to_string());
    place.redis.execute(0, &["HSET", &hash, &id, r#"{"v":3}"#]);
    let a = heartbeat(A, ms(3_000));
    let later = ms(3_600_000);
    assert_eq!(
        exchange(&place.membership, &heartbeat(A, later), later)
            .await
            .len(),
        1
    );
    assert_eq!(exchange(&place.membership, &a, NOW).await, from_ref(&a));
    assert!(place.written().contains(&id));
}

#[tokio::test(start_paused = true)]
async fn members_are_read_without_a_heartbeat_of_the_reader() {
    let place = Place::new();
    let (a, b) = (heartbeat(A, ms(0)), heartbeat(B, ms(1)));
    for own in [&a, &b] {
        exchange(&place.membership, own, NOW).await;
    }
    let all = place.membership.heartbeats().await.unwrap().unwrap();
    assert_eq!(sorted(all), [a.clone(), b.clone()]);
    let valid = place.membership.members(NOW).await.unwrap();
    assert_eq!(sorted(valid), [a, b.clone()]);
    assert_eq!(place.membership.members(ms(1)).await.unwrap(), [b]);
}

#[tokio::test(start_paused = true)]
async fn a_member_is_reachable_while_it_is_subscribed_to_its_hints() {
    let place = Place::new();
    let is_reachable = async |id| place.membership.is_reachable(id).await.unwrap();
    assert!(!is_reachable(A).await);
    let mut stream = place.redis.connect().unwrap();
    let subscribe = format!("SUBSCRIBE {}\r\n", Names::hints(A.0));
    stream.write_all(subscribe.as_bytes()).await.unwrap();
    let mut confirmation = [0];
    stream.read_exact(&mut confirmation).await.unwrap();
    assert!(is_reachable(A).await && !is_reachable(B).await);
}

#[tokio::test(start_paused = true)]
async fn an_error_says_whether_a_later_call_may_succeed() {
    let place = Place::new();
    let own = heartbeat(A, ms(3_000));
    place.redis.execute(0, &["SET", &Place::hash(), "text"]);
    let refused = place.membership.exchange(&own, NOW).await.unwrap_err();
    assert!(!refused.is_transient(), "{refused}");
    let publish = "cannot publish the heartbeat of this daemon";
    assert_eq!(refused.to_string(), publish);
    place.link.refuse(true);
    place.link.kill();
    let lost = place.membership.exchange(&own, NOW).await.unwrap_err();
    assert!(lost.is_transient(), "{lost}");
}

#[tokio::test(start_paused = true)]
async fn members_in_memory_are_known_to_themselves_only() {
    let membership = MemoryMembership::default();
    let own = heartbeat(A, NOW.plus(LIFETIME));
    exchange(&membership, &own, NOW).await;
    assert_eq!(membership.heartbeats().await.unwrap(), None);
    assert!(membership.is_reachable(B).await.unwrap());
    assert!(!MemoryMembership::hiding_others().shows_all());
}

#[tokio::test(start_paused = true)]
async fn an_audit_lock_in_memory_is_free_in_the_millisecond_in_which_it_ends() {
    let (membership, wanted) = (MemoryMembership::default(), audit(0, 7));
    membership.lock_audit(A, wanted).await.unwrap();
    sleep(AUDIT_LOCK_TTL).await;
    let state = membership.lock_audit(B, wanted).await.unwrap();
    assert_eq!(state, AuditLockState::Acquired);
}
