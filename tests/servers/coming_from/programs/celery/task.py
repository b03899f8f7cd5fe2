"""The task of the route: class, method and arguments on the command line, the task as JSON on standard input."""

import json
import pathlib
import sys
import time

[_, shop_class, method, name] = sys.argv
task = json.load(sys.stdin)
assert (shop_class, method) == ("Order", "close"), sys.argv
line = json.dumps({"name": name, "attempt": task["attempt"], "at_ms": int(time.time() * 1000)})
with pathlib.Path(__file__).with_name("ran").open("a") as ran:
    ran.write(line + "\n")
sys.exit(75 if name.startswith("fail") and task["attempt"] == 1 else 0)
