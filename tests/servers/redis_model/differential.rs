//! The same random commands to a Redis server and to the model of it: the replies and the events are the same.
//!
//! A failure prints the shortest sequence that it finds. `PROPTEST_RNG_SEED` runs others.

use std::cell::RefCell;

use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, TestCaseError, TestCaseResult, TestRunner};

use super::server::{Client, ModelServer, redis_server};
use crate::support::resp_wire::Reply;

const SEQUENCES: u32 = 200;

/// `$k` key, `$o` other key, `$v` value, `$i` small number, `$f` field, `$m` member, `$s` score, `$r` end of a range,
/// `$t` milliseconds until a key expires. `DUE` lets a key expire that is not used meanwhile.
const COMMANDS: &[&str] = &[
    "DUE $k",
    "DUE $k",
    "DUE $k",
    "DUE $k",
    "SET $k $v",
    "SET $k $v PX $t",
    "SET $k $v PX $t NX",
    "SET $k $v PX $t XX",
    "SET $k $v KEEPTTL",
    "SET $k $v GET",
    "SET $k $v NX GET",
    "SET $k $v EX 100 PX 5",
    "SET $k $v PXAT 1",
    "SET $k $v EX $i",
    "SETEX $k 500 $v",
    "PSETEX $k $t $v",
    "SETNX $k $v",
    "GETSET $k $v",
    "GETDEL $k",
    "GETEX $k",
    "GETEX $k PERSIST",
    "GETEX $k PX $t",
    "GETEX $k PXAT 1",
    "GET $k",
    "GETRANGE $k $i $i",
    "SETRANGE $k 2 $v",
    "APPEND $k $v",
    "STRLEN $k",
    "INCR $k",
    "DECRBY $k $i",
    "MGET $k $o",
    "MSET $k $v $o $v",
    "DEL $k",
    "DEL $k $o $k",
    "UNLINK $k",
    "EXISTS $k $o $k",
    "TOUCH $k $o",
    "TYPE $k",
    "PERSIST $k",
    "DBSIZE",
    "TTL $k",
    "PEXPIRE $k $t",
    "PEXPIRE $k $t NX",
    "PEXPIRE $k $t XX",
    "PEXPIREAT $k 4000000000000 GT",
    "PEXPIREAT $k 3000000000000 LT",
    "PEXPIRE $k $t NX XX",
    "EXPIRE $k $i",
    "PEXPIREAT $k 1",
    "RENAME $k $o",
    "RENAMENX $k $o",
    "COPY $k $o",
    "COPY $k $o REPLACE",
    "COPY $k $o DB 1",
    "MOVE $k 1",
    "SWAPDB 0 1",
    "FLUSHDB",
    "OBJECT IDLETIME $k",
    "HSET $k $f $v",
    "HSET $k $f $v $f $v",
    "HSETNX $k $f $v",
    "HGET $k $f",
    "HMGET $k $f $f",
    "HGETALL $k",
    "HDEL $k $f $f",
    "HLEN $k",
    "HEXISTS $k $f",
    "HINCRBY $k $f $i",
    "HSCAN $k 0",
    "HKEYS $k",
    "HVALS $k",
    "LPUSH $k $v $v",
    "RPUSH $k $v",
    "RPUSHX $k $v",
    "LPOP $k",
    "RPOP $k",
    "LPOP $k 2",
    "LLEN $k",
    "LRANGE $k $i $i",
    "LREM $k $i $v",
    "LINDEX $k $i",
    "LSET $k $i $v",
    "LTRIM $k $i $i",
    "RPOPLPUSH $k $o",
    "LMOVE $k $o LEFT RIGHT",
    "SADD $k $m $m",
    "SREM $k $m",
    "SCARD $k",
    "SISMEMBER $k $m",
    "ZADD $k $s $m",
    "ZADD $k $s $m $s $m",
    "ZADD $k NX $s $m",
    "ZADD $k XX CH $s $m",
    "ZADD $k GT $s $m",
    "ZADD $k LT CH $s $m",
    "ZADD $k INCR $s $m",
    "ZINCRBY $k $s $m",
    "ZREM $k $m $m",
    "ZSCORE $k $m",
    "ZMSCORE $k $m $m",
    "ZCARD $k",
    "ZCOUNT $k $r $r",
    "ZRANK $k $m",
    "ZREVRANK $k $m",
    "ZRANGE $k $i $i",
    "ZRANGE $k $i $i REV WITHSCORES",
    "ZRANGE $k $r $r BYSCORE LIMIT 0 2",
    "ZRANGEBYSCORE $k $r $r WITHSCORES",
    "ZRANGEBYSCORE $k $r $r LIMIT $i $i",
    "ZREVRANGEBYSCORE $k $r $r WITHSCORES LIMIT 1 2",
    "ZREMRANGEBYSCORE $k $r $r",
    "ZREMRANGEBYRANK $k $i $i",
    "ZPOPMIN $k",
    "ZPOPMAX $k 2",
    "ZSCAN $k 0 MATCH m*",
    "XLEN $k",
    "PUBLISH $k $v",
    "PUBSUB NUMPAT",
    "PUBSUB NUMSUB $k",
    "CONFIG GET notify-keyspace-events",
    "CONFIG SET notify-keyspace-events KEA",
    "CONFIG SET notify-keyspace-events Exg",
    "CONFIG SET notify-keyspace-events Kz",
    "EVAL return+redis.call('GET',KEYS[1]) 1 $k",
    "EVAL return+{1,2.9,'a',false,true} 0",
    "EVAL return+{redis.call('ZSCORE',KEYS[1],ARGV[1])} 1 $k $m",
    "EVAL local+t=redis.pcall('LLEN',KEYS[1])+return+type(t)=='table'+and+t.err+or+t 1 $k",
    "EVAL return+redis.call('ZADD',KEYS[1],ARGV[1]*3,ARGV[2]) 1 $k 0.1 $m",
    "EVAL return+redis.call('SET',KEYS[1],1/3) 1 $k",
    "EVAL return+redis.status_reply('FINE') 0",
    "EVAL return+redis.error_reply('MY+fault') 0",
    "EVAL return+redis.call('NOPE') 0",
    "EVAL return+tostring(2^53) 0",
    "GET",
    "NOPE $k",
    "SELECT 99",
    "HSET $k $f",
];

