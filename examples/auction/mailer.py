"""The mailer: tells the winners. A pull worker in plain Python: a socket, and SQLite for its own table.

Arguments: the port of the daemon's RESP server, and the database.
"""

import socket
import sqlite3
import sys
import threading
import time

MAIL_TAKES = 0.04


class Lapsed:
    """As much of a Redis client as a worker needs."""

    def __init__(self, port):
        self.file = socket.create_connection(("127.0.0.1", port)).makefile("rwb")

    def ask(self, *words):
        words = [str(word).encode() for word in words]
        self.file.write(b"*%d\r\n" % len(words))
        for word in words:
            self.file.write(b"$%d\r\n%s\r\n" % (len(word), word))
        self.file.flush()
        return self.answer()

    def answer(self):
        line = self.file.readline()
        if not line:
            raise ConnectionError("the daemon is gone")
        kind, rest = line[:1], line[1:-2].decode()
        if kind == b"-":
            raise RuntimeError(rest)
        if kind == b":":
            return int(rest)
        if kind == b"$" and rest != "-1":
            return self.file.read(int(rest) + 2)[:-2].decode()
        if kind == b"*" and rest != "-1":
            return [self.answer() for _ in range(int(rest))]
        return rest if kind == b"+" else None


def work(port, database):
    """Takes and settles tasks until the daemon is gone."""
    lapsed, db = Lapsed(port), sqlite3.connect(database, timeout=5)
    while True:
        for fields in lapsed.ask("LAPSED.TAKE", "mail", "BLOCK", 5000, "WORKER", "mailer.py") or []:
            task = dict(zip(fields[::2], fields[1::2]))
            tell_winner(db, task)
            try:
                lapsed.ask("LAPSED.DONE", task["claim"])
            except RuntimeError as error:
                print(task["key"], error, file=sys.stderr)


def tell_winner(db, task):
    """Sends the mail. A task is given out again if its worker died: the mail carries the id, so that it counts once."""
    auction = int(task["key"].split("@")[2])
    time.sleep(MAIL_TAKES)
    now_ms = time.time_ns() // 1_000_000
    due_ms = int(task["id"].split("-")[1])
    with db:
        db.execute("DELETE FROM tb_shown_bid WHERE auction_id = ?", (auction,))
        db.execute(
            "INSERT INTO tb_effects (key, arming, attempt, due_ms, effect, at_ms) SELECT ?1, ?2, ?3, ?4, 'end announced', ?5"
            " WHERE NOT EXISTS (SELECT 1 FROM tb_effects WHERE arming = ?2)",
            (task["key"], task["id"], int(task["attempt"]), due_ms, now_ms),
        )


def work_on(port, database):
    while True:
        try:
            work(port, database)
        except OSError:
            time.sleep(0.05)  # the daemon starts again


if __name__ == "__main__":
    for _ in range(8):
        threading.Thread(target=work_on, args=(int(sys.argv[1]), sys.argv[2]), daemon=True).start()
    sys.stdin.read()  # until the auction house closes it
