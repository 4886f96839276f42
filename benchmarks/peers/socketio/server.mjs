// Socket.IO with the Redis Streams adapter and connection state recovery, as a peer of the gateway.
//
// A client joins the room of a topic and gets its updates; a publisher's value goes to all sockets of that room on all
// servers, through the adapter. The settings are explained in benchmarks/peers/README.md.
//
//     node server.mjs PORT REDIS_URL received|stored
//
// The last argument says when a publish is acknowledged. "received": at once, as applications do, since emit() of
// Socket.IO tells nothing of its outcome. "stored": when the adapter has the entry's id from Redis, which is what the
// gateway promises; the public API has no such thing, so this calls the adapter's own method.
import { createServer } from "node:http";
import process from "node:process";
import { createAdapter } from "@socket.io/redis-streams-adapter";
import { createClient } from "redis";
import { Server } from "socket.io";

const HOST = "127.0.0.1";
const LISTEN_BACKLOG = 4096; // thousands of clients come at once after a failure
const RECOVERY_WINDOW_MS = 120_000; // Socket.IO's documented example; the default is to keep nothing
const EVENT_PACKET = 2; // socket.io-protocol, "packet types"
const OFFSET_FIELD = 2; // ["update", value, offset]: the adapter appends the entry's id when it has it

const [port, redisUrl, acknowledgeWhen] = process.argv.slice(2);
if (!["received", "stored"].includes(acknowledgeWhen)) {
  throw new Error("usage: node server.mjs PORT REDIS_URL received|stored");
}

const redis = createClient({ url: redisUrl });
redis.on("error", (error) => console.error(error));
await redis.connect();

const http = createServer();
const io = new Server(http, {
  adapter: createAdapter(redis, { onlyPlaintext: true }),
  connectionStateRecovery: { maxDisconnectionDuration: RECOVERY_WINDOW_MS, skipMiddlewares: true },
  transports: ["websocket"],
  perMessageDeflate: false,
  httpCompression: false,
  serveClient: false,
});
// The upgrade request is not needed any more; keeping it costs memory for each client.
io.engine.on("connection", (connection) => {
  connection.request = null;
});

async function publishStored(topic, value, acknowledge) {
  const packet = { type: EVENT_PACKET, data: ["update", value], nsp: "/" };
  await io.of("/").adapter.broadcast(packet, { rooms: new Set([topic]), except: new Set(), flags: {} });
  // The adapter goes on after an error of Redis; without an offset nothing was stored, so nothing is acknowledged.
  if (packet.data[OFFSET_FIELD] !== undefined) {
    acknowledge();
  }
}

function publishReceived(topic, value, acknowledge) {
  io.to(topic).emit("update", value);
  acknowledge();
}

const publish = acknowledgeWhen === "stored" ? publishStored : publishReceived;

io.on("connection", (socket) => {
  socket.on("subscribe", (topic, acknowledge) => {
    socket.join(topic);
    acknowledge();
  });
  socket.on("publish", publish);
});

http.listen({ host: HOST, port: Number(port), backlog: LISTEN_BACKLOG }, () => {
  console.log("listening %d, WebSocket masks by %s", http.address().port, process.env.WS_NO_BUFFER_UTIL ? "JavaScript" : "bufferutil");
});
