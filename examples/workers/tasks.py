"""What the workers share."""

import os
import sys

import redis


def connect():
    """The server of `LAPSED_WORKER_REDIS`, `redis://[user:password@]host[:port][/database]`: the one of `redis.url`."""
    url = os.environ.get("LAPSED_WORKER_REDIS", "redis://127.0.0.1:6379/0")
    return redis.Redis.from_url(url, decode_responses=True, socket_timeout=10)


def run_once(server, task):
    """Runs a task unless it has been run: tasks arrive at least once, and `id` stays the same.

    Who dies between the work and the note does the work again. Effects in a database can have it exactly: insert the
    id into a table with a unique key, in the transaction of the effects.
    """
    done = f"worker:done:{task['id']}"
    if server.exists(done):
        return
    handle(task)
    server.set(done, "1", ex=7 * 24 * 3600)


def handle(task):
    """What there is to do. Class and method choose among what is listed here; they never become names of code."""
    match (task["class"], task["method"]):
        case ("Order", "close"):
            print("closing order", task["args"][0], flush=True)
        case ("Mail", "remind"):
            print("reminding customer", task["args"][0], flush=True)
        case _:
            print("unknown task", task["key"], file=sys.stderr)
