// What the client expects of its page; it knows ws:// only.
var module = {exports: {}};
function EventEmitter() {}
EventEmitter.prototype.on = function (name, act) {
  (this.acts = this.acts || {})[name] = act;
};
EventEmitter.prototype.emit = function (name, ...said) {
  if (this.acts && this.acts[name]) this.acts[name](...said);
};
const Secure = WebSocket;
WebSocket = function (url) { return new Secure(url.replace(/^ws:/, "wss:")); };
