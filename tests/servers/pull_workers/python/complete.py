"""Completes a task in a transaction. Arguments: host, port, user, password, database, claim. Prints what came of it."""

import sys

import pymysql

COMPLETE = """
UPDATE tb_time_limit_task
   SET status = 1, finished_at = UNIX_TIMESTAMP() + MICROSECOND(NOW(3)) * 0.000001, lease_until = 0, last_error = NULL
 WHERE id = %s AND end_time = CAST(%s AS SIGNED) / 1000 AND owner = UNHEX(%s)
   AND status = 0 AND recurrence IS NULL
"""

host, port, user, password, database, claim = sys.argv[1:]
db = pymysql.connect(host=host, port=int(port), user=user, password=password, database=database)
row, due, owner = claim.split(".")[0].split("-")
with db.cursor() as cursor:
    cursor.execute("INSERT INTO effects (name, task) VALUES ('python', %s)", (claim[:64],))
    if cursor.execute(COMPLETE, (row, due, owner)) == 1:
        db.commit()
        print("committed")
    else:
        db.rollback()
        print("lost")
