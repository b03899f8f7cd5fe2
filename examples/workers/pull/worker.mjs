// A pull worker. Needs ioredis:  node worker.mjs [host:port]
import Redis from "ioredis";
import { setTimeout as sleep } from "node:timers/promises";

const [host, port] = (process.argv[2] ?? "127.0.0.1:6380").split(":");
const taking = new Redis({ host, port }); // a connection that waits answers nothing else meanwhile
const lapsed = new Redis({ host, port });

class Permanent extends Error {}

// Throws to fail. Returns the result, which `lapsed show` prints.
async function work(task) {
  const mail = JSON.parse(task.payload ?? "{}");
  if (mail.error) throw new Permanent(mail.error);
  await sleep(1000 * (mail.seconds ?? 0));
  return { sent_to: task.args };
}

async function run(task) {
  const renewing = setInterval(() => lapsed.call("LAPSED.RENEW", task.claim).catch(console.error), 500); // a third of `visibility`, or less
  let report;
  try {
    report = ["LAPSED.DONE", task.claim, "RESULT", JSON.stringify(await work(task))];
  } catch (error) {
    report = ["LAPSED.FAIL", task.claim, error.message, ...(error instanceof Permanent ? ["PERMANENT"] : [])];
  }
  clearInterval(renewing);
  await lapsed.call(...report);
  console.log(task.key, report[0]);
}

for (;;) {
  const taken = await taking.call("LAPSED.TAKE", "mail", "COUNT", 10, "BLOCK", 5000, "WORKER", "node");
  const tasks = taken.map((flat) => Object.fromEntries(flat.flatMap((name, i) => (i % 2 ? [] : [[name, flat[i + 1]]]))));
  await Promise.all(tasks.map(run));
}
