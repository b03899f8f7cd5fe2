"""Schedules tasks as a program with Celery does, beside a worker.

Input: [[line of code, delay in seconds, whether it is revoked]]. Output: [the time in ms before which none may run].
"""

import json
import sys
import time

from shop import app, close

while not app.control.ping(timeout=0.5):
    pass
not_before, revoked = [], []
for line, delay, is_revoked in json.load(sys.stdin):
    not_before.append(int((time.time() + delay) * 1000))
    result = eval(line, {"close": close})
    if is_revoked:
        revoked.append(result.id)
app.control.revoke(revoked)
print(json.dumps(not_before))