fn command() -> impl Strategy<Value = Vec<String>> {
    let text = |values: &'static [&'static str]| select(values).prop_map(str::to_owned).boxed();
    select(COMMANDS).prop_flat_map(move |template| {
        let words: Vec<BoxedStrategy<String>> = template
            .split(' ')
            .map(|word| match word {
                "$k" | "$o" => text(&["a", "b", "c", "d"]),
                "$v" => text(&["", "1", "-7", "x", "lapsed:1800000000000"]),
                "$i" => text(&["-3", "-1", "0", "1", "2", "9", "01", "x"]),
                "$f" | "$m" => text(&["m1", "m2", "m3"]),
                "$s" => text(&[
                    "1",
                    "2",
                    "2.5",
                    "-1",
                    "inf",
                    "-inf",
                    "1e20",
                    "0.1",
                    "1800000000000",
                    "x",
                ]),
                "$r" => text(&["-inf", "1", "(1", "2", "(2.5", "+inf", "x"]),
                "$t" => text(&["300000", "900000", "0", "-5"]),
                word => Just(word.replace('+', " ")).boxed(),
            })
            .collect();
        words
    })
}

#[tokio::test]
async fn the_model_gives_the_replies_and_the_events_of_redis_server() {
    let (redis, model) = (redis_server().await, ModelServer::start());
    let clients = RefCell::new((Client::new(redis.port()), Client::new(model.port)));
    let config = Config {
        cases: SEQUENCES,
        failure_persistence: None,
        ..Config::default()
    };
    let sequences = proptest::collection::vec(command(), 1..40);
    let result = TestRunner::new(config).run(&sequences, |commands| {
        let (redis, model) = &mut *clients.borrow_mut();
        compare(redis, model, &commands)
    });
    if let Err(difference) = result {
        panic!("{difference}");
    }
}

fn compare(redis: &mut Client, model: &mut Client, commands: &[Vec<String>]) -> TestCaseResult {
    for client in [&mut *redis, &mut *model] {
        client.run(&["FLUSHALL"]);
        client.run(&["CONFIG", "SET", "notify-keyspace-events", "KEA"]);
    }
    for words in commands {
        if let [due, key] = &words[..]
            && due == "DUE"
        {
            let armed = redis.run(&["PEXPIRE", key, "1"]);
            // Redis before 7.2 reads its clock twice, and deletes a key that has fallen due in between.
            let model_does: &[&str] =
                match armed.events.iter().any(|event| event.starts_with("del ")) {
                    true => &["DEL", key],
                    false => &["PEXPIRE", key, "1"],
                };
            model.run(model_does);
            redis.wait(1);
            model.wait(1);
            continue;
        }
        let (expected, found) = (redis.run(words), model.run(words));
        let is_same = same(words, &expected.reply, &found.reply) && expected.events == found.events;
        if !is_same {
            let text = format!("{words:?}: redis-server {expected:?}, the model {found:?}");
            return Err(TestCaseError::fail(text));
        }
    }
    Ok(())
}

/// Errors of scripts are the same if their code is, and what a client is told in other words.
fn same(words: &[String], expected: &Reply, found: &Reply) -> bool {
    let code = |text: &str| text.split(' ').next().unwrap_or_default().to_owned();
    match (expected, found) {
        (Reply::Error(expected), Reply::Error(found)) if words[0] == "EVAL" => {
            code(expected) == code(found)
        }
        // Idle seconds are rounded by two clocks.
        (Reply::Integer(_), Reply::Integer(_)) if words[0] == "OBJECT" => true,
        _ => expected == found,
    }
}
