package gateway.rsio;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.reactivex.rxjava3.core.Flowable;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.Flow;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.SubmissionPublisher;
import java.util.concurrent.TimeUnit;
import org.apache.pekko.actor.ActorSystem;
import org.apache.pekko.stream.javadsl.Sink;
import org.apache.pekko.stream.javadsl.Source;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.reactivestreams.FlowAdapters;
import org.reactivestreams.Publisher;
import reactor.core.publisher.Flux;

/** What the README shows of other libraries: its lines stand here, too, and run. */
class LibrariesTest {
    private static final long SECONDS = 30;

    private final List<String> readings = List.of("{\"kWh\": 1}", "{\"kWh\": 2}");
    private final BlockingQueue<String> shown = new LinkedBlockingQueue<>();
    private SmallServer server;
    private Publisher<ByteBuffer> live;
    private Sender sender;

    @BeforeEach
    void listen() throws Exception {
        server = new SmallServer(0, 10_000);
        live = Rsio.at(server.address()).publisher("check/count?n=3");
        sender = Rsio.at(server.address()).name("meter-17").sender("events");
    }

    @AfterEach
    void close() throws Exception {
        server.close();
    }

    private void show(Object element) {
        shown.add(element.toString());
    }

    /** All three are shown, and both readings are stored. */
    private void check() throws Exception {
        for (String each : List.of("0", "1", "2")) {
            assertEquals(each, shown.poll(SECONDS, TimeUnit.SECONDS));
        }
        sender.stored().toCompletableFuture().get(SECONDS, TimeUnit.SECONDS);
        assertEquals(readings, server.taken());
    }

    @Test
    void reactor() throws Exception {
        Flux.from(live).map(UTF_8::decode).subscribe(this::show);
        Flux.fromIterable(readings).map(UTF_8::encode).subscribe(sender);
        check();
    }

    @Test
    void rxJava() throws Exception {
        Flowable.fromPublisher(live).map(UTF_8::decode).subscribe(this::show);
        Flowable.fromIterable(readings).map(UTF_8::encode).subscribe(sender);
        check();
    }

    @Test
    void pekko() throws Exception {
        ActorSystem system = ActorSystem.create();
        try {
            Source.fromPublisher(live).map(UTF_8::decode).runForeach(this::show, system);
            Source.from(readings).map(UTF_8::encode).runWith(Sink.fromSubscriber(sender), system);
            check();
        } finally {
            system.terminate();
        }
    }

    @Test
    void flow() throws Exception {
        try (SubmissionPublisher<ByteBuffer> submissions = new SubmissionPublisher<>()) {
            Flow.Publisher<ByteBuffer> flow = FlowAdapters.toFlowPublisher(live);
            submissions.subscribe(FlowAdapters.toFlowSubscriber(sender));
            Flux.from(FlowAdapters.toPublisher(flow)).map(UTF_8::decode).subscribe(this::show);
            readings.forEach(each -> submissions.submit(UTF_8.encode(each)));
        }
        check();
    }

    /** Each line of the README's example is one of this file's. */
    @Test
    void theReadmeShowsThese() throws Exception {
        String page = Files.readString(Path.of("README.md"));
        String example = page.split("## With other libraries\\s+```java\n")[1].split("```")[0];
        List<String> lines =
                example.lines().filter(each -> !each.isBlank() && !each.startsWith("//")).toList();
        assertEquals(8, lines.size());
        String here = Files.readString(
                Path.of("src/test/java/gateway/rsio/LibrariesTest.java"));
        lines.forEach(each -> assertTrue(here.contains("  " + each + "\n"), each));
    }
}
