// One published Pomelo client: prints what the handshake's response told it as `user`.
//
//   node program.js CLIENT PORT UID
//
// Behind pomelo_libraries.js; over TLS.
const [name, port, uid] = process.argv.slice(2);
const client = clients[name](port);
client.on("onKick", body => tell("kick", body || null));
client.on("io-error", () => { tell("no connection"); process.exit(1); });
client.init({
  host: "127.0.0.1",
  port: +port,
  user: {uid},
  handshakeCallback: user => tell("user", user === undefined ? null : user),
}, () => {
  client.request("area.player.move", {}, (...found) => {
    tell("answer", found.pop());
    process.exit(0);
  });
});
setTimeout(() => { tell("late"); process.exit(1); }, 600000);
