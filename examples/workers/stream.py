"""Works off the stream of a `stream` route:  python3 stream.py [how many, then end]

Any number of these may run: each task goes to one of them, and comes to another if that one dies.
Needs redis-py (`pip install redis`).
"""

import json
import os
import socket
import sys

import redis

from tasks import connect, run_once

STREAM = "lapsed:orders"
GROUP = "workers"
ABANDONED_MS = 60_000  # longer than any task takes
DELIVERIES_MAX = 5  # an entry that fails as often is moved to FAILED
FAILED = "lapsed:orders:failed"

left = int(sys.argv[1]) if len(sys.argv) > 1 else sys.maxsize
me = f"{socket.gethostname()}:{os.getpid()}"
server = connect()
try:
    # From the beginning of the stream.
    server.xgroup_create(STREAM, GROUP, id="0", mkstream=True)
except redis.ResponseError as error:
    if not str(error).startswith("BUSYGROUP"):
        raise

while left > 0:
    # What another worker took and never acknowledged; else what is new, and up to two seconds for something to come.
    entries = server.xautoclaim(STREAM, GROUP, me, ABANDONED_MS, count=1)[1]
    if not entries:
        found = server.xreadgroup(GROUP, me, {STREAM: ">"}, count=1, block=2000)
        entries = found[0][1] if found else []
    for entry, fields in entries:
        left -= 1
        try:
            if fields:  # else it was cut from the stream (`maxlen`) before anybody got to it
                run_once(server, json.loads(fields["task"]))
        except Exception as error:
            print(f"{entry} failed: {error!r}", file=sys.stderr, flush=True)
            delivered = server.xpending_range(STREAM, GROUP, entry, entry, 1)[0]["times_delivered"]
            if delivered < DELIVERIES_MAX:
                continue  # not acknowledged: some worker takes it again after ABANDONED_MS
            server.xadd(FAILED, fields, maxlen=10_000)
        # Only now: whoever dies before this leaves the task to another worker.
        server.xack(STREAM, GROUP, entry)
