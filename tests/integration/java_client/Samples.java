import io.pravega.client.ClientConfig;
import io.pravega.client.KeyValueTableFactory;
import io.pravega.client.admin.KeyValueTableInfo;
import io.pravega.client.admin.KeyValueTableManager;
import io.pravega.client.control.impl.Controller;
import io.pravega.client.control.impl.ControllerImpl;
import io.pravega.client.control.impl.ControllerImplConfig;
import io.pravega.client.stream.EventRead;
import io.pravega.client.stream.EventStreamReader;
import io.pravega.client.stream.EventStreamWriter;
import io.pravega.client.stream.EventWriterConfig;
import io.pravega.client.stream.ReaderConfig;
import io.pravega.client.stream.ReaderGroup;
import io.pravega.client.stream.ReaderGroupConfig;
import io.pravega.client.stream.RetentionPolicy;
import io.pravega.client.stream.ScalingPolicy;
import io.pravega.client.stream.Stream;
import io.pravega.client.stream.StreamConfiguration;
import io.pravega.client.stream.StreamCut;
import io.pravega.client.stream.TimeWindow;
import io.pravega.client.stream.Transaction;
import io.pravega.client.stream.TransactionalEventStreamWriter;
import io.pravega.client.stream.impl.UTF8StringSerializer;
import io.pravega.client.tables.ConditionalTableUpdateException;
import io.pravega.client.tables.Insert;
import io.pravega.client.tables.KeyValueTable;
import io.pravega.client.tables.KeyValueTableClientConfiguration;
import io.pravega.client.tables.KeyValueTableConfiguration;
import io.pravega.client.tables.Put;
import io.pravega.client.tables.Remove;
import io.pravega.client.tables.TableEntry;
import io.pravega.client.tables.TableKey;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletionException;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.ScheduledExecutorService;

/**
 * What programs do that know Pravega well: they scale streams, keep tables, tell the time,
 * and let go of what they have read.  The calls are those of Pravega's own samples.
 */
final class Samples {
  private final PravegaClient client;
  private final ClientConfig config;
  private final ScheduledExecutorService threads = Executors.newScheduledThreadPool(2);

  Samples(PravegaClient client, ClientConfig config) {
    this.client = client;
    this.config = config;
  }

  /** As HelloWorldWriter and HelloWorldReader do it, without anything that is not needed. */
  void hello() throws Exception {
    var fixed = StreamConfiguration.builder().scalingPolicy(ScalingPolicy.fixed(1)).build();
    client.streams.createStream(PravegaClient.SCOPE, "hello", fixed);
    try (var writer = client.writer("hello", EventWriterConfig.builder().build())) {
      writer.writeEvent("helloRoutingKey", "hello world").join();
    }
    var plan = ReaderGroupConfig.builder().stream(Stream.of(PravegaClient.SCOPE, "hello"));
    client.groups.createReaderGroup("group", plan.build());
    try (EventStreamReader<String> reader =
        client.events.createReader(
            "reader", "group", new UTF8StringSerializer(), ReaderConfig.builder().build())) {
      List<String> read = new ArrayList<>();
      EventRead<String> event;
      do {
        event = reader.readNextEvent(2000);
        if (event.getEvent() != null) {
          read.add(event.getEvent());
        }
        // On a busy machine the first one may take longer than a read.
      } while (event.getEvent() != null || read.isEmpty());
      PravegaClient.same(read, List.of("hello world"));
    }
    System.out.println("events 1");
  }

  /**
   * A stream is scaled again and again while it is written to, and so while a transaction is
   * open: every event is there once.
   */
  void scaled() throws Exception {
    Stream stream = Stream.of(PravegaClient.SCOPE, "t");
    client.created("t", 1);
    List<String> written = new ArrayList<>();
    try (Controller controller = controller();
        var writer = client.writer("t", EventWriterConfig.builder().build());
        var transactional = transactional("t")) {
      Transaction<String> open = transactional.beginTxn();
      for (int n = 0; n < 10; n++) {
        written.add("0: staged " + n);
        open.writeEvent("0", "0: staged " + n);
      }
      open.flush();
      more(writer, written);
      check(scale(controller, stream, List.of(0L), Map.of(0.0, 0.4, 0.4, 1.0)), "a split");
      more(writer, written);
      long low = lowest(controller, "t");
      check(!scale(controller, stream, List.of(low), Map.of(0.0, 0.5)), "other keys");
      check(scale(controller, stream, List.of(low), Map.of(0.0, 0.2, 0.2, 0.4)), "another");
      more(writer, written);
      open.commit();
      PravegaClient.until(open, Transaction.Status.COMMITTED);
      more(writer, written);
      check(client.streams.updateStream(PravegaClient.SCOPE, "t", fixed(2)), "merged");
      more(writer, written);
      check(segments(controller) == 2, "two");
      check(client.streams.updateStream(PravegaClient.SCOPE, "t", fixed(5)), "again");
      more(writer, written);
      writer.flush();
    }
    PravegaClient.same(
        client.between("t", StreamCut.UNBOUNDED, StreamCut.UNBOUNDED, 16), written);
    System.out.println("events " + written.size());
  }

