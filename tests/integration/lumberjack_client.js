// A window per event once connected, all before that in one; reads no acknowledgement.
// It half-closes and stays until we close: who hangs up at once resets the connection.
const Client = require("lumberjack-client");
const [port, events] = process.argv.slice(2);
const client = new Client({host: "127.0.0.1", port: +port}, false);
for (let n = 0; n < +events / 2; n++) client.log({message: `line ${n}`});
client.socket.on("connect", () => setImmediate(() => {
  for (let n = +events / 2; n < +events; n++) client.log({message: `line ${n}`});
  client.socket.removeAllListeners("close");
  client.socket.on("close", () => process.exit(0)).resume().end();
}));
setTimeout(() => process.exit(5), 600000);
