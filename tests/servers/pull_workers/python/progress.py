"""Takes a task and says how far it is. Arguments: host:port. Prints each answer."""

import sys

import redis

host, port = sys.argv[1].split(":")
lapsed = redis.Redis(host=host, port=int(port), decode_responses=True)
task = lapsed.execute_command("LAPSED.TAKE", "mail", "BLOCK", 60000)[0]
claim = (task if isinstance(task, dict) else dict(zip(task[::2], task[1::2])))["claim"]
print(lapsed.execute_command("LAPSED.RENEW", claim, "PROGRESS", 40, "TEXT", "row 4 of 10, ü"))
try:
    lapsed.execute_command("LAPSED.RENEW", claim, "PROGRESS", 101)
except redis.ResponseError as error:
    print(error)
