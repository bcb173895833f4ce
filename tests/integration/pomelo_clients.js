// One published Pomelo client in a conversation; prints what it heard, a JSON text a line.
//
//   node program.js CLIENT PORT [kick]
//
// Two requests, a notify between them, two pushes from elsewhere; then it is done.
// Or it waits until it is kicked instead of for pushes.
const fs = require("fs");
const path = require("path");
const vm = require("vm");
const {EventEmitter} = require("events");
const WebSocket = require("ws");

const [name, port, end] = process.argv.slice(2);
const tell = (...said) => fs.writeSync(1, JSON.stringify(said) + "\n");
for (const level of ["log", "debug", "info", "error"]) console[level] = () => {};

const clients = {
  "pomelo-jsclient-websocket": () => {
    const stored = {};
    const localStorage = {
      getItem: key => stored[key] || null,
      setItem: (key, value) => { stored[key] = value; },
    };
    const window = {EventEmitter, localStorage};
    const page = {
      window, WebSocket, console, setTimeout, clearTimeout, Uint8Array, ArrayBuffer,
      Float32Array, Float64Array,
    };
    vm.createContext(page);
    const load = file => {
      page.module = {exports: {}};
      const whole = path.join(__dirname, "node_modules", file);
      vm.runInContext(fs.readFileSync(whole, "utf8"), page);
      return page.module.exports;
    };
    const protocol = load("pomelo-protocol/lib/protocol.js");
    window.Protocol = window.Protocol || page.Protocol || protocol;
    window.protobuf = page.protobuf = load("pomelo-protobuf/lib/client/protobuf.js");
    window.protobuf.decodeStr = window.protobuf.decode; // called, and missing there
    load("pomelo-jsclient-websocket/lib/pomelo-client.js");
    return window.pomelo;
  },
  "pomelo-nodejsclient-websocket": () => {
    const client = require("pomelo-nodejsclient-websocket");
    return new (client.Pomelo || client)({host: "127.0.0.1", port: +port});
  },
  "pinus-robot-plugin": () => {
    global.WebSocket = WebSocket;
    const {PinusWSClient} = require("pinus-robot-plugin/dist/PinusWSClient.js");
    return new PinusWSClient();
  },
};

const client = clients[name]();
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
