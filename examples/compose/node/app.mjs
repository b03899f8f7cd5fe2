// Schedules a mail, and sends mails that are due.
import { createClient } from "redis";

const lapsed = await createClient({ socket: { path: process.env.LAPSED_SOCKET } }).connect();
await lapsed.setEx(`Mail@send@${Date.now()}`, 2, '{"by": "node"}');
for (;;) {
  const tasks = await lapsed.sendCommand(["LAPSED.TAKE", "mail", "BLOCK", "2000", "WORKER", "node"]);
  for (const task of tasks) {
    console.log(`node: sending ${task.key}`);
    await lapsed.sendCommand(["LAPSED.DONE", task.claim]);
  }
}