  /**
   * A reader group goes on with the successors of a segment: every event is read once, and
   * those of one key in order.  Readers leave a segment that ended within half a minute.
   */
  void followed() throws Exception {
    client.created("t", 1);
    client.group("g", "t");
    List<String> written = new ArrayList<>();
    try (Controller controller = controller();
        var readers = client.new Readers("g", 2);
        var writer = client.writer("t", EventWriterConfig.builder().build())) {
      more(writer, written);
      Stream stream = Stream.of(PravegaClient.SCOPE, "t");
      check(scale(controller, stream, List.of(0L), Map.of(0.0, 0.4, 0.4, 1.0)), "a split");
      more(writer, written);
      writer.flush();
      List<String> read = readers.take(written.size());
      inOrder(read, written);
    }
    System.out.println("events " + written.size());
  }

  /**
   * So many runs at the same time of transactions that are open while their stream is split, and
   * committed one after the other: they share two epochs, and a reader, whose group has a
   * checkpoint every so often, has all of it, those of one key in order.
   */
  void together(String[] counts) throws Exception {
    int count = Integer.parseInt(counts[0]);
    long checkpointMillis = Long.parseLong(counts[1]);
    int runs = Integer.parseInt(counts[2]);
    var pool = Executors.newFixedThreadPool(runs);
    List<Future<Integer>> begun = new ArrayList<>();
    for (int run = 0; run < runs; run++) {
      String stream = "t" + run;
      begun.add(pool.submit(() -> together(stream, count, checkpointMillis)));
    }
    int events = 0;
    for (Future<Integer> each : begun) {
      events += each.get();
    }
    System.out.println("events " + events);
  }

  private int together(String name, int count, long checkpointMillis) throws Exception {
    Stream stream = Stream.of(PravegaClient.SCOPE, name);
    client.created(name, 1);
    var often =
        ReaderGroupConfig.builder()
            .stream(stream)
            .automaticCheckpointIntervalMillis(checkpointMillis)
            .groupRefreshTimeMillis(500)
            .build();
    client.groups.createReaderGroup("g" + name, often);
    List<String> written = new ArrayList<>();
    try (Controller controller = controller();
        var readers = client.new Readers("g" + name, 1);
        var writer = client.writer(name, EventWriterConfig.builder().build());
        var transactional = transactional(name)) {
      more(writer, written);
      writer.flush();
      List<Transaction<String>> open = new ArrayList<>();
      for (int n = 0; n < count; n++) {
        open.add(transactional.beginTxn());
        for (int key = 0; key < 10; key++) {
          String event = key + ": event staged " + n;
          written.add(event);
          open.get(n).writeEvent(String.valueOf(key), event);
        }
        open.get(n).flush();
      }
      check(scale(controller, stream, List.of(0L), Map.of(0.0, 0.4, 0.4, 1.0)), "a split");
      for (Transaction<String> each : open) {
        each.commit();
      }
      for (Transaction<String> each : open) {
        PravegaClient.until(each, Transaction.Status.COMMITTED);
      }
      check(lowest(controller, name) >> 32 == 3, "two epochs for all of them");
      inOrder(readers.take(written.size()), written);
    }
    return written.size();
  }

  private TransactionalEventStreamWriter<String> transactional(String stream) {
    var config = EventWriterConfig.builder().transactionTimeoutTime(120_000).build();
    return client.events.createTransactionalEventWriter(
        "w", stream, new UTF8StringSerializer(), config);
  }

  private Controller controller() {
    return new ControllerImpl(
        ControllerImplConfig.builder().clientConfig(config).build(), threads);
  }

  private static int segments(Controller controller) {
    return controller.getCurrentSegments(PravegaClient.SCOPE, "t").join().getNumberOfSegments();
  }

  private static StreamConfiguration fixed(int segments) {
    return StreamConfiguration.builder().scalingPolicy(ScalingPolicy.fixed(segments)).build();
  }

  private boolean scale(
      Controller controller, Stream stream, List<Long> sealed, Map<Double, Double> ranges) {
    return controller.scaleStream(stream, sealed, ranges, threads).getFuture().join();
  }

  /** The segment with the lowest keys. */
  private static long lowest(Controller controller, String stream) {
    var found = controller.getCurrentSegments(PravegaClient.SCOPE, stream).join();
    return found.getSegmentForKey(0.0).getSegmentId();
  }

