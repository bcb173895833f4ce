import io.pravega.client.BatchClientFactory;
import io.pravega.client.ByteStreamClientFactory;
import io.pravega.client.ClientConfig;
import io.pravega.client.EventStreamClientFactory;
import io.pravega.client.SynchronizerClientFactory;
import io.pravega.client.admin.ReaderGroupManager;
import io.pravega.client.admin.StreamManager;
import io.pravega.client.batch.SegmentIterator;
import io.pravega.client.batch.SegmentRange;
import io.pravega.client.byteStream.ByteStreamReader;
import io.pravega.client.byteStream.ByteStreamWriter;
import io.pravega.client.segment.impl.ServerTimeoutException;
import io.pravega.client.state.InitialUpdate;
import io.pravega.client.state.Revision;
import io.pravega.client.state.Revisioned;
import io.pravega.client.state.StateSynchronizer;
import io.pravega.client.state.SynchronizerConfig;
import io.pravega.client.state.Update;
import io.pravega.client.stream.Checkpoint;
import io.pravega.client.stream.EventRead;
import io.pravega.client.stream.EventStreamReader;
import io.pravega.client.stream.EventStreamWriter;
import io.pravega.client.stream.EventWriterConfig;
import io.pravega.client.stream.ReaderConfig;
import io.pravega.client.stream.ReaderGroup;
import io.pravega.client.stream.ReaderGroupConfig;
import io.pravega.client.stream.ScalingPolicy;
import io.pravega.client.stream.Stream;
import io.pravega.client.stream.StreamConfiguration;
import io.pravega.client.stream.StreamCut;
import io.pravega.client.stream.Transaction;
import io.pravega.client.stream.TransactionalEventStreamWriter;
import io.pravega.client.stream.impl.JavaSerializer;
import io.pravega.client.stream.impl.UTF8StringSerializer;
import io.pravega.shared.security.auth.DefaultCredentials;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.Serializable;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executors;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;

/**
 * What a user of Pravega's Java client does, one thing for each word.
 *
 * <p>{@code PravegaClient WORD CONTROLLER [USER PASSWORD [AUTHORITY]]} ends with 0 when
 * every call answered as it does with a Pravega; it prints {@code events N} for what the
 * tables must hold.
 */
public final class PravegaClient implements AutoCloseable {
  /** The system properties are those that the connector for Flink reads. */
  static final String SCOPE = System.getProperty("pravega.scope", "s");
  private static final int MIB = 1 << 20;

  private final ClientConfig config;
  final StreamManager streams;
  final EventStreamClientFactory events;
  final ReaderGroupManager groups;
  private final List<ReaderGroup> opened = new ArrayList<>();
  private final Samples samples;

  PravegaClient(ClientConfig config) {
    this.config = config;
    streams = StreamManager.create(config);
    events = EventStreamClientFactory.withScope(SCOPE, config);
    groups = ReaderGroupManager.withScope(SCOPE, config);
    samples = new Samples(this, config);
  }

  @Override
  public void close() {
    opened.forEach(ReaderGroup::close);
    groups.close();
    events.close();
    streams.close();
  }

  public static void main(String[] words) throws Exception {
    try (PravegaClient client = new PravegaClient(configured(words))) {
      client.streams.createScope(SCOPE);
      switch (words[0]) {
        case "streams" -> client.streams();
        case "events" -> client.events();
        case "checkpoints" -> client.checkpoints();
        case "transactions" -> client.transactions();
        case "bytes" -> client.bytes();
        case "tail" -> client.tail();
        case "batch" -> client.batch();
        case "cuts" -> client.cuts();
        case "killed" -> client.killed();
        case "synchronizer" -> client.synchronizer();
        case "hello" -> client.samples.hello();
        case "scaled" -> client.samples.scaled();
        case "followed" -> client.samples.followed();
        case "together" -> client.samples.together(words[2].split(","));
        case "tables" -> client.samples.tables();
        case "watermarks" -> client.samples.watermarks();
        case "joined" -> client.samples.joined(lines(System.in));
        case "consumption" -> client.samples.consumption();
        case "flink" -> new Connectors(client, client.config.getControllerURI()).flink();
        case "spark" -> new Connectors(client, client.config.getControllerURI()).spark();
        case "crowd" -> new Crowd(client, client.config).run(lines(System.in));
        case "access" -> new Access(words[1]).run();
        case "huge" -> client.samples.huge(Integer.parseInt(words[2]));
        default -> throw new IllegalArgumentException(words[0]);
      }
    } catch (Throwable failed) {
      failed.printStackTrace();
      System.exit(1);
    }
    // Some of the client's threads are no daemons.
    System.exit(0);
  }

