const [kind, host, count] = process.argv.slice(2);
const {LoggerProvider, BatchLogRecordProcessor} = require("@opentelemetry/sdk-logs");
const {OTLPLogExporter} = require(`@opentelemetry/exporter-logs-otlp-${kind}`);
const exporter = new OTLPLogExporter({
  url: `http://${host}/v1/logs`, headers: {Authorization: "Bearer s3cret"},
  compression: kind === "proto" ? "gzip" : "none",
});
const provider = new LoggerProvider({processors: [new BatchLogRecordProcessor({exporter})]});
const logger = provider.getLogger("shop.cart");
for (let n = 0; n < +count; n++) logger.emit({severityText: "WARN", body: `late: ${n}`});
provider.shutdown().then(() => console.log("shut down"));