  private static void more(
      EventStreamWriter<String> writer, List<String> written) {
    int begin = written.size();
    for (int n = begin; n < begin + 200; n++) {
      String event = n % 10 + ": event " + n;
      written.add(event);
      writer.writeEvent(String.valueOf(n % 10), event);
    }
  }

  /** All of it, those of each key in the order in which they were written. */
  private static void inOrder(List<String> read, List<String> written) {
    PravegaClient.same(read, written);
    for (int key = 0; key < 10; key++) {
      String of = key + ": event";
      check(starting(read, of).equals(starting(written, of)), "order of " + key);
    }
  }

  private static List<String> starting(List<String> events, String with) {
    List<String> found = new ArrayList<>(events);
    found.removeIf(event -> !event.startsWith(with));
    return found;
  }

  /** A key-value table: put, inserted, replaced, read one by one and in order, removed. */
  void tables() throws Exception {
    var plan =
        KeyValueTableConfiguration.builder()
            .partitionCount(2)
            .primaryKeyLength(4)
            .secondaryKeyLength(4)
            .build();
    try (KeyValueTableManager manager = KeyValueTableManager.create(config);
        KeyValueTableFactory factory =
            KeyValueTableFactory.withScope(PravegaClient.SCOPE, config)) {
      check(manager.createKeyValueTable(PravegaClient.SCOPE, "kvt", plan), "a table");
      check(!manager.createKeyValueTable(PravegaClient.SCOPE, "kvt", plan), "it is there");
      List<String> names = new ArrayList<>();
      var listed = manager.listKeyValueTables(PravegaClient.SCOPE);
      listed.forEachRemaining((KeyValueTableInfo each) -> names.add(each.getKeyValueTableName()));
      check(names.equals(List.of("kvt")), "it is listed");
      try (KeyValueTable table =
          factory.forKeyValueTable("kvt", KeyValueTableClientConfiguration.builder().build())) {
        entries(table);
      }
      check(manager.deleteKeyValueTable(PravegaClient.SCOPE, "kvt"), "it is deleted");
      check(!manager.deleteKeyValueTable(PravegaClient.SCOPE, "kvt"), "it is gone");
    }
  }

  private void entries(KeyValueTable table) {
    for (int n = 99; n >= 0; n--) {
      table.update(new Put(key("prim", n), bytes("value " + n))).join();
    }
    table.update(new Put(key("othr", 5), bytes("other"))).join();
    check(text(table.get(key("prim", 42)).join().getValue()).equals("value 42"), "get");
    check(table.get(key("prim", 100)).join() == null, "what is not there");
    check(table.exists(key("prim", 42)).join(), "it exists");
    check(!table.exists(key("prim", 100)).join(), "it does not");

    var version = table.update(new Insert(key("prim", 100), bytes("inserted"))).join();
    fails(() -> table.update(new Insert(key("prim", 100), bytes("again"))).join());
    table.update(new Put(key("prim", 100), bytes("replaced"), version)).join();
    fails(() -> table.update(new Put(key("prim", 100), bytes("late"), version)).join());
    check(text(table.get(key("prim", 100)).join().getValue()).equals("replaced"), "once");
    table.update(new Remove(key("prim", 100))).join();
    check(table.get(key("prim", 100)).join() == null, "removed");

    List<String> found = new ArrayList<>();
    table
        .iterator()
        .maxIterationSize(7)
        .forPrimaryKey(bytes("prim"))
        .entries()
        .forEachRemaining(
            item -> item.getItems().forEach((TableEntry e) -> found.add(text(e.getValue()))),
            threads)
        .join();
    check(found.equals(PravegaClient.numbered("value", 100)), "in the order of keys " + found);
    List<String> some = new ArrayList<>();
    table
        .iterator()
        .forPrimaryKey(bytes("prim"), bytes("0010"), bytes("0012"))
        .keys()
        .forEachRemaining(
            item -> item.getItems().forEach((TableKey k) -> some.add(text(k.getSecondaryKey()))),
            threads)
        .join();
    check(some.equals(List.of("0010", "0011", "0012")), "a range " + some);
  }

  private static void fails(Runnable update) {
    try {
      update.run();
    } catch (CompletionException why) {
      check(why.getCause() instanceof ConditionalTableUpdateException, "why: " + why);
      return;
    }
    throw new AssertionError("an update on a condition that does not hold");
  }

  private static TableKey key(String primary, int secondary) {
    return new TableKey(bytes(primary), bytes(String.format("%04d", secondary)));
  }

  private static ByteBuffer bytes(String text) {
    return ByteBuffer.wrap(text.getBytes(StandardCharsets.UTF_8));
  }

  private static String text(ByteBuffer bytes) {
    return StandardCharsets.UTF_8.decode(bytes.duplicate()).toString();
  }

