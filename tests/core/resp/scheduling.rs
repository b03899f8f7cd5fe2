//! Commands that create, move and cancel tasks.

use super::door::Door;

#[tokio::test]
async fn a_setex_is_a_task_with_its_value_as_payload() {
    let door = Door::open();
    let mut wire = door.connect().await;
    assert_eq!(wire.says("PING").await, "+PONG");
    assert_eq!(
        wire.says("SETEX Order@close@42 1800 '{\"a\": 1.10}'").await,
        "+OK"
    );
    assert_eq!(wire.says("TTL Order@close@42").await, ":1800");
    assert_eq!(
        wire.says("GET Order@close@42").await,
        "$11\r\n{\"a\": 1.10}"
    );
    let task = door.tasks.find("Order@close@42").await.unwrap().unwrap();
    assert_eq!(task.payload.as_deref(), Some("{\"a\": 1.10}"));
    assert_eq!(wire.says("DEL Order@close@42").await, ":1");
    assert_eq!(wire.says("DEL Order@close@42").await, ":0");
    assert_eq!(wire.says("TTL Order@close@42").await, ":-2");
}
