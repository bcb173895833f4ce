// Writes pomelo-packages.jsonl, pomelo-messages.jsonl and pomelo-protobuf.jsonl with
// what the published codecs say:
//
//     npm install --ignore-scripts pomelo-protocol@0.1.6 pomelo-protobuf@0.4.0
//     NODE_PATH=node_modules node tests/vectors/pomelo.js tests/vectors
"use strict";
const crypto = require("crypto");
const fs = require("fs");
const path = require("path");
const { Message, Package } = require("pomelo-protocol");
const protobuf = require("pomelo-protobuf");
const browser = require("pomelo-protobuf/lib/client/protobuf.js");

const hex = (bytes) => (bytes ? Buffer.from(bytes).toString("hex") : "");

function write(name, rows) {
  const lines = rows.map((row) => JSON.stringify(row) + "\n");
  fs.writeFileSync(path.join(process.argv[2] || ".", name), lines.join(""));
}

const packages = [];
for (const type of [1, 2, 3, 4, 5]) {
  for (const size of [0, 1, 255, 256, 65535, 65536]) {
    const body = Buffer.alloc(size, 0x61);
    const head = hex(Package.encode(type, size ? body : null)).slice(0, 8);
    packages.push({ type, size, head });
  }
}
write("pomelo-packages.jsonl", packages);

const messages = [];
const ids = [1, 2, 126, 127, 128, 129, 300, 16383, 16384, 2097151, 2097152,
             268435455, 268435456, 2147483647];
const routes = ["", "a", "connector.entryHandler.entry", "聊天.发送", "r".repeat(255)];
const codes = [1, 127, 128, 255, 256, 65535];
const body = Buffer.from('{"a":"ü"}');
for (const [type, kind] of [[0, "request"], [1, "notify"], [3, "push"]]) {
  for (const id of type === 0 ? ids : [0]) {
    for (const route of id > 300 ? [routes[2]] : routes) {
      const bytes = Message.encode(id, type, 0, route, body);
      messages.push({ kind, id, route, body: hex(body), hex: hex(bytes) });
    }
    for (const code of id > 300 ? [codes[0]] : codes) {
      const bytes = Message.encode(id, type, 1, code, body);
      messages.push({ kind, id, route: code, body: hex(body), hex: hex(bytes) });
    }
  }
  const empty = Message.encode(7, type, 0, "a.b.c", null);
  messages.push({ kind, id: type ? 0 : 7, route: "a.b.c", body: "", hex: hex(empty) });
}
for (const id of ids) {
  const bytes = Message.encode(id, 2, 0, null, body);
  messages.push({ kind: "response", id, route: null, body: hex(body), hex: hex(bytes) });
}
write("pomelo-messages.jsonl", messages);

const source = {
  uInt32: { "required uInt32 v": 1 },
  sInt32: { "required sInt32 v": 1 },
  int32: { "required int32 v": 1 },
  float: { "required float v": 1 },
  double: { "required double v": 1 },
  string: { "required string v": 1 },
  tags: { "optional uInt32 a": 15, "optional uInt32 b": 16, "optional uInt32 c": 2048 },
  unordered: { "optional uInt32 b": 7, "optional string a": 2, "optional uInt32 c": 11 },
  numbers: {
    "repeated uInt32 u": 1, "repeated sInt32 s": 2, "repeated int32 i": 3,
    "repeated float f": 4, "repeated double d": 5,
  },
  strings: { "repeated string s": 1 },
  nested: {
    "message Path": { "required sInt32 x": 1, "required sInt32 y": 2 },
    "required Path at": 1, "repeated Path path": 2, "optional string name": 3,
  },
  deep: {
    "message A": {
      "message B": { "required string s": 1, "repeated uInt32 n": 2 },
      "optional B b": 1, "repeated B many": 2,
    },
    "optional A a": 1, "optional Global g": 2, "repeated Global gs": 3,
  },
  "message Global": { "optional uInt32 id": 1, "optional Leaf leaf": 2 },
  "message Leaf": { "required double d": 1 },
  onMove: {
    "message Path": { "required uInt32 x": 1, "required uInt32 y": 2 },
    "required uInt32 entityId": 1, "repeated Path path": 2, "required uInt32 speed": 3,
  },
};
const cases = [];
for (const v of [0, 1, 127, 128, 300, 16383, 16384, 2 ** 31, 2 ** 32 - 1, 2 ** 53 - 1]) {
  cases.push(["uInt32", { v }]);
}
for (const type of ["sInt32", "int32"]) {
  for (const v of [0, 1, -1, 63, 64, -64, -65, 300, -300, 2 ** 31 - 1, -(2 ** 31)]) {
    cases.push([type, { v }]);
  }
}
for (const v of [0, 1.5, -1.5, 0.25, 16777216, -0.0078125]) cases.push(["float", { v }]);
for (const v of [0, 1.5, -1.5, 0.1, 1e300, -1e-300, Math.PI]) cases.push(["double", { v }]);
for (const v of ["", "hi", "ü", "你好", "a😀b", "\u0000\n\"\\", "x".repeat(200)]) {
  cases.push(["string", { v }]);
}
cases.push(
  ["tags", { a: 1 }], ["tags", { b: 1 }], ["tags", { c: 1 }], ["tags", { c: 3, b: 2, a: 1 }],
  ["unordered", { c: 1, a: "x", b: 2 }],
  ["numbers", { u: [1, 300], i: [1, -1] }], ["numbers", { s: [0, -1, 1, -300], u: [] }],
  ["numbers", { f: [1.5, 2], d: [0.5] }],
  ["strings", { s: ["a", "bc", "", "😀"] }],
  ["nested", { at: { x: 1, y: -1 }, path: [{ x: 1, y: 2 }, { x: -3, y: 4 }], name: "n" }],
  ["nested", { at: { x: 0, y: 0 }, path: [], unknown: [1, 2] }],
  ["deep", { a: { b: { s: "x", n: [1, 2, 3] }, many: [{ s: "" }, { s: "y", n: [9] }] } }],
  ["deep", { g: { id: 5, leaf: { d: 0.5 } }, gs: [{ id: 1 }, { leaf: { d: -2.5 } }] }],
  ["onMove", { entityId: 14, path: [{ x: 128, y: 796 }, { x: 677, y: 895 }], speed: 160 }],
);
const parsed = protobuf.parse(source);
protobuf.init({ encoderProtos: parsed, decoderProtos: parsed });
browser.init({ encoderProtos: parsed, decoderProtos: parsed });
const proto = [{
  source, parsed,
  version: crypto.createHash("md5")
    .update(JSON.stringify(parsed) + JSON.stringify({})).digest("base64"),
  dictionary: { "z.b.c": 1, "a.b.c": 2, 7: 3 },
  dictVersion: crypto.createHash("md5")
    .update(JSON.stringify({ "z.b.c": 1, "a.b.c": 2, 7: 3 })).digest("base64"),
}];
for (const [route, value] of cases) {
  // The encoder's buffer is twice the value's JSON, which is too short for some values.
  const roomy = Object.assign({}, value, { __room: "x".repeat(2000) });
  const bytes = protobuf.encode(route, roomy);
  proto.push({
    route, value, hex: hex(bytes), browser: hex(browser.encode(route, roomy)),
    decoded: protobuf.decode(route, bytes),
  });
}
write("pomelo-protobuf.jsonl", proto);
