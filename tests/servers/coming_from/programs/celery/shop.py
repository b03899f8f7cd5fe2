"""A shop whose orders Celery closes. SHOP_BROKER is the broker, SHOP_RAN the file to which tasks write their name."""

import json
import os
import time

from celery import Celery

app = Celery("shop", broker=os.environ["SHOP_BROKER"])


@app.task(bind=True, name="shop.tasks.close")
def close(self, name):
    attempt = self.request.retries + 1
    line = json.dumps({"name": name, "attempt": attempt, "at_ms": int(time.time() * 1000)})
    with open(os.environ["SHOP_RAN"], "a") as ran:
        ran.write(line + "\n")
    if name.startswith("fail") and attempt == 1:
        raise self.retry(countdown=0.2)
