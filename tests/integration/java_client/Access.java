import io.pravega.client.ClientConfig;
import io.pravega.client.EventStreamClientFactory;
import io.pravega.client.admin.ReaderGroupManager;
import io.pravega.client.admin.StreamManager;
import io.pravega.client.stream.EventWriterConfig;
import io.pravega.client.stream.ReaderConfig;
import io.pravega.client.stream.ReaderGroupConfig;
import io.pravega.client.stream.ScalingPolicy;
import io.pravega.client.stream.StreamConfiguration;
import io.pravega.client.stream.impl.UTF8StringSerializer;
import io.pravega.shared.security.auth.DefaultCredentials;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.URI;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.TimeUnit;

/**
 * Programs of three teams on one gateway, which may do different things: boss manages all
 * of scope s, writer writes s/orders, billing reads it with a reader group of its name.
 */
final class Access {
  private static final String SCOPE = PravegaClient.SCOPE;

  private final URI controller;

  Access(String controller) {
    this.controller = URI.create(controller);
  }

  private ClientConfig as(String name) {
    var credentials = new DefaultCredentials("secret", name);
    return ClientConfig.builder().controllerURI(controller).credentials(credentials).build();
  }

  void run() throws Exception {
    try (var boss = StreamManager.create(as("boss"))) {
      var two = StreamConfiguration.builder().scalingPolicy(ScalingPolicy.fixed(2)).build();
      check(boss.createStream(SCOPE, "orders", two), "boss creates a stream");
      check(boss.createStream(SCOPE, "returns", two), "and another one");
      manage("writer");
      manage("billing");
    }
    try (var events = EventStreamClientFactory.withScope(SCOPE, as("writer"))) {
      var settings = impatient();
      var writer = events.createEventWriter("orders", new UTF8StringSerializer(), settings);
      for (int n = 0; n < 10; n++) {
        writer.writeEvent("key", "order " + n).get(30, TimeUnit.SECONDS);
      }
      var many =
          events.createTransactionalEventWriter(
              "w", "orders", new UTF8StringSerializer(), settings);
      var transaction = many.beginTxn();
      transaction.writeEvent("key", "order 10");
      transaction.commit();
      many.close();
      read();
      denied("writer", () -> group("writer", "billing", "orders"));
      denied("writer", () -> group("writer", "mine", "orders"));
      denied("billing", () -> group("billing", "billing-2", "orders"));
      denied("billing", () -> group("billing", "billing", "returns"));
      denied("billing", () -> write("billing", "orders"));
      denied("writer", () -> write("writer", "returns"));
      System.out.println("written");
      new BufferedReader(new InputStreamReader(System.in)).readLine();
      // Its rule is gone, and its connection was open all the while.
      denied("writer", () -> writer.writeEvent("key", "late").get(60, TimeUnit.SECONDS));
    }
    System.out.println("events 11");
  }

  /** What only boss may. */
  private void manage(String name) throws Exception {
    try (var manager = StreamManager.create(as(name))) {
      var one = StreamConfiguration.builder().build();
      denied(name, () -> manager.createScope("other"));
      denied(name, () -> manager.createStream(SCOPE, "mine", one));
      denied(name, () -> manager.sealStream(SCOPE, "orders"));
      denied(name, () -> manager.checkStreamExists(SCOPE, "returns"));
      check(manager.checkStreamExists(SCOPE, "orders"), name + " finds its stream");
      Set<String> seen = new HashSet<>();
      manager.listStreams(SCOPE).forEachRemaining(each -> seen.add(each.getStreamName()));
      check(seen.equals(Set.of("orders")), name + " sees its stream, and no other: " + seen);
    }
  }

  private void group(String name, String group, String stream) {
    try (var groups = ReaderGroupManager.withScope(SCOPE, as(name))) {
      var config = ReaderGroupConfig.builder().stream(SCOPE + "/" + stream).build();
      groups.createReaderGroup(group, config);
    }
  }

  private void read() throws Exception {
    group("billing", "billing", "orders");
    List<String> found = new ArrayList<>();
    try (var events = EventStreamClientFactory.withScope(SCOPE, as("billing"));
        var reader =
            events.createReader(
                "r", "billing", new UTF8StringSerializer(), ReaderConfig.builder().build())) {
      long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
      while (found.size() < 11 && System.nanoTime() < end) {
        String event = reader.readNextEvent(2000).getEvent();
        if (event != null) {
          found.add(event);
        }
      }
    }
    check(found.equals(PravegaClient.numbered("order", 11)), "billing reads " + found);
  }

  private void write(String name, String stream) throws Exception {
    try (var events = EventStreamClientFactory.withScope(SCOPE, as(name));
        var writer =
            events.createEventWriter(stream, new UTF8StringSerializer(), impatient())) {
      writer.writeEvent("key", "event").get(60, TimeUnit.SECONDS);
    }
  }

  /** By default a writer tries ten times, for minutes, before it says why it can not. */
  private static EventWriterConfig impatient() {
    return EventWriterConfig.builder()
        .retryAttempts(2).initialBackoffMillis(10).backoffMultiple(2).maxBackoffMillis(100)
        .build();
  }

  private interface Tried {
    void run() throws Exception;
  }

  /** It fails at once, and the client says why: who may not do what. */
  private static void denied(String name, Tried tried) throws Exception {
    long begin = System.nanoTime();
    try {
      tried.run();
    } catch (Exception why) {
      StringBuilder told = new StringBuilder();
      for (Throwable each = why; each != null; each = each.getCause()) {
        told.append(each).append('\n');
      }
      long seconds = TimeUnit.NANOSECONDS.toSeconds(System.nanoTime() - begin);
      System.err.println("denied after " + seconds + " s: " + told);
      check(told.indexOf("'" + name + "' may not") >= 0, told.toString());
      return;
    }
    throw new AssertionError(name + " was let in");
  }

  private static void check(boolean holds, String what) {
    if (!holds) {
      throw new AssertionError(what);
    }
  }
}