  private static ClientConfig configured(String[] words) {
    var config = ClientConfig.builder().controllerURI(URI.create(words[1]));
    if (words.length > 3) {
      config.credentials(new DefaultCredentials(words[3], words[2]));
    }
    if (words.length > 4) {
      config.trustStore(words[4]);
    }
    return config.build();
  }

  // -- what users do ------------------------------------------------------------------

  private void streams() {
    check(!streams.createScope(SCOPE), "the scope is there");
    check(streams.checkScopeExists(SCOPE), "the scope is found");
    check(!streams.checkScopeExists("none"), "no other scope is found");
    check(streams.createScope("empty"), "another scope");
    check(all(streams.listScopes()).containsAll(Set.of(SCOPE, "empty")), "scopes");
    check(streams.deleteScope("empty"), "an empty scope is deleted");

    check(created("plain", 1), "a stream");
    check(!created("plain", 1), "the stream is there");
    check(streams.checkStreamExists(SCOPE, "plain"), "the stream is found");
    check(!streams.checkStreamExists(SCOPE, "none"), "no other stream is found");
    var tagged = StreamConfiguration.builder().scalingPolicy(ScalingPolicy.fixed(2));
    check(streams.createStream(SCOPE, "tagged", tagged.tag("a").tag("b").build()), "tags");
    check(tags("tagged").equals(Set.of("a", "b")), "its tags");
    var other = tagged.clearTags().tag("c").build();
    check(streams.updateStream(SCOPE, "tagged", other), "the stream is updated");
    check(tags("tagged").equals(Set.of("c")), "its new tags");
    check(named(streams.listStreams(SCOPE)).equals(Set.of("plain", "tagged")), "streams");
    check(named(streams.listStreams(SCOPE, "c")).equals(Set.of("tagged")), "those with c");
    check(named(streams.listStreams(SCOPE, "a")).isEmpty(), "those with a");

    check(streams.sealStream(SCOPE, "plain"), "the stream is sealed");
    check(streams.deleteStream(SCOPE, "plain"), "a sealed stream is deleted");
    check(!streams.deleteStream(SCOPE, "plain"), "a deleted stream is gone");
    check(named(streams.listStreams(SCOPE)).equals(Set.of("tagged")), "one is left");
  }

  /** Small ones with and without keys, and one that is larger than an append may be. */
  private void events() throws Exception {
    created("t", 3);
    List<String> expected = new ArrayList<>(numbered("event", 1000));
    try (var writer = writer("t", EventWriterConfig.builder().build())) {
      for (int n = 0; n < expected.size(); n++) {
        writer.writeEvent(String.valueOf(n % 10), expected.get(n));
      }
      writer.writeEvent("no key").join();
      writer.writeEvents("a", List.of("together 1", "together 2")).join();
      writer.flush();
    }
    expected.addAll(List.of("no key", "together 1", "together 2"));
    String large = "0123456789abcde\n".repeat(9 * MIB / 16);
    var pooled = EventWriterConfig.builder().enableConnectionPooling(true);
    try (var writer = writer("t", pooled.enableLargeEvents(true).build())) {
      writer.writeEvent("a", "before");
      writer.writeEvent("a", large);
      writer.writeEvent("a", "behind").join();
    }
    expected.addAll(List.of("before", large, "behind"));

    group("g", "t");
    List<String> read = read("g", 2, expected.size());
    same(read, expected);
    for (int key = 0; key < 10; key++) {
      List<String> mine = new ArrayList<>();
      for (int n = key; n < 1000; n += 10) {
        mine.add("event " + n);
      }
      List<String> found = new ArrayList<>(read);
      found.retainAll(new HashSet<>(mine));
      check(found.equals(mine), "those of key " + key + " are in order");
    }
    System.out.println("events " + expected.size());
  }

