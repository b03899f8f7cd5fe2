"""Works off the list of a `list` route:  python3 list.py [how many, then end]

A task that is taken is no longer in Redis: a worker that dies loses it. Where that matters, take a stream.
Needs redis-py (`pip install redis`).
"""

import json
import sys

from tasks import connect, run_once

left = int(sys.argv[1]) if len(sys.argv) > 1 else sys.maxsize
server = connect()
while left > 0:
    taken = server.brpop("lapsed:mails", timeout=2)
    if taken:
        run_once(server, json.loads(taken[1]))
        left -= 1
