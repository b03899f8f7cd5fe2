// Adds jobs as a program with BullMQ does, and tells when each is due by the events that BullMQ writes.
//
// stdin: {"port": 6379, "prefix": "bull", "jobs": [{"queue", "name", "data", "opts", "fail"?, "cron"?, "parent"?}]}
// stdout: [{"queue", "id", "due"}], in the order of the jobs.
import { text } from 'node:stream/consumers';
import { FlowProducer, Queue, Worker } from 'bullmq';
import { Redis } from 'ioredis';

const { port, prefix, jobs } = JSON.parse(await text(process.stdin));
const connection = { host: '127.0.0.1', port, maxRetriesPerRequest: null };
const queues = new Map();
const added = [];
for (const { queue: name, name: job, data, opts, fail, cron, parent } of jobs) {
  if (!queues.has(name)) queues.set(name, new Queue(name, { connection, prefix }));
  const queue = queues.get(name);
  let id;
  if (cron) {
    ({ id } = await queue.upsertJobScheduler('daily', { pattern: cron }, { name: job, data }));
  } else if (parent) {
    const flows = new FlowProducer({ connection, prefix });
    const children = [{ name: job, queueName: name, data, opts }];
    const flow = await flows.add({ name: parent, queueName: name, children });
    id = flow.children[0].job.id;
    await flows.close();
  } else {
    ({ id } = await queue.add(job, data, opts));
  }
  if (fail) {
    // A run that fails: BullMQ counts it and delays the job by its backoff.
    const refuse = async () => {
      throw new Error('the shop is closed');
    };
    const worker = new Worker(name, refuse, { connection, prefix });
    await new Promise((resolve) => worker.once('failed', resolve));
    await worker.close();
  }
  added.push({ queue: name, id });
}
const client = new Redis(connection);
for (const job of added) {
  for (const [, fields] of await client.xrange(`${prefix}:${job.queue}:events`, '-', '+')) {
    const event = {};
    for (let i = 0; i < fields.length; i += 2) event[fields[i]] = fields[i + 1];
    if (event.event === 'delayed' && event.jobId === job.id) job.due = Number(event.delay);
  }
}
for (const queue of queues.values()) await queue.close();
console.log(JSON.stringify(added));
process.exit(0);
