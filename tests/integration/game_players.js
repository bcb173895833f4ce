// Two players of examples/game in a browser that is already there, driven through its
// DevTools: node game_players.js DEVTOOLS-PORT PAGE DIRECTORY
// Prints what both see in the end, and leaves a picture of each page in DIRECTORY.
"use strict";
const fs = require("fs");
const http = require("http");
const path = require("path");
const WebSocket = require("ws");

const [port, page, directory] = process.argv.slice(2);
const pause = ms => new Promise(done => setTimeout(done, ms));

function version() {
  return new Promise((done, failed) => http.get(
    {host: "127.0.0.1", port, path: "/json/version"}, answer => {
      let text = "";
      answer.on("data", part => text += part).on("end", () => done(JSON.parse(text)));
    }).on("error", failed));
}

class Browser {
  constructor(socket) {
    this.socket = socket;
    this.last = 0;
    this.waiting = new Map();
    socket.on("message", data => {
      const said = JSON.parse(data);
      const [done, failed] = this.waiting.get(said.id) || [];
      this.waiting.delete(said.id);
      if (said.error) failed(new Error(JSON.stringify(said.error)));
      else if (done) done(said.result);
    });
  }

  ask(method, params = {}, sessionId = undefined) {
    const id = ++this.last;
    this.socket.send(JSON.stringify({id, method, params, sessionId}));
    return new Promise((...both) => this.waiting.set(id, both));
  }

  async open(name) {
    const url = `${page}&name=${name}`;
    const {targetId} = await this.ask("Target.createTarget", {url, newWindow: true, width: 1180, height: 720});
    const {sessionId} = await this.ask("Target.attachToTarget", {targetId, flatten: true});
    return new Player(name, (method, params) => this.ask(method, params, sessionId));
  }
}

class Player {
  constructor(name, ask) {
    this.name = name;
    this.ask = ask;
  }

  async see(expression) {
    const found = await this.ask("Runtime.evaluate", {expression, returnByValue: true, awaitPromise: true});
    if (found.exceptionDetails) throw new Error(JSON.stringify(found.exceptionDetails));
    return found.result.value;
  }

  async until(expression) {
    while (!await this.see(expression).catch(() => false)) await pause(50);
  }

  async splash(x, y) {
    const [left, top] = await this.see(`(() => {
      const box = document.querySelectorAll("#board b")[${y} * 16 + ${x}].getBoundingClientRect();
      return [box.x + box.width / 2, box.y + box.height / 2];
    })()`);
    const mouse = {x: left, y: top, button: "left", buttons: 1, clickCount: 1};
    await this.ask("Input.dispatchMouseEvent", {type: "mousePressed", ...mouse});
    await this.ask("Input.dispatchMouseEvent", {type: "mouseReleased", ...mouse});
    await this.until(`fields[${y} * 16 + ${x}].title === ${JSON.stringify(this.name)}`);
    await pause(120); // the page itself allows no more
  }

  async say(text) {
    await this.see(`document.querySelector("#say input").focus()`);
    await this.ask("Input.insertText", {text});
    await this.see(`document.querySelector("#say button").click()`);
  }

  async picture() {
    const {data} = await this.ask("Page.captureScreenshot", {format: "png"});
    fs.writeFileSync(path.join(directory, `${this.name}.png`), data, "base64");
  }
}

const SEEN = `({
  held: fields.map(field => field.title).filter(Boolean)
    .reduce((sum, name) => ({...sum, [name]: (sum[name] || 0) + 1}), {}),
  leaders: Object.fromEntries([...document.querySelectorAll("#leaders li")]
    .filter(item => item.children.length === 2)
    .map(item => [item.children[0].textContent, +item.children[1].textContent])),
  chat: [...document.querySelectorAll("#chat li:not(.note)")].map(item => item.textContent),
})`;

async function main() {
  const socket = new WebSocket((await version()).webSocketDebuggerUrl);
  await new Promise(done => socket.on("open", done));
  const browser = new Browser(socket);
  const players = [await browser.open("ada"), await browser.open("grace")];
  for (const player of players) await player.until(`online`);
  const [ada, grace] = players;
  await grace.say("hello <b>ada</b> 👋");
  for (const [x, y] of [[2, 2], [4, 2], [3, 4], [5, 5], [6, 3], [2, 6]]) await ada.splash(x, y);
  for (const [x, y] of [[12, 3], [10, 5], [13, 6], [9, 7], [6, 4]]) await grace.splash(x, y);
  await ada.say("that was mine!");
  // The last word is the lake's: its count is that of the board.
  for (const player of players) await player.until(`(() => {
    const seen = ${SEEN};
    const names = Object.keys(seen.held);
    return seen.chat.length === 2 && names.length === 2
      && names.every(name => seen.held[name] === seen.leaders[name]);
  })()`);
  for (const player of players) await player.picture();
  console.log(JSON.stringify(Object.fromEntries(
    await Promise.all(players.map(async player => [player.name, await player.see(SEEN)])))));
  socket.close();
}

main().catch(why => { console.error(why); process.exit(1); });
