// Splash in a browser.  All that it shows was told by the server: in the answer to
// room.enter, in the pushes onNews (the room) and onLeaders (everybody, from the lake).
"use strict";

const WIDTH = 16, HEIGHT = 10, PAUSE = 110; // ms between two splashes
const asked = new URLSearchParams(location.search);
const find = id => document.getElementById(id);
const board = find("board"), chat = find("chat");
const fields = Array.from({length: WIDTH * HEIGHT}, () => board.appendChild(document.createElement("b")));
let me = asked.get("name") || "", room = asked.get("room") || "lobby", online = false;

// Everybody sees a player in the same colour: it is made of the name.
function colour(name) {
  let sum = 7;
  for (const letter of name) sum = (sum * 31 + letter.codePointAt(0)) >>> 0;
  return `hsl(${(sum % 36) * 10} 78% 62%)`;
}

// -- what the server tells ------------------------------------------------------------

function paint(x, y, player, hit) {
  const field = fields[y * WIDTH + x];
  field.style.background = colour(player);
  field.title = player;
  if (!hit) return;
  field.classList.remove("hit");
  void field.offsetWidth; // so that the animation begins again
  field.classList.add("hit");
}

function line(player, text, note = false) {
  const item = document.createElement("li"), who = document.createElement("b");
  who.textContent = player;
  who.style.setProperty("--who", colour(player));
  item.append(who, note ? " " : ": ", text);
  if (note) item.className = "note";
  const below = chat.scrollHeight - chat.scrollTop - chat.clientHeight < 40;
  chat.append(item);
  if (chat.children.length > 200) chat.firstChild.remove();
  if (below) chat.scrollTop = chat.scrollHeight;
}

const news = {
  "room.enter": it => line(it.player, "came in", true),
  "room.say": it => line(it.player, it.text),
  "room.splash": it => it.fields.forEach(([x, y]) => paint(x, y, it.player, true)),
};
pomelo.on("onNews", all => all.forEach(it => news[it.what]?.(it)));

pomelo.on("onLeaders", best => {
  find("leaders").replaceChildren(...best.map(one => {
    const item = document.createElement("li"), who = document.createElement("span"), count = document.createElement("span");
    [who.textContent, count.textContent] = [one.player, one.fields];
    item.append(who, count);
    item.classList.toggle("me", one.player === me);
    item.style.setProperty("--who", colour(one.player));
    item.style.setProperty("--share", `${100 * one.fields / best[0].fields}%`);
    return item;
  }));
});

// -- the connection -------------------------------------------------------------------

function state(text, on) {
  find("state").textContent = text;
  find("state").classList.toggle("on", on);
  online = on;
}

function request(route, body) {
  return new Promise(answered => pomelo.request(route, {room, ...body}, answered));
}

async function enter(name) {
  room = name;
  for (const button of find("rooms").children) button.classList.toggle("here", button.textContent === room);
  find("where").textContent = room;
  const seen = await request("room.enter");
  if (seen.code !== 200) { // the service is away
    state(seen.msg, false);
    return setTimeout(() => room === name && enter(name), 1000);
  }
  delete find("state").dataset.why;
  fields.forEach(field => { field.style.background = field.title = ""; });
  chat.replaceChildren();
  seen.board.forEach(([x, y, player]) => paint(x, y, player));
  seen.chat.forEach(said => line(said.player, said.text));
  chat.scrollTop = chat.scrollHeight;
  state(`${me}, online`, true);
}

function connect() {
  const port = asked.get("port") || 3010;
  pomelo.init({host: location.hostname, port, user: {uid: me}}, () => enter(room));
}

pomelo.on("onKick", why => find("state").dataset.why = why.reason);
pomelo.on("disconnect", () => {
  pomelo.disconnect(); // ends its timers
  state(`offline: ${find("state").dataset.why || "connecting again"}`, false);
  setTimeout(connect, 1000);
});

// -- what the player does -------------------------------------------------------------

let last = 0, before = null;
async function splash(event) {
  const at = fields.indexOf(document.elementFromPoint(event.clientX, event.clientY));
  if (at < 0 || at === before || !online || performance.now() - last < PAUSE) return;
  [last, before] = [performance.now(), at];
  const answer = await request("room.splash", {x: at % WIDTH, y: Math.floor(at / WIDTH)});
  if (answer.code !== 200) line("Splash", answer.msg, true);
}
board.addEventListener("pointerdown", event => {
  before = null;
  splash(event);
});
board.addEventListener("pointermove", event => event.buttons & 1 && splash(event));

find("say").addEventListener("submit", event => {
  event.preventDefault();
  const field = event.target.querySelector("input"), text = field.value.trim();
  if (!text || !online) return;
  field.value = "";
  request("room.say", {text}).then(answer => answer.code === 200 || line("Splash", answer.msg, true));
});

for (const name of ["lobby", "garden", "cellar"]) {
  const button = find("rooms").appendChild(document.createElement("button"));
  button.textContent = name;
  button.addEventListener("click", () => online && enter(name));
}

function play() {
  document.documentElement.style.setProperty("--mine", colour(me));
  connect();
}
if (me) play();
else {
  find("hello").addEventListener("close", event => {
    me = event.target.querySelector("input").value.trim().slice(0, 16);
    me ? play() : event.target.showModal();
  });
  find("hello").showModal();
}
