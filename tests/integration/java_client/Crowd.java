import io.pravega.client.ClientConfig;
import io.pravega.client.control.impl.Controller;
import io.pravega.client.control.impl.ControllerImpl;
import io.pravega.client.control.impl.ControllerImplConfig;
import io.pravega.client.segment.impl.Segment;
import io.pravega.client.segment.impl.ServerTimeoutException;
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
import io.pravega.client.stream.TimeWindow;
import io.pravega.client.stream.Transaction;
import io.pravega.client.stream.impl.UTF8StringSerializer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.atomic.AtomicLong;

/**
 * Many at one stream, which is split and merged all the while: three writers that tell the
 * time, one of transactions with times, a group of eight readers, batch jobs.  Words from
 * outside say when a writer falls silent, or leaves, and when two readers are lost; the gateway
 * may be killed between.  A model says what each of them must see.
 */
final class Crowd {
  private static final Stream STREAM = Stream.of(PravegaClient.SCOPE, "t");
  private static final UTF8StringSerializer TEXT = new UTF8StringSerializer();
  private static final int KEYS = 10;
  private static final int READERS = 8;
  private static final long TIMEOUT_MILLIS = 20_000;

  private final PravegaClient client;
  private final ClientConfig config;
  private final ScheduledExecutorService threads = Executors.newScheduledThreadPool(2);
  private final Random random = new Random(1);

  /** What was written, in order; the time is the number of the event. */
  private final List<String> written = new ArrayList<>();
  private final AtomicLong lower = new AtomicLong();
  private final Map<String, List<String>> read = new HashMap<>();
  private final Map<String, String> readBy = new HashMap<>();
  private final Set<String> lost = new HashSet<>();
  private int equal = 2;
  private boolean nested;
  private volatile boolean over;
  private volatile Throwable failure;

  Crowd(PravegaClient client, ClientConfig config) {
    this.client = client;
    this.config = config;
  }

  void run(BlockingQueue<String> told) throws Exception {
    var made =
        StreamConfiguration.builder()
            .scalingPolicy(ScalingPolicy.fixed(2))
            .timestampAggregationTimeout(TIMEOUT_MILLIS)
            .build();
    client.streams.createStream(PravegaClient.SCOPE, "t", made);
    var often =
        ReaderGroupConfig.builder()
            .stream(STREAM)
            .automaticCheckpointIntervalMillis(2000)
            .groupRefreshTimeMillis(500)
            .build();
    client.groups.createReaderGroup("g", often);
    ReaderGroup group = client.groups.getReaderGroup("g");
    List<Thread> readers = new ArrayList<>();
    for (int n = 0; n < READERS; n++) {
      String name = "r" + n;
      readers.add(new Thread(() -> reads(name)));
    }
    readers.forEach(Thread::start);
    var patient = EventWriterConfig.builder().retryAttempts(1000).maxBackoffMillis(200).build();
    List<EventStreamWriter<String>> writers = new ArrayList<>();
    for (int n = 0; n < 3; n++) {
      writers.add(client.writer("t", patient));
    }
    Set<Integer> quiet = new HashSet<>();
    var ours = EventWriterConfig.builder().transactionTimeoutTime(120_000).build();
    try (Controller controller =
            new ControllerImpl(
                ControllerImplConfig.builder().clientConfig(config).build(), threads);
        var transactional = client.events.createTransactionalEventWriter("w", "t", TEXT, ours)) {
      check(losesItsWay(controller), "a client without this fault: let it scale as it likes");
      System.out.println("writing");
      StreamCut from = null;
      int before = 0;
      boolean enough = false;
      for (int tick = 1; !enough || lower.get() == 0; tick++) {
        check(tick < 12_000, "a time window is known");
        String word = told.poll();
        if (word != null) {
          switch (word) {
            case "silent" -> {
              tell(writers.get(1));
              quiet.add(1);
              nested = true;
            }
            case "back" -> quiet.remove(1);
            case "leave" -> {
              tell(writers.get(2));
              quiet.add(2);
              writers.get(2).close();
            }
            case "lose" -> lose(group, readers.subList(0, 2));
            default -> enough = true;
          }
          System.out.println(word);
        }
        for (int n = 0; n < writers.size(); n++) {
          if (!quiet.contains(n)) {
            String event = next(n);
            writers.get(n).writeEvent(key(event), event);
          }
        }
        if (tick % 10 == 0) {
          Transaction<String> transaction = transactional.beginTxn();
          if (tick % 50 == 0) {
            scale(controller);
          }
          for (int n = 0; n < 3; n++) {
            String event = next(writers.size());
            transaction.writeEvent(key(event), event);
          }
          transaction.commit(written.size());
          PravegaClient.until(transaction, Transaction.Status.COMMITTED);
          for (int n = 0; n < writers.size(); n++) {
            if (!quiet.contains(n)) {
              tell(writers.get(n));
            }
          }
        }
        if (tick % 100 == 0) {
          StreamCut to = client.streams.fetchStreamInfo(PravegaClient.SCOPE, "t").join()
              .getTailStreamCut();
          if (from != null) {
            var expected = written.subList(before, written.size());
            PravegaClient.same(client.between("t", from, to, -1), expected);
          }
          from = to;
          before = written.size();
        }
        failed();
        Thread.sleep(20);
      }
      for (int n = 0; n < writers.size(); n++) {
        if (n != 2 || !quiet.contains(2)) {
          writers.get(n).flush();
          writers.get(n).close();
        }
      }
    }
    for (int tries = 0; count() < written.size(); tries++) {
      failed();
      check(tries < 3000, count() + " of " + written.size() + " are read");
      Thread.sleep(50);
    }
    over = true;
    for (Thread each : readers) {
      each.join(60_000);
      check(!each.isAlive(), "a reader ends");
    }
    failed();
    for (int key = 0; key < KEYS; key++) {
      var found = read.get(String.valueOf(key));
      for (int writer = 0; writer <= writers.size(); writer++) {
        String mine = key + " " + writer + " ";
        check(starting(found, mine).equals(starting(written, mine)), "in order: " + mine);
      }
    }
    group.close();
    System.out.println("events " + written.size());
  }

