// Adds jobs as a program with BullMQ does, and tells when each is due by the events that BullMQ writes.
//
// stdin: {"port": 6379, "prefix": "bull", "jobs": [{"queue", "name", "data", "opts", "fail"?}]}
// stdout: [{"queue", "id", "due"}], in the order of the jobs.
import { text } from 'node:stream/consumers';
import { Queue, Worker } from 'bullmq';

const { port, prefix, jobs } = JSON.parse(await text(process.stdin));
const connection = { host: '127.0.0.1', port, maxRetriesPerRequest: null };
const queues = new Map();
const added = [];
for (const { queue: name, name: job, data, opts, fail } of jobs) {
  if (!queues.has(name)) queues.set(name, new Queue(name, { connection, prefix }));
  const { id } = await queues.get(name).add(job, data, opts);
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
for (const job of added) {
  const client = await queues.get(job.queue).client;
  for (const [, fields] of await client.xrange(`${prefix}:${job.queue}:events`, '-', '+')) {
    const event = Object.fromEntries(Array.from({ length: fields.length / 2 }, (_, i) => fields.slice(2 * i, 2 * i + 2)));
    if (event.event === 'delayed' && event.jobId === job.id) job.due = Number(event.delay);
  }
}
for (const queue of queues.values()) await queue.close();
console.log(JSON.stringify(added));
process.exit(0);
