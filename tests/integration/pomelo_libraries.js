// Published Pomelo clients, loaded as their users do: what programs of tests begin with.
const fs = require("fs");
const path = require("path");
const vm = require("vm");
const {EventEmitter} = require("events");
const PlainWebSocket = require("ws");

// Their URLs begin with ws://; a program that has `authority` goes over TLS all the same.
const WebSocket = typeof authority === "undefined" ? PlainWebSocket :
  class extends PlainWebSocket {
    constructor(url) {
      super(url.replace(/^ws:/, "wss:"), {ca: authority});
    }
  };
require.cache[require.resolve("ws")].exports = WebSocket;

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
  "pomelo-nodejsclient-websocket": port => {
    const client = require("pomelo-nodejsclient-websocket");
    return new (client.Pomelo || client)({host: "127.0.0.1", port: +port});
  },
  "pinus-robot-plugin": () => {
    global.WebSocket = WebSocket;
    const {PinusWSClient} = require("pinus-robot-plugin/dist/PinusWSClient.js");
    return new PinusWSClient();
  },
};
