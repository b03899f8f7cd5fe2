"""A pull worker. Needs redis-py:  python3 worker.py [host:port]"""

import json, sys, threading, time
import redis

host, port = (sys.argv[1:] or ["127.0.0.1:6380"])[0].split(":")
lapsed = redis.Redis(host=host, port=int(port), decode_responses=True)


def work(task):
    """Raises an exception to fail. Returns the result, which `lapsed show` prints."""
    mail = json.loads(task["payload"] or "{}")
    if "error" in mail:
        raise ValueError(mail["error"])
    time.sleep(mail.get("seconds", 0))
    return {"sent_to": task["args"]}


def renew(task, done):
    while not done.wait(0.5):  # a third of `visibility`, or less
        lapsed.execute_command("LAPSED.RENEW", task["claim"])


while True:
    taken = lapsed.execute_command("LAPSED.TAKE", "mail", "COUNT", 10, "BLOCK", 5000, "WORKER", "py")
    for task in taken:
        task = task if isinstance(task, dict) else dict(zip(task[::2], task[1::2]))
        done = threading.Event()
        threading.Thread(target=renew, args=(task, done), daemon=True).start()
        try:
            report = ["LAPSED.DONE", task["claim"], "RESULT", json.dumps(work(task))]
        except Exception as error:
            permanent = ["PERMANENT"] if isinstance(error, ValueError) else []
            report = ["LAPSED.FAIL", task["claim"], str(error), *permanent]
        done.set()
        lapsed.execute_command(*report)
        print(task["key"], report[0], flush=True)
