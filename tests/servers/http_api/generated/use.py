"""Schedules, works and operates with the client that was generated from the description of the API."""

import sys

from lapsed_client import Client
from lapsed_client.api.operations import cancel_tasks, get_stats, list_pauses, pause
from lapsed_client.api.tasks import create_task, get_task, list_tasks, move_task, put_task
from lapsed_client.api.workers import complete_claim, take_tasks
from lapsed_client.models import Bulk, Done, NewDue, NewPause, NewTask, Problem, Take

client = Client(base_url=sys.argv[1])

made = create_task.sync_detailed(client=client, body=NewTask(key="Mail@send@1", in_="0ms", payload={"to": "you"}))
assert made.status_code == 201, made
taken = take_tasks.sync(queue="mail", client=client, body=Take(wait="20s", worker="python"))
[task] = taken.tasks
assert (task.key, task.payload) == ("Mail@send@1", {"to": "you"}), task
done = complete_claim.sync_detailed(claim=task.claim, client=client, body=Done(result={"sent": True}))
assert done.status_code == 204, done
shown = get_task.sync(key="Mail@send@1", client=client)
assert (shown.state, shown.result) == ("done", {"sent": True}), shown

put = put_task.sync_detailed(key="Order@close@4/2", client=client, body=NewTask(at="2035-01-01T09:00:00Z"))
assert put.status_code == 201, put
moved = move_task.sync(key="Order@close@4/2", client=client, body=NewDue(in_="1h"), if_match=put.headers["etag"])
assert moved.id != put.parsed.id, moved
late = move_task.sync_detailed(key="Order@close@4/2", client=client, body=NewDue(in_="1h"), if_match=put.headers["etag"])
assert late.status_code == 412 and isinstance(late.parsed, Problem), late
page = list_tasks.sync(client=client, class_="Order", state="pending", limit=10)
assert [task.key for task in page.tasks] == ["Order@close@4/2"], page
would = cancel_tasks.sync(client=client, body=Bulk(class_="Order", dry_run=True))
assert (would.tasks, would.done) == (1, True), would
assert pause.sync_detailed(client=client, body=NewPause(class_="Order")).status_code == 201
assert list_pauses.sync(client=client).pauses[0].class_ == "Order"
assert get_stats.sync(client=client).done == 1
missing = get_task.sync_detailed(key="Order@close@none", client=client)
assert missing.parsed.type_ == "/problems/no-task", missing
print("ok")
