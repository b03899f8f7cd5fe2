"""redis-py. Arguments: the port or the path of a socket, and what the keys begin with. Prints the lines that `resp_clients/mod.rs` expects."""

import sys

import redis

port, key = sys.argv[1:]
r = redis.Redis(unix_socket_path=port) if port[0] == "/" else redis.Redis(host="127.0.0.1", port=int(port))


def text(answer):
    if answer is True:
        return "OK"
    if answer is None:
        return "nil"
    return answer.decode() if isinstance(answer, bytes) else str(answer)


def said(step, answer):
    print(f"{step}: {' '.join(map(text, answer)) if isinstance(answer, list) else text(answer)}")


def refused(step, *words):
    try:
        r.execute_command(*words)
    except redis.ResponseError as error:
        said(step, str(error))


said("setex", r.setex(key + "1", 1000, '{"order":42}'))
said("set px", r.set(key + "2", "", px=2_000_000))
said("ttl", r.ttl(key + "1"))
said("pttl", r.pttl(key + "2"))
said("get", r.get(key + "1"))
said("get missing", r.get(key + "9"))
said("exists", r.exists(key + "1", key + "2", key + "9"))
said("expire", int(r.expire(key + "2", 3000)))
said("ttl moved", r.ttl(key + "2"))
said("del", r.delete(key + "1"))
said("del again", r.delete(key + "1"))
with r.pipeline(transaction=False) as pipe:
    pipe.setex(key + "3", 1000, "a").setex(key + "4", 1000, "b").exists(key + "3").delete(key + "3").ttl(key + "3")
    said("pipeline", pipe.execute())
with r.pipeline() as transaction:
    transaction.setex(key + "5", 1000, "a").delete(key + "4").pttl(key + "9")
    said("multi", transaction.execute())
refused("unknown", "NOSUCH", key + "1", "7")
refused("arity", "SETEX", key + "1", 10)
