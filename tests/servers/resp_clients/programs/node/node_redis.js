// node-redis. Arguments: the port or the path of a socket, and what the keys begin with.
import { createClient } from "redis";

import { refused, said } from "./said.js";

const [port, key] = process.argv.slice(2);
const client = createClient(port[0] === "/" ? { socket: { path: port } } : { url: `redis://127.0.0.1:${port}` });
client.on("error", (error) => console.log(`error: ${error.message}`));
await client.connect();

said("setex", await client.setEx(`${key}1`, 1000, '{"order":42}'));
said("set px", await client.set(`${key}2`, "", { PX: 2_000_000 }));
said("ttl", await client.ttl(`${key}1`));
said("pttl", await client.pTTL(`${key}2`));
said("get", await client.get(`${key}1`));
said("get missing", await client.get(`${key}9`));
said("exists", await client.exists([`${key}1`, `${key}2`, `${key}9`]));
said("expire", await client.expire(`${key}2`, 3000));
said("ttl moved", await client.ttl(`${key}2`));
said("del", await client.del(`${key}1`));
said("del again", await client.del(`${key}1`));
const queue = () => client.multi().setEx(`${key}3`, 1000, "a").setEx(`${key}4`, 1000, "b");
said("pipeline", await queue().exists(`${key}3`).del(`${key}3`).ttl(`${key}3`).execAsPipeline());
said("multi", await client.multi().setEx(`${key}5`, 1000, "a").del(`${key}4`).pTTL(`${key}9`).exec());
await refused("unknown", client.sendCommand(["NOSUCH", `${key}1`, "7"]));
await refused("arity", client.sendCommand(["SETEX", `${key}1`, "10"]));
await client.close();
