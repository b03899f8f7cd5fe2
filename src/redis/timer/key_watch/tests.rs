//! Tests of the key watch.

use super::*;

fn key() -> TaskKey {
    TaskKey::build("C", "m", [""; 0]).unwrap()
}

fn read(at: Instant) -> Receipt {
    Receipt {
        at,
        late_since: None,
    }
}

fn now() -> Receipt {
    read(Instant::now())
}

#[test]
fn only_the_latest_change_is_inspected() {
    let mut heard = KeyWatch::default();
    assert_eq!(heard.note(key(), Change::Armed, now()), Noted::New);
    assert_eq!(heard.note(key(), Change::Disarmed, now()), Noted::Known);
    assert_eq!(heard.take(9), [(key(), Change::Disarmed)]);
    assert!(!heard.has_waiting());
}

#[test]
fn a_change_during_an_inspection_is_inspected_next() {
    let mut heard = KeyWatch::default();
    heard.note(key(), Change::Disarmed, now());
    heard.take(9);
    assert_eq!(heard.note(key(), Change::Armed, now()), Noted::Known);
    assert!(!heard.has_waiting());
    heard.finish(&key());
    assert_eq!(heard.take(9), [(key(), Change::Armed)]);
}

#[test]
fn an_inspection_without_a_reply_is_repeated_with_the_original_times() {
    let mut heard = KeyWatch::default();
    heard.note(key(), Change::Armed, now());
    heard.take(9);
    heard.requeue_inspected();
    assert_eq!(heard.take(9), [(key(), Change::Armed)]);
}

#[test]
fn an_expiry_belongs_to_the_latest_change_and_is_not_forgotten() {
    let mut heard = KeyWatch::default();
    heard.note(key(), Change::Armed, now());
    heard.take(9);
    heard.note(key(), Change::Armed, now());
    assert_eq!(heard.expired(&key()), None);
    let expiry = |heard: &mut KeyWatch| heard.finish(&key()).map(|asked| asked.expiry);
    assert_eq!(expiry(&mut heard), Some(Expiry::NotHeard), "the first");
    heard.take(9);
    heard.requeue_inspected();
    heard.take(9);
    assert_eq!(expiry(&mut heard), Some(Expiry::Heard), "the second");
}

#[tokio::test(start_paused = true)]
async fn when_events_are_lost_a_missing_key_may_have_expired() {
    let mut heard = KeyWatch::default();
    let [gone, waits, expired] =
        ["gone", "waits", "expired"].map(|name| TaskKey::build("C", "m", [name]).unwrap());
    let armed = now();
    heard.remember_gone(gone.clone(), armed);
    for key in [&waits, &expired] {
        heard.note(key.clone(), Change::Armed, now());
    }
    heard.expired(&expired);
    assert_eq!(heard.events_lost(), [(gone, armed)]);
    assert_eq!(heard.events_lost(), []);
    heard.take(9);
    let mut expiry = |key| heard.finish(key).map(|asked| asked.expiry);
    assert_eq!(expiry(&waits), Some(Expiry::MayBeLost));
    assert_eq!(expiry(&expired), Some(Expiry::Heard));
}

#[test]
fn a_deletion_stays_known_when_the_key_is_armed_again() {
    let deleted_at = Instant::now();
    let armed_at = deleted_at + Duration::from_millis(1);
    let later = deleted_at + Duration::from_millis(2);
    let disarmed = |heard: &mut KeyWatch| heard.finish(&key())?.last_disarmed();
    for reversed in [false, true] {
        let mut events = [(Change::Disarmed, deleted_at), (Change::Armed, armed_at)];
        if reversed {
            events.reverse();
        }
        // Before the inspection.
        let mut heard = KeyWatch::default();
        for (change, at) in events {
            heard.note(key(), change, read(at));
        }
        assert_eq!(heard.take(9), [(key(), Change::Armed)]);
        assert_eq!(disarmed(&mut heard), Some(deleted_at));
        // During an inspection that gets no reply.
        heard.note(key(), Change::Armed, read(deleted_at));
        heard.take(9);
        for (change, at) in events {
            heard.note(key(), change, read(at));
        }
        heard.requeue_inspected();
        assert_eq!(heard.take(9), [(key(), Change::Armed)]);
        assert_eq!(disarmed(&mut heard), Some(deleted_at));
    }
    let mut heard = KeyWatch::default();
    heard.note(key(), Change::Disarmed, read(later));
    heard.take(9);
    heard.requeue_inspected();
    assert_eq!(heard.take(9), [(key(), Change::Disarmed)]);
}

#[tokio::test(start_paused = true)]
async fn an_expiry_is_matched_only_to_a_key_that_was_missing_recently() {
    let mut heard = KeyWatch::default();
    let since = now();
    heard.remember_gone(key(), since);
    assert_eq!(heard.expired(&key()), Some(since));
    assert_eq!(heard.expired(&key()), None);
    heard.remember_gone(key(), since);
    tokio::time::advance(REMEMBERED_FOR).await;
    heard.take(9);
    assert_eq!(heard.expired(&key()), None);
}

#[test]
fn a_full_watch_refuses_new_keys() {
    let mut heard = KeyWatch::default();
    let key = |n: usize| TaskKey::build("C", "m", [n.to_string()]).unwrap();
    for n in 0..WAITING_MAX {
        heard.note(key(n), Change::Armed, now());
    }
    assert_eq!(
        heard.note(key(WAITING_MAX), Change::Armed, now()),
        Noted::Full
    );
    assert_eq!(heard.note(key(0), Change::Armed, now()), Noted::Known);
}
