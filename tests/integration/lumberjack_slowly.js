let connections = 0, sent = 1;
client.on("connect", () => {
  if (++connections > 1) { console.error("disconnected"); process.exit(4); }
  client._socket.on("ack", seq => {
    console.log(seq);
    if (seq === 20) process.exit(0);
    if (seq === sent) more();
  });
});
function more() {
  for (let n = 0; n < 5 && sent < 20; n++)
    client.writeDataFrame({line: `line ${++sent}`});
}
setTimeout(() => { console.error("no acknowledgement"); process.exit(5); }, 600000);
