import io.pravega.client.ClientConfig;
import io.pravega.client.EventStreamClientFactory;
import io.pravega.client.admin.ReaderGroupManager;
import io.pravega.client.admin.StreamManager;
import io.pravega.client.stream.EventRead;
import io.pravega.client.stream.EventStreamReader;
import io.pravega.client.stream.EventStreamWriter;
import io.pravega.client.stream.EventWriterConfig;
import io.pravega.client.stream.ReaderConfig;
import io.pravega.client.stream.ReaderGroupConfig;
import io.pravega.client.stream.ScalingPolicy;
import io.pravega.client.stream.Stream;
import io.pravega.client.stream.StreamConfiguration;
import io.pravega.client.stream.Transaction;
import io.pravega.client.stream.TransactionalEventStreamWriter;
import io.pravega.client.stream.impl.UTF8StringSerializer;
import java.net.URI;
import java.util.Set;
import java.util.TreeSet;

/**
 * What clients of before 0.9 do otherwise: a flush sends a KeepAlive and wants no answer, and a
 * reader group is a stream that the client makes, and seals and deletes, by itself.
 *
 * <p>{@code OldClient all CONTROLLER}; prints {@code events N} for what the tables must hold.
 */
public final class OldClient {
  private static final UTF8StringSerializer TEXT = new UTF8StringSerializer();

  public static void main(String[] words) {
    try {
      run(ClientConfig.builder().controllerURI(URI.create(words[1])).build());
    } catch (Throwable failed) {
      failed.printStackTrace();
      System.exit(1);
    }
    System.exit(0);
  }

  private static void run(ClientConfig config) throws Exception {
    StreamManager streams = StreamManager.create(config);
    streams.createScope("s");
    var two = StreamConfiguration.builder().scalingPolicy(ScalingPolicy.fixed(2)).build();
    check(streams.createStream("s", "t", two), "a stream");
    var events = EventStreamClientFactory.withScope("s", config);
    var how = EventWriterConfig.builder().build();
    Set<String> written = new TreeSet<>();
    try (EventStreamWriter<String> writer = events.createEventWriter("t", TEXT, how)) {
      for (int n = 0; n < 100; n++) {
        written.add("event " + n);
        writer.writeEvent(String.valueOf(n % 10), "event " + n);
        writer.flush();
      }
    }
    try (TransactionalEventStreamWriter<String> writer =
        events.createTransactionalEventWriter("t", TEXT, how)) {
      Transaction<String> transaction = writer.beginTxn();
      for (int n = 0; n < 10; n++) {
        written.add("staged " + n);
        transaction.writeEvent(String.valueOf(n), "staged " + n);
      }
      transaction.commit();
      for (int n = 0; transaction.checkStatus() != Transaction.Status.COMMITTED; n++) {
        check(n < 600, "a transaction is committed");
        Thread.sleep(100);
      }
    }
    ReaderGroupManager groups = ReaderGroupManager.withScope("s", config);
    groups.createReaderGroup("g", ReaderGroupConfig.builder().stream(Stream.of("s", "t")).build());
    Set<String> read = new TreeSet<>();
    try (EventStreamReader<String> reader =
        events.createReader("r", "g", TEXT, ReaderConfig.builder().build())) {
      for (int n = 0; read.size() < written.size(); n++) {
        check(n < 600, "all that was written is read");
        EventRead<String> next = reader.readNextEvent(200);
        check(next.getEvent() == null || read.add(next.getEvent()), "each once");
      }
    }
    check(read.equals(written), "what was written is read");
    groups.deleteReaderGroup("g");
    check(streams.sealStream("s", "t") && streams.deleteStream("s", "t"), "it is deleted");
    check(streams.deleteScope("s"), "nothing is left of the group");
    System.out.println("events " + written.size());
  }

  private static void check(boolean holds, String what) {
    if (!holds) {
      throw new AssertionError("does not hold: " + what);
    }
  }
}