  /** A writer tells the time, and a reader knows what time it is where it is. */
  void watermarks() throws Exception {
    client.created("t", 2);
    client.group("g", "t");
    Stream stream = Stream.of(PravegaClient.SCOPE, "t");
    long first = 1_000_000;
    long time = first;
    int count = 0;
    try (var writer = client.writer("t", EventWriterConfig.builder().build());
        EventStreamReader<String> reader =
            client.events.createReader(
                "r", "g", new UTF8StringSerializer(), ReaderConfig.builder().build())) {
      TimeWindow window = reader.getCurrentTimeWindow(stream);
      check(window.getLowerTimeBound() == null, "nobody knows the time yet");
      for (int tries = 0; window.getLowerTimeBound() == null; tries++) {
        // A reader tells its place, and looks for marks, every half a minute.
        check(tries < 1500, "a time window");
        Thread.sleep(50);
        writer.writeEvent(String.valueOf(count), "event " + count++).join();
        writer.noteTime(++time);
        reader.readNextEvent(100);
        window = reader.getCurrentTimeWindow(stream);
      }
      check(window.getLowerTimeBound() > first, "a time that was noted");
      check(window.getLowerTimeBound() <= time, "and that is past");
    }
    System.out.println("events " + count);
  }

  /**
   * A group that is never without a reader: each time it is told to, another one comes,
   * both read, and it goes again.
   */
  void joined(BlockingQueue<String> told) throws Exception {
    client.created("t", 2);
    client.group("g", "t");
    int written = 0;
    List<String> read = new ArrayList<>();
    try (var always = client.new Readers("g", 1)) {
      for (int round = 0; !told.take().equals("enough"); round++) {
        try (var other = client.new Readers("g", 1, "late-" + round + "-")) {
          client.write("t", PravegaClient.numbered("round " + round, 20));
          written += 20;
          for (int tries = 0; read.size() + always.count() + other.count() < written; tries++) {
            check(tries < 1200, "all that was written is read");
            Thread.sleep(100);
          }
          read.addAll(other.take(other.count()));
        }
        read.addAll(always.take(always.count()));
        System.out.println("read " + read.size());
      }
    }
    check(Set.copyOf(read).size() == written, "each once");
    System.out.println("events " + written);
  }

  /** What a subscriber has let go of goes, and nothing else. */
  void consumption() throws Exception {
    Stream stream = Stream.of(PravegaClient.SCOPE, "t");
    var kept =
        StreamConfiguration.builder()
            .scalingPolicy(ScalingPolicy.fixed(2))
            .retentionPolicy(RetentionPolicy.byTime(Duration.ofMillis(1), Duration.ofDays(1)));
    client.streams.createStream(PravegaClient.SCOPE, "t", kept.build());
    var plan =
        ReaderGroupConfig.builder()
            .stream(stream)
            .retentionType(
                ReaderGroupConfig.StreamDataRetention.MANUAL_RELEASE_AT_USER_STREAMCUT);
    client.groups.createReaderGroup("g", plan.build());
    try (ReaderGroup group = client.groups.getReaderGroup("g")) {
      List<String> first = PravegaClient.numbered("first", 100);
      List<String> second = PravegaClient.numbered("second", 100);
      client.write("t", first);
      StreamCut between = tail();
      client.write("t", second);
      group.updateRetentionStreamCut(Map.of(stream, between));
      // The gateway looks once a minute.
      for (int tries = 0; !head().equals(between); tries++) {
        check(tries < 1200, "the head moves to where the group has read");
        Thread.sleep(100);
      }
      PravegaClient.same(
          client.between("t", StreamCut.UNBOUNDED, StreamCut.UNBOUNDED, 2), second);
    }
    System.out.println("events 200");
  }

  private StreamCut tail() {
    return client.streams.fetchStreamInfo(PravegaClient.SCOPE, "t").join().getTailStreamCut();
  }

  private StreamCut head() {
    return client.streams.fetchStreamInfo(PravegaClient.SCOPE, "t").join().getHeadStreamCut();
  }

  /** An event that is larger than the gateway takes: the client is told, and does not retry. */
  void huge(int mebibytes) throws Exception {
    client.created("t", 1);
    var large = EventWriterConfig.builder().enableLargeEvents(true).build();
    try (var writer = client.writer("t", large)) {
      boolean refused = false;
      try {
        writer.writeEvent("k", "x".repeat(mebibytes << 20));
      } catch (UnsupportedOperationException why) {
        refused = true; // and not RetriesExhausted: it was not tried again
      }
      check(refused, "it is refused");
      writer.writeEvent("k", "small").join();
    }
    System.out.println("events 1");
  }

  private static void check(boolean holds, String what) {
    PravegaClient.check(holds, what);
  }
}
