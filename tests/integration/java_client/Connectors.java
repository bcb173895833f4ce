import io.pravega.client.ClientConfig;
import io.pravega.client.stream.Checkpoint;
import io.pravega.client.stream.EventRead;
import io.pravega.client.stream.EventStreamReader;
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
import io.pravega.client.stream.impl.UTF8StringSerializer;
import java.net.URI;
import java.util.ArrayList;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;

/**
 * The calls that Flink's and Spark's connectors make, in their order, without them.  The job is
 * who the system properties say, as docs/clients has them to copy; somebody else makes, fills and
 * scales its streams.
 */
final class Connectors {
  private static final int ROUNDS = 5;
  private static final int EVENTS = 100;
  private static final UTF8StringSerializer TEXT = new UTF8StringSerializer();
  private static final String GROUP = "job";
  private static final EventWriterConfig SINK =
      EventWriterConfig.builder()
          .transactionTimeoutTime(Long.getLong("transaction_timeout_ms", 120_000))
          .build();

  private final PravegaClient client;
  private final PravegaClient job;
  private final ScheduledExecutorService threads = Executors.newScheduledThreadPool(1);
  private int readers;
  private int copied;
  private final List<String> late = new ArrayList<>();

  Connectors(PravegaClient client, URI controller) {
    this.client = client;
    job = new PravegaClient(ClientConfig.builder().controllerURI(controller).build());
  }

  /** What a job of Flink's remembers in one of its checkpoints. */
  private record Kept(Checkpoint source, UUID sink, int copied) {}

  /**
   * A job that copies a stream: its source is a reader group that stands at a checkpoint of
   * Flink's, its sink a transaction for each checkpoint, flushed before it and committed
   * after it.  Meanwhile the stream scales, and the job fails twice: between a checkpoint and
   * its commit, and after events that no checkpoint has.
   */
  void flink() throws Exception {
    client.created("in", 1);
    client.created("out", 2);
    var plan =
        ReaderGroupConfig.builder()
            .stream(Stream.of(PravegaClient.SCOPE, "in"))
            .groupRefreshTimeMillis(500)
            .disableAutomaticCheckpoints()
            .build();
    job.groups.createReaderGroup(GROUP, plan);
    ReaderGroup group = job.groups.getReaderGroup(GROUP);
    List<String> written = new ArrayList<>();
    Kept kept = null;
    for (int round = 0; round < ROUNDS; round++) {
      more(written);
      if (round > 0) {
        int segments = 1 + round % 3;
        var fixed =
            StreamConfiguration.builder().scalingPolicy(ScalingPolicy.fixed(segments)).build();
        client.streams.updateStream(PravegaClient.SCOPE, "in", fixed);
      }
      more(written);
      if (round == 2) { // what was read and written behind the checkpoint is nobody's
        job(group, "fails", false);
        restore(group, kept);
      }
      kept = job(group, "checkpoint-" + round, round != 3);
      if (round == 3) { // the checkpoint is complete, and its transaction is not committed
        restore(group, kept);
      }
    }
    // Segments that ended are left at checkpoints only: a last one has what is left.
    for (int last = 0; copied < written.size(); last++) {
      check(last < 50, copied + " are copied of " + written.size());
      job(group, "last-" + last, true);
    }
    group.close();
    PravegaClient.same(
        client.between("out", StreamCut.UNBOUNDED, StreamCut.UNBOUNDED, 2), written);
    System.out.println("events " + 2 * written.size());
  }

  private void more(List<String> written) {
    List<String> some = new ArrayList<>();
    for (int n = 0; n < EVENTS; n++) {
      some.add("event " + (written.size() + n));
    }
    client.write("in", some);
    written.addAll(some);
  }

