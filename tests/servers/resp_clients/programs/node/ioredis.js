// ioredis. Arguments: the port or the path of a socket, and what the keys begin with.
import { Redis } from "ioredis";

import { refused, said } from "./said.js";

const [port, key] = process.argv.slice(2);
const redis = new Redis(port);
redis.on("error", (error) => console.log(`error: ${error.message}`));
const answers = (results) => results.map(([error, answer]) => error ?? answer);

said("setex", await redis.setex(`${key}1`, 1000, '{"order":42}'));
said("set px", await redis.set(`${key}2`, "", "PX", 2_000_000));
said("ttl", await redis.ttl(`${key}1`));
said("pttl", await redis.pttl(`${key}2`));
said("get", await redis.get(`${key}1`));
said("get missing", await redis.get(`${key}9`));
said("exists", await redis.exists(`${key}1`, `${key}2`, `${key}9`));
said("expire", await redis.expire(`${key}2`, 3000));
said("ttl moved", await redis.ttl(`${key}2`));
said("del", await redis.del(`${key}1`));
said("del again", await redis.del(`${key}1`));
const queue = () => redis.pipeline().setex(`${key}3`, 1000, "a").setex(`${key}4`, 1000, "b");
said("pipeline", answers(await queue().exists(`${key}3`).del(`${key}3`).ttl(`${key}3`).exec()));
said("multi", answers(await redis.multi().setex(`${key}5`, 1000, "a").del(`${key}4`).pttl(`${key}9`).exec()));
await refused("unknown", redis.call("NOSUCH", `${key}1`, "7"));
await refused("arity", redis.call("SETEX", `${key}1`, "10"));
await redis.quit();