  static List<String> numbered(String what, int count) {
    List<String> made = new ArrayList<>();
    for (int n = 0; n < count; n++) {
      made.add(what + " " + n);
    }
    return made;
  }

  void write(String stream, List<String> written) {
    try (var writer = writer(stream, EventWriterConfig.builder().build())) {
      for (int n = 0; n < written.size(); n++) {
        writer.writeEvent(String.valueOf(n % 10), written.get(n));
      }
      writer.flush();
    }
  }

  /** A group is set back to a checkpoint: what was read behind it is read again. */
  private void checkpoints() throws Exception {
    created("t", 2);
    List<String> first = numbered("first", 200);
    List<String> second = numbered("second", 200);
    write("t", first);
    ReaderGroup group = group("g", "t");
    ScheduledExecutorService threads = Executors.newScheduledThreadPool(1);
    CompletableFuture<Checkpoint> begun;
    try (Readers readers = new Readers("g", 2)) {
      same(readers.take(first.size()), first);
      begun = group.initiateCheckpoint("here", threads);
      Checkpoint checkpoint = begun.get(30, TimeUnit.SECONDS);
      check(checkpoint.getName().equals("here"), "the checkpoint has its name");
      write("t", second);
      same(readers.take(second.size()), second);
    }
    Checkpoint here = begun.join();
    var plan = ReaderGroupConfig.builder().startFromCheckpoint(here);
    group.resetReaderGroup(plan.groupRefreshTimeMillis(500).build());
    same(read("g", 2, second.size()), second);
    Map<Stream, StreamCut> cuts = group.getStreamCuts();
    check(cuts.keySet().equals(Set.of(Stream.of(SCOPE, "t"))), "a cut for the stream");
    check(group.getOnlineReaders().isEmpty(), "nobody reads any more");
    groups.deleteReaderGroup("g");
    threads.shutdownNow();
    System.out.println("events 400");
  }

  private void transactions() throws Exception {
    created("t", 2);
    List<String> kept = numbered("committed", 100);
    var lease = EventWriterConfig.builder().transactionTimeoutTime(30_000).build();
    try (TransactionalEventStreamWriter<String> writer =
        events.createTransactionalEventWriter("w", "t", new UTF8StringSerializer(), lease)) {
      Transaction<String> committed = filled(writer, kept);
      Transaction<String> aborted = filled(writer, numbered("aborted", 10));
      Transaction<String> resumed = filled(writer, numbered("resumed", 10));
      check(committed.checkStatus() == Transaction.Status.OPEN, "it is open");
      committed.commit();
      aborted.abort();
      until(committed, Transaction.Status.COMMITTED);
      until(aborted, Transaction.Status.ABORTED);
      Transaction<String> same = writer.getTxn(resumed.getTxnId());
      same.writeEvent("k", "resumed 10");
      same.commit();
      until(resumed, Transaction.Status.COMMITTED);
      var ended = streams.listCompletedTransactions(Stream.of(SCOPE, "t"));
      check(ended.size() == 3, "three have ended");
      check(
          ended.stream()
              .filter(each -> each.getTransactionStatus() == Transaction.Status.ABORTED)
              .allMatch(each -> each.getTransactionId().equals(aborted.getTxnId())),
          "one was aborted");
    }
    List<String> expected = new ArrayList<>(kept);
    expected.addAll(numbered("resumed", 11));
    group("g", "t");
    same(read("g", 1, expected.size()), expected);
    System.out.println("events " + expected.size());
  }

  private static Transaction<String> filled(
      TransactionalEventStreamWriter<String> writer, List<String> written) throws Exception {
    Transaction<String> begun = writer.beginTxn();
    for (int n = 0; n < written.size(); n++) {
      begun.writeEvent(String.valueOf(n % 10), written.get(n));
    }
    begun.flush();
    return begun;
  }

  static void until(Transaction<String> transaction, Transaction.Status status)
      throws InterruptedException {
    for (int n = 0; transaction.checkStatus() != status; n++) {
      check(n < 300, "a transaction is " + status);
      Thread.sleep(100);
    }
  }

