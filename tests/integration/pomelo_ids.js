// Its first id is 1.  Prints the number that each answer's callback was given for.
const fs = require("fs");
for (const level of ["log", "debug", "info", "error"]) console[level] = () => {};
const Pomelo = require("pomelo-client-websocket");
const [port, requests] = process.argv.slice(2);
const client = new Pomelo();
let answered = 0;
client.init({host: "127.0.0.1", port: +port, user: {uid: "alice"}}, () => {
  for (let n = 1; n <= +requests; n++) client.request("a.b.c", {n}, body => {
    fs.writeSync(1, JSON.stringify([n, body]) + "\n");
    if (++answered === +requests) process.exit(0);
  });
});
setTimeout(() => { process.exit(5); }, 120000);
