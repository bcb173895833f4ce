// One published Pomelo client in many games, one after the other; behind
// pomelo_libraries.js.
//
//   node program.js CLIENT GAMES
//
// GAMES is JSON: [[port, [[route, body], …]], …].  Prints a JSON text for each answer:
// [port, route, what it says]; each request waits for the answer to the one before.
const [name, games] = process.argv.slice(2);

async function play(port, said) {
  const client = clients[name](port);
  await new Promise(ready =>
    client.init({host: "127.0.0.1", port: +port, user: {uid: "alice"}}, ready));
  client.on("onKick", body => tell(port, "kick", body || null));
  for (const [route, body] of said) {
    const answer = await new Promise(heard =>
      client.request(route, body, (...found) => heard(found.pop())));
    tell(port, route, answer);
  }
}

(async () => {
  for (const [port, said] of JSON.parse(games)) await play(port, said);
  process.exit(0);
})();
setTimeout(() => { tell("late"); process.exit(1); }, 600000);