  private void bytes() throws Exception {
    created("b", 1);
    byte[] data = new byte[1_000_000];
    for (int n = 0; n < data.length; n++) {
      data[n] = (byte) (n * 31 + n / 251);
    }
    try (ByteStreamClientFactory factory = ByteStreamClientFactory.withScope(SCOPE, config);
        ByteStreamWriter writer = factory.createByteStreamWriter("b");
        ByteStreamReader reader = factory.createByteStreamReader("b")) {
      for (int at = 0; at < data.length; at += 100_000) {
        writer.write(data, at, 100_000);
      }
      writer.flush();
      check(writer.fetchTailOffset() == data.length, "its end");
      check(Arrays.equals(next(reader, data.length), data), "what was written is read");
      reader.seekToOffset(1000);
      check(Arrays.equals(next(reader, 500), Arrays.copyOfRange(data, 1000, 1500)), "seek");
      check(reader.getOffset() == 1500, "where it is");
      writer.truncateDataBefore(300_000);
      check(reader.fetchHeadOffset() == 300_000, "its beginning");
      reader.seekToOffset(300_000);
      byte[] rest = Arrays.copyOfRange(data, 300_000, data.length);
      check(Arrays.equals(next(reader, rest.length), rest), "what is left is read");
      writer.closeAndSeal();
      check(reader.read() == -1, "the end of a sealed one");
    }
  }

  /** Not `readNBytes(count)`: that reads 0 bytes at the end, which this reader waits for. */
  private static byte[] next(ByteStreamReader reader, int count) throws Exception {
    byte[] found = new byte[count];
    check(reader.readNBytes(found, 0, count) == count, count + " bytes are there");
    return found;
  }

  /** A reader that waits at the end gets what is written then. */
  private void tail() throws Exception {
    created("t", 2);
    group("g", "t");
    try (Readers readers = new Readers("g", 1);
        var writer = writer("t", EventWriterConfig.builder().build())) {
      for (int n = 0; n < 20; n++) {
        Thread.sleep(50);
        writer.writeEvent("k", "event " + n).join();
        same(readers.take(1), List.of("event " + n));
      }
    }
    System.out.println("events 20");
  }

  private void batch() {
    created("t", 3);
    List<String> written = numbered("event", 500);
    write("t", written);
    same(between("t", StreamCut.UNBOUNDED, StreamCut.UNBOUNDED), written);
    System.out.println("events " + written.size());
  }

  private List<String> between(String stream, StreamCut from, StreamCut to) {
    return between(stream, from, to, 3);
  }

  /** A range for each of so many segments (-1: any), one read after the other. */
  List<String> between(String stream, StreamCut from, StreamCut to, int segments) {
    List<String> read = new ArrayList<>();
    int ranges = 0;
    try (BatchClientFactory factory = BatchClientFactory.withScope(SCOPE, config)) {
      var found = factory.getSegments(Stream.of(SCOPE, stream), from, to);
      for (SegmentRange range : (Iterable<SegmentRange>) found::getIterator) {
        ranges++;
        try (SegmentIterator<String> each =
            factory.readSegment(range, new UTF8StringSerializer())) {
          each.forEachRemaining(read::add);
        }
      }
    }
    check(segments < 0 || ranges == segments, "a range for each segment: " + ranges);
    return read;
  }

  /** Streams read, and truncated, from where they ended at some time. */
  private void cuts() throws Exception {
    created("t", 3);
    List<String> first = numbered("first", 100);
    List<String> second = numbered("second", 100);
    List<String> third = numbered("third", 100);
    write("t", first);
    StreamCut one = streams.fetchStreamInfo(SCOPE, "t").join().getTailStreamCut();
    write("t", second);
    StreamCut two = streams.fetchStreamInfo(SCOPE, "t").join().getTailStreamCut();
    write("t", third);
    same(between("t", one, two), second);
    same(between("t", StreamCut.UNBOUNDED, one), first);
    same(between("t", two, StreamCut.UNBOUNDED), third);

    var plan = ReaderGroupConfig.builder().stream(Stream.of(SCOPE, "t"), one, two);
    groups.createReaderGroup("part", plan.groupRefreshTimeMillis(500).build());
    same(read("part", 1, second.size()), second);

    check(streams.truncateStream(SCOPE, "t", one), "the stream is truncated");
    var info = streams.fetchStreamInfo(SCOPE, "t").join();
    check(info.getHeadStreamCut().equals(one), "its new head");
    List<String> rest = new ArrayList<>(second);
    rest.addAll(third);
    same(between("t", StreamCut.UNBOUNDED, StreamCut.UNBOUNDED), rest);
    group("g", "t");
    same(read("g", 2, rest.size()), rest);
    System.out.println("events 300");
  }

