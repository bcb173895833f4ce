import io.pravega.client.ClientConfig;
import io.pravega.client.EventStreamClientFactory;
import io.pravega.client.admin.StreamManager;
import io.pravega.client.stream.EventStreamWriter;
import io.pravega.client.stream.EventWriterConfig;
import io.pravega.client.stream.Serializer;
import io.pravega.client.stream.StreamConfiguration;
import io.pravega.schemaregistry.client.SchemaRegistryClientConfig;
import io.pravega.schemaregistry.contract.data.Compatibility;
import io.pravega.schemaregistry.contract.data.SerializationFormat;
import io.pravega.schemaregistry.serializer.avro.schemas.AvroSchema;
import io.pravega.schemaregistry.serializer.json.schemas.JSONSchema;
import io.pravega.schemaregistry.serializer.shared.impl.SerializerConfig;
import io.pravega.schemaregistry.serializers.SerializerFactory;
import java.net.URI;
import java.util.function.IntFunction;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericRecord;
import org.apache.avro.generic.GenericRecordBuilder;

/** Writes events with the serializers of Pravega's schema registry: JSON, and Avro. */
public final class Writer {
  /** An event as JSON. */
  public static final class Reading {
    public int n;
    public String unit = "°C";
  }

  private static final Schema AVRO =
      new Schema.Parser()
          .parse(
              "{\"type\": \"record\", \"name\": \"Reading\", \"fields\": ["
                  + "{\"name\": \"n\", \"type\": \"int\"},"
                  + "{\"name\": \"unit\", \"type\": [\"null\", \"string\"]}]}");

  private final ClientConfig controller;
  private final SchemaRegistryClientConfig registry;
  private final int count;

  private Writer(String controller, String registry, int count) {
    this.controller = ClientConfig.builder().controllerURI(URI.create(controller)).build();
    this.registry =
        SchemaRegistryClientConfig.builder().schemaRegistryUri(URI.create(registry)).build();
    this.count = count;
  }

  /** Controller, registry, how many of each kind. */
  public static void main(String[] words) throws Exception {
    Writer writer = new Writer(words[0], words[1], Integer.parseInt(words[2]));
    writer.json();
    writer.avro();
    System.out.println("written");
    System.exit(0);
  }

  private SerializerConfig config(String stream, SerializationFormat format) {
    return SerializerConfig.builder()
        .groupId("shop/" + stream)
        .registryConfig(registry)
        .createGroup(format, Compatibility.allowAny(), true)
        .registerSchema(true)
        .build();
  }

  private void json() {
    Serializer<Reading> serializer =
        SerializerFactory.jsonSerializer(
            config("json", SerializationFormat.Json), JSONSchema.of(Reading.class));
    write(
        "json",
        serializer,
        n -> {
          Reading made = new Reading();
          made.n = n;
          return made;
        });
  }

  private void avro() {
    Serializer<GenericRecord> serializer =
        SerializerFactory.avroSerializer(
            config("avro", SerializationFormat.Avro), AvroSchema.ofRecord(AVRO));
    write(
        "avro",
        serializer,
        n -> new GenericRecordBuilder(AVRO).set("n", n).set("unit", "°C").build());
  }

  private <T> void write(String stream, Serializer<T> serializer, IntFunction<T> event) {
    try (StreamManager streams = StreamManager.create(controller)) {
      streams.createScope("shop");
      streams.createStream("shop", stream, StreamConfiguration.builder().build());
    }
    var how = EventWriterConfig.builder().build();
    try (var factory = EventStreamClientFactory.withScope("shop", controller);
        EventStreamWriter<T> writer = factory.createEventWriter(stream, serializer, how)) {
      for (int n = 0; n < count; n++) {
        writer.writeEvent(event.apply(n));
        if (n == count / 2) {
          System.out.println("half");
        }
      }
      writer.flush();
    }
  }
}
