//! redis-rs, this project's own client.

use std::fmt::Write as _;

use redis::{AsyncCommands as _, RedisResult, Value, cmd, pipe};

/// The steps with one version of the protocol: `resp2`, the default, or `resp3`. Returns what other clients print.
pub async fn run(port: u16, protocol: &str, key: &str) -> String {
    let url = format!("redis://127.0.0.1:{port}/?protocol={protocol}");
    let client = redis::Client::open(url).unwrap();
    let mut redis = client.get_multiplexed_async_connection().await.unwrap();
    let k = |number: u8| format!("{key}{number}");
    let mut said = String::new();
    let mut say = |step: &str, answer: RedisResult<Value>| {
        let answer = answer.map_or_else(|error| refusal(&error), |answer| text(&answer));
        writeln!(said, "{step}: {answer}").unwrap();
    };

    let order = r#"{"order":42}"#;
    say("setex", redis.set_ex(k(1), order, 1000).await);
    let mut set = cmd("SET");
    set.arg(k(2)).arg("").arg("PX").arg(2_000_000);
    say("set px", set.query_async(&mut redis).await);
    say("ttl", redis.ttl(k(1)).await);
    say("pttl", redis.pttl(k(2)).await);
    say("get", redis.get(k(1)).await);
    say("get missing", redis.get(k(9)).await);
    say("exists", redis.exists(&[k(1), k(2), k(9)]).await);
    say("expire", redis.expire(k(2), 3000).await);
    say("ttl moved", redis.ttl(k(2)).await);
    say("del", redis.del(k(1)).await);
    say("del again", redis.del(k(1)).await);
    let mut commands = pipe();
    commands.set_ex(k(3), "a", 1000).set_ex(k(4), "b", 1000);
    commands.exists(k(3)).del(k(3)).ttl(k(3));
    say("pipeline", commands.query_async(&mut redis).await);
    let mut transaction = pipe();
    transaction.atomic().set_ex(k(5), "a", 1000);
    transaction.del(k(4)).pttl(k(9));
    say("multi", transaction.query_async(&mut redis).await);
    let mut unknown = cmd("NOSUCH");
    say(
        "unknown",
        unknown.arg(k(1)).arg(7).query_async(&mut redis).await,
    );
    let mut arity = cmd("SETEX");
    say(
        "arity",
        arity.arg(k(1)).arg(10).query_async(&mut redis).await,
    );
    said
}

fn text(answer: &Value) -> String {
    match answer {
        Value::Okay => "OK".to_owned(),
        Value::Nil => "nil".to_owned(),
        Value::Int(number) => number.to_string(),
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::Array(answers) => {
            let texts: Vec<String> = answers.iter().map(text).collect();
            texts.join(" ")
        }
        other => format!("{other:?}"),
    }
}

fn refusal(error: &redis::RedisError) -> String {
    error.detail().unwrap_or_default().to_owned()
}