  /** All that it should have written until now is written. */
  private void tell(EventStreamWriter<String> writer) {
    writer.flush();
    writer.noteTime(written.size());
  }

  /** The next event of a writer: a key, the writer, the time. */
  private String next(int writer) {
    written.add(random.nextInt(KEYS) + " " + writer + " " + (written.size() + 1));
    return written.get(written.size() - 1);
  }

  private static List<String> starting(List<String> events, String with) {
    return events.stream().filter(event -> event.startsWith(with)).toList();
  }

  private static String key(String event) {
    return event.substring(0, event.indexOf(' '));
  }

  /**
   * As many equal segments as chance says; the next time one of them becomes two.
   *
   * <p>Once a writer has been silent, each segment that was replaced holds its successors, or
   * is held by the only one: else this client {@link #losesItsWay}.
   */
  private void scale(Controller controller) {
    if (equal == 0) {
      equal = nested ? 1 << random.nextInt(3) : 1 + random.nextInt(5);
      var fixed =
          StreamConfiguration.builder()
              .scalingPolicy(ScalingPolicy.fixed(equal))
              .timestampAggregationTimeout(TIMEOUT_MILLIS);
      client.streams.updateStream(PravegaClient.SCOPE, "t", fixed.build());
      return;
    }
    double place = random.nextInt(equal);
    double low = place / equal;
    double high = (place + 1) / equal;
    double middle = (low + high) / 2;
    var ended =
        controller.getCurrentSegments(PravegaClient.SCOPE, "t").join().getSegmentForKey(middle);
    var halves = Map.of(low, middle, middle, high);
    controller
        .scaleStream(STREAM, List.of(ended.getSegmentId()), halves, threads)
        .getFuture()
        .join();
    equal = 0;
  }

