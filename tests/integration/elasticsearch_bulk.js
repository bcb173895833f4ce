const [host, count] = process.argv.slice(2);
const {Client} = require("@elastic/elasticsearch");
const client = new Client(
  {node: `http://${host}`, auth: {apiKey: "s3cret"}, compression: true});
const documents = [...Array(+count).keys()].map(n => ({message: `late: ${n}`}));
client.helpers.bulk({
  datasource: documents, concurrency: 1, flushBytes: 20000,
  onDocument: one => ({create: {_index: "shop", _id: one.message}}),
}).then(done => console.log(JSON.stringify(done)));