  /**
   * Writes and reads while the gateway comes and goes, until it is told "enough": then all
   * that was written must have been read.  Told "read?" it answers when all has been read
   * that was written before.
   */
  private void killed() throws Exception {
    created("t", 2);
    BlockingQueue<String> told = lines(System.in);
    List<String> written = new ArrayList<>();
    List<CompletableFuture<Void>> sent = new ArrayList<>();
    group("g", "t");
    // Its own pauses get ten times longer each, up to 20 s.
    var patient = EventWriterConfig.builder().retryAttempts(1000).maxBackoffMillis(200).build();
    try (Readers readers = new Readers("g", 1);
        var writer = writer("t", patient)) {
      System.out.println("writing");
      int wanted = Integer.MAX_VALUE;
      for (String word = ""; !word.equals("enough"); word = next(told)) {
        if (word.equals("read?")) {
          wanted = written.size();
        }
        if (readers.count() >= wanted) {
          wanted = Integer.MAX_VALUE;
          System.out.println("read");
        }
        String event = "event " + written.size();
        written.add(event);
        sent.add(writer.writeEvent(String.valueOf(written.size() % 10), event));
        if (written.size() % 10 == 0) {
          Thread.sleep(5);
        }
      }
      writer.flush();
      for (CompletableFuture<Void> each : sent) {
        each.get(60, TimeUnit.SECONDS);
      }
      same(readers.take(written.size()), written);
    }
    System.out.println("events " + written.size());
  }

  /**
   * A state that programs share: it is made unless it is there, then twenty are added to
   * what it has.  Prints how many it had before.  A group's readers join as well.
   */
  private void synchronizer() throws Exception {
    created("shared", 1);
    created("t", 1);
    try (var factory = SynchronizerClientFactory.withScope(SCOPE, config);
        StateSynchronizer<Shared> shared =
            factory.createStateSynchronizer(
                "shared",
                new JavaSerializer<Add>(),
                new JavaSerializer<Begin>(),
                SynchronizerConfig.builder().build())) {
      shared.initialize(new Begin());
      shared.fetchUpdates();
      int before = shared.getState().sum;
      for (int n = 0; n < 20; n++) {
        StateSynchronizer.UpdateGenerator<Shared> add = (state, all) -> all.add(new Add());
        shared.updateState(add);
      }
      check(shared.getState().sum == before + 20, "twenty were added");
      System.out.println("had " + before);
    }
    write("t", List.of("event"));
    group("g", "t");
    same(read("g", 1, 1), List.of("event"));
  }

  private static final class Shared implements Revisioned, Serializable {
    private final String stream;
    private final Revision revision;
    private final int sum;

    private Shared(String stream, Revision revision, int sum) {
      this.stream = stream;
      this.revision = revision;
      this.sum = sum;
    }

    @Override
    public String getScopedStreamName() {
      return stream;
    }

    @Override
    public Revision getRevision() {
      return revision;
    }
  }

  private static final class Begin implements InitialUpdate<Shared>, Serializable {
    @Override
    public Shared create(String stream, Revision revision) {
      return new Shared(stream, revision, 0);
    }
  }

  private static final class Add implements Update<Shared>, Serializable {
    @Override
    public Shared applyTo(Shared old, Revision revision) {
      return new Shared(old.stream, revision, old.sum + 1);
    }
  }

  // -- how they do it -----------------------------------------------------------------

  boolean created(String stream, int segments) {
    var fixed = StreamConfiguration.builder().scalingPolicy(ScalingPolicy.fixed(segments));
    return streams.createStream(SCOPE, stream, fixed.build());
  }

  EventStreamWriter<String> writer(String stream, EventWriterConfig how) {
    return events.createEventWriter(stream, new UTF8StringSerializer(), how);
  }