  /**
   * Whether this client may not get from the segments that it knows to those of some scalings
   * later, with any Pravega.
   *
   * <p>When a segment that it finds sealed has several successors, its {@code
   * StreamSegments.verifyReplacementRange} looks for a segment of its own below the end of what
   * replaced the others, too.  It has none there where it has come to the sealed one by higher
   * keys only.  Then it forgets the segment that is sealed ({@code
   * EventStreamWriterImpl.handleLogSealed} has polled it), and {@code flush} waits for ever.
   */
  private boolean losesItsWay(Controller controller) {
    var stream = Stream.of(PravegaClient.SCOPE, "behind");
    client.streams.createStream(
        PravegaClient.SCOPE, "behind", StreamConfiguration.builder().build());
    into(controller, stream, Map.of(0.0, 0.8, 0.8, 1.0));
    var known = controller.getCurrentSegments(PravegaClient.SCOPE, "behind").join();
    into(controller, stream, Map.of(0.0, 1.0));
    into(controller, stream, Map.of(0.0, 0.5, 0.5, 1.0));
    into(controller, stream, Map.of(0.0, 0.3, 0.3, 0.7, 0.7, 1.0));
    try {
      for (int scaled = 0; scaled < 3; scaled++) {
        var sealed = known.getSegmentForKey(0.9);
        known = known.withReplacementRange(sealed, controller.getSuccessors(sealed).join());
      }
      return false;
    } catch (IllegalArgumentException lost) {
      return lost.getMessage().startsWith("Missing replaced replacement segments");
    }
  }

  /** Scale all of a stream into these ranges. */
  private void into(Controller controller, Stream stream, Map<Double, Double> ranges) {
    var now = controller.getCurrentSegments(stream.getScope(), stream.getStreamName()).join();
    var all = now.getSegments().stream().map(Segment::getSegmentId).toList();
    check(controller.scaleStream(stream, all, ranges, threads).getFuture().join(), "it scales");
  }

  /** Two readers end without a word, and somebody sees that. */
  private void lose(ReaderGroup group, List<Thread> two) throws Exception {
    synchronized (read) {
      lost.addAll(Set.of("r0", "r1"));
    }
    for (Thread each : two) {
      each.join(60_000);
      check(!each.isAlive(), "a reader that is lost reads no more");
    }
    for (String name : List.of("r0", "r1")) {
      group.readerOffline(name, null);
    }
  }

  private void reads(String name) {
    var config = ReaderConfig.builder().build();
    EventStreamReader<String> reader = client.events.createReader(name, "g", TEXT, config);
    try {
      while (!over) {
        synchronized (read) {
          if (lost.contains(name)) {
            return;
          }
        }
        long past = lower.get();
        EventRead<String> next;
        try {
          next = reader.readNextEvent(100);
        } catch (ServerTimeoutException late) {
          continue; // it waits 30 s for an answer; nothing was read
        }
        if (next.getEvent() != null) {
          took(name, next.getEvent(), past);
        }
        TimeWindow window = reader.getCurrentTimeWindow(STREAM);
        if (window.getLowerTimeBound() != null) {
          lower.accumulateAndGet(window.getLowerTimeBound(), Math::max);
        }
      }
      reader.close();
    } catch (Throwable failed) {
      failure = failed;
    }
  }

  private void took(String name, String event, long past) {
    long time = Long.parseLong(event.substring(event.lastIndexOf(' ') + 1));
    check(time > past, event + " comes, and it is later than " + past);
    synchronized (read) {
      List<String> mine = read.computeIfAbsent(key(event), key -> new ArrayList<>());
      int there = mine.lastIndexOf(event);
      if (there >= 0) { // behind the last checkpoint of one that was lost
        String by = readBy.get(event);
        check(lost.contains(by), event + " is read twice, by " + by + " and " + name);
        mine.subList(there, mine.size()).clear();
      }
      mine.add(event);
      readBy.put(event, name);
    }
  }

  private int count() {
    synchronized (read) {
      return read.values().stream().mapToInt(List::size).sum();
    }
  }

  private void failed() {
    if (failure != null) {
      throw new AssertionError("a reader failed", failure);
    }
  }

  private static void check(boolean holds, String what) {
    PravegaClient.check(holds, what);
  }
}
