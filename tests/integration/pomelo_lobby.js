// One published Pomelo client that prints each push until it is kicked, or hears onEnd, or
// its gateway is gone.
//
//   node program.js CLIENT PORT UID
//
// Behind pomelo_libraries.js; over TLS.
const [name, port, uid] = process.argv.slice(2);
const client = clients[name](port);
for (const route of ["onProbe", "onScore", "onRoom", "onRow", "onAfter"]) {
  client.on(route, body => tell(route, body));
}
const end = what => (...said) => { tell(what); process.exit(0); };
client.on("onEnd", end("onEnd"));
client.on("onKick", end("kick"));
client.on("close", end("close"));
client.on("disconnect", end("close"));
client.on("io-error", end("close"));
client.init({host: "127.0.0.1", port: +port, user: {uid}}, () => {});
setTimeout(() => { tell("late"); process.exit(1); }, 600000);