  ReaderGroup group(String name, String stream) {
    var plan = ReaderGroupConfig.builder().stream(Stream.of(SCOPE, stream));
    groups.createReaderGroup(name, plan.groupRefreshTimeMillis(500).build());
    opened.add(groups.getReaderGroup(name));
    return opened.get(opened.size() - 1);
  }

  private List<String> read(String group, int readers, int count) throws Exception {
    try (Readers each = new Readers(group, readers)) {
      return each.take(count);
    }
  }

  private Set<String> tags(String stream) {
    return new TreeSet<>(streams.getStreamTags(SCOPE, stream));
  }

  /** The lines of an input as they come, and "enough" at its end. */
  static BlockingQueue<String> lines(java.io.InputStream input) {
    BlockingQueue<String> found = new LinkedBlockingQueue<>();
    var reader = new BufferedReader(new InputStreamReader(input, StandardCharsets.UTF_8));
    var thread = new Thread(() -> {
      reader.lines().forEach(found::add);
      found.add("enough");
    });
    thread.setDaemon(true);
    thread.start();
    return found;
  }

  private static String next(BlockingQueue<String> told) {
    String word = told.poll();
    return word == null ? "" : word;
  }

  private static Set<String> all(Iterator<String> names) {
    Set<String> found = new TreeSet<>();
    names.forEachRemaining(found::add);
    return found;
  }

  /** Without the client's own, whose names begin with an underscore. */
  private static Set<String> named(Iterator<Stream> streams) {
    Set<String> found = new TreeSet<>();
    streams.forEachRemaining(each -> found.add(each.getStreamName()));
    found.removeIf(name -> name.startsWith("_"));
    return found;
  }

  static void same(Collection<String> found, Collection<String> expected) {
    List<String> one = new ArrayList<>(found);
    List<String> other = new ArrayList<>(expected);
    one.sort(null);
    other.sort(null);
    check(one.equals(other), one.size() + " read are the " + other.size() + " written");
  }

  static void check(boolean holds, String what) {
    if (!holds) {
      throw new AssertionError("does not hold: " + what);
    }
  }

  /** Readers of one group, a thread for each; what they read comes out together. */
  final class Readers implements AutoCloseable {
    private final BlockingQueue<Object> found = new LinkedBlockingQueue<>();
    private final List<Thread> threads = new ArrayList<>();
    private volatile boolean over;
    private volatile Throwable failure;

    Readers(String group, int count) {
      this(group, count, "reader-");
    }

    Readers(String group, int count, String names) {
      for (int n = 0; n < count; n++) {
        String name = names + n;
        threads.add(new Thread(() -> read(group, name)));
      }
      threads.forEach(Thread::start);
    }

    private void read(String group, String name) {
      try (EventStreamReader<String> reader =
          events.createReader(
              name, group, new UTF8StringSerializer(), ReaderConfig.builder().build())) {
        while (!over) {
          EventRead<String> next;
          try {
            next = reader.readNextEvent(200);
          } catch (ServerTimeoutException late) {
            // It waits 30 s for an answer; a gateway may take longer to be there again where
            // the machine has much else to do.  Nothing was read: it may be asked again.
            continue;
          }
          if (next.getEvent() != null) {
            found.add(next.getEvent());
          }
        }
      } catch (Throwable failed) {
        failure = failed;
        found.add(failed);
      }
    }

    /** How many were read and not taken.  Fails if a reader did. */
    int count() {
      if (failure != null) {
        throw new AssertionError("a reader failed", failure);
      }
      return found.size();
    }

    /** The next ones; when there are too few in time, those that there are. */
    List<String> take(int count) throws Exception {
      List<String> taken = new ArrayList<>();
      while (taken.size() < count) {
        Object next = found.poll(60, TimeUnit.SECONDS);
        if (next instanceof Throwable failed) {
          throw new AssertionError("a reader failed", failed);
        }
        if (next == null) {
          break;
        }
        taken.add((String) next);
      }
      return taken;
    }

    @Override
    public void close() throws InterruptedException {
      over = true;
      for (Thread each : threads) {
        each.join(30_000);
        check(!each.isAlive(), "a reader ends");
      }
      check(found.isEmpty(), "nothing more is read: " + found);
    }
  }
}
