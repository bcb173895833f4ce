// One `W 20` per connection, then bare v1 `D` frames for ever.  It takes any 'A' for an
// acknowledgement, and dies of one that is not v1.
const lumberjack = require("lumberjack-protocol");
const fs = require("fs");
const [port, ca, frames] = process.argv.slice(2);
const options = {host: "localhost", port: +port, ca: [fs.readFileSync(ca)]};
const client = lumberjack.client(options, {windowSize: 20, reconnect: 200});
let connections = 0, lost = null;
client.on("dropped", count => { console.error("dropped", count); process.exit(3); });
client.on("disconnect", why => { lost = why || lost; });
client.on("connect", () => {
  if (++connections > 1) { console.error("disconnected", lost); process.exit(4); }
  const socket = client._socket;
  let sent = 0;
  const more = () =>
    client.writeDataFrame({line: `line ${sent++}`, offset: String(sent)});
  socket.on("ack", seq => {
    console.log(seq);
    if (seq === +frames) process.exit(0);
    while (sent < +frames && sent < seq + 20) more();
  });
  for (let n = 0; n < 20; n++) more();
});
setTimeout(() => { console.error("no acknowledgement", lost); process.exit(5); }, 600000);