  /** From one checkpoint to the next; a job that fails has none. */
  private Kept job(ReaderGroup group, String name, boolean commits) throws Exception {
    try (var sink = job.events.createTransactionalEventWriter(GROUP, "out", TEXT, SINK);
        var source = reader();
        var other = reader()) {
      Transaction<String> transaction = sink.beginTxn();
      for (String event : late) {
        transaction.writeEvent(event, event);
        copied++;
      }
      late.clear();
      copy(source, transaction, 150, false);
      if (name.equals("fails")) {
        transaction.flush();
        return null;
      }
      CompletableFuture<Checkpoint> begun = group.initiateCheckpoint(name, threads);
      boolean here = false;
      boolean there = false;
      while (!(here && there && begun.isDone())) {
        here |= copy(source, transaction, 1, here);
        there |= copy(other, transaction, 1, there);
      }
      transaction.flush();
      Kept kept = new Kept(begun.get(60, TimeUnit.SECONDS), transaction.getTxnId(), copied);
      if (commits) {
        transaction.commit();
        PravegaClient.until(transaction, Transaction.Status.COMMITTED);
      }
      return kept;
    }
  }

  private EventStreamReader<String> reader() {
    return job.events.createReader(
        "r" + readers++, GROUP, TEXT, ReaderConfig.builder().build());
  }

  /**
   * So many reads; true: one of them is the checkpoint. It is complete when each reader reads
   * on; what comes behind it belongs to the next transaction.
   */
  private boolean copy(
      EventStreamReader<String> source, Transaction<String> into, int reads, boolean behind)
      throws Exception {
    boolean checkpoint = false;
    for (int n = 0; n < reads; n++) {
      EventRead<String> read = source.readNextEvent(100);
      checkpoint |= read.isCheckpoint();
      if (read.getEvent() == null) {
        continue;
      }
      if (behind || checkpoint) {
        late.add(read.getEvent());
      } else {
        into.writeEvent(read.getEvent(), read.getEvent());
        copied++;
      }
    }
    return checkpoint;
  }

  /** As Flink does after a failure: the source goes back, the sink's transaction is ended. */
  private void restore(ReaderGroup group, Kept kept) throws Exception {
    copied = kept.copied();
    late.clear();
    var back = ReaderGroupConfig.builder().startFromCheckpoint(kept.source());
    group.resetReaderGroup(
        back.groupRefreshTimeMillis(500).disableAutomaticCheckpoints().build());
    try (TransactionalEventStreamWriter<String> sink =
        job.events.createTransactionalEventWriter(GROUP, "out", TEXT, SINK)) {
      Transaction<String> transaction = sink.getTxn(kept.sink());
      if (transaction.checkStatus() == Transaction.Status.OPEN) {
        transaction.commit();
      }
      PravegaClient.until(transaction, Transaction.Status.COMMITTED);
    }
  }

  /**
   * Micro-batches from where a stream ended to where it ends, a task for each segment's
   * range, and one transaction into another stream, which the driver commits by its id.
   */
  void spark() throws Exception {
    client.created("in", 2);
    client.created("out", 1);
    List<String> written = new ArrayList<>();
    StreamCut from = ends("in");
    for (int batch = 0; batch < 4; batch++) {
      more(written);
      int segments = 2 + batch;
      var fixed =
          StreamConfiguration.builder().scalingPolicy(ScalingPolicy.fixed(segments)).build();
      client.streams.updateStream(PravegaClient.SCOPE, "in", fixed);
      more(written);
      StreamCut to = ends("in");
      UUID staged;
      try (var task = job.events.createTransactionalEventWriter("in", "out", TEXT, SINK)) {
        Transaction<String> transaction = task.beginTxn();
        for (String event : job.between("in", from, to, -1)) {
          transaction.writeEvent(event, event);
        }
        transaction.flush();
        staged = transaction.getTxnId();
      }
      try (var driver = job.events.createTransactionalEventWriter("in", "out", TEXT, SINK)) {
        Transaction<String> transaction = driver.getTxn(staged);
        transaction.commit();
        PravegaClient.until(transaction, Transaction.Status.COMMITTED);
      }
      from = to;
    }
    PravegaClient.same(
        client.between("out", StreamCut.UNBOUNDED, StreamCut.UNBOUNDED, 1), written);
    System.out.println("events " + 2 * written.size());
  }

  private static void check(boolean holds, String what) {
    PravegaClient.check(holds, what);
  }

  private StreamCut ends(String stream) {
    return job.streams.fetchStreamInfo(PravegaClient.SCOPE, stream).join().getTailStreamCut();
  }
}
