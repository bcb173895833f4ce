// One published Pomelo client in a conversation; prints what it heard, a JSON text a line.
//
//   node program.js CLIENT PORT [kick]
//
// Two requests, a notify between them, two pushes from elsewhere; then it is done.
// Or it waits until it is kicked instead of for pushes.
// Behind pomelo_libraries.js.
const [name, port, end] = process.argv.slice(2);
const client = clients[name](port);
const awaited = new Set(["answers", ...(end ? [end] : ["onMove", "onChat"])]);
const done = what => {
  awaited.delete(what);
  if (!awaited.size) process.exit(0);
};
for (const route of ["onMove", "onChat"]) {
  client.on(route, body => { tell("push", route, body); done(route); });
}
client.on("onKick", body => { tell("kick", body || null); done("kick"); });
client.init({host: "127.0.0.1", port: +port, user: {uid: "alice"}}, () => {
  client.request("area.player.move", {to: {x: 1, y: -2}, n: 3}, (...first) => {
    tell("answer", "area.player.move", first.pop()); // some pass an error before it
    client.notify("chat.room.say", {text: "hi"});
    client.request("other.x.y", {a: "ü😀"}, (...second) => {
      tell("answer", "other.x.y", second.pop());
      done("answers");
    });
  });
});
setTimeout(() => { tell("late", ...awaited); process.exit(1); }, 600000);
