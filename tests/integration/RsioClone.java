// COUNT is a number by the time this is compiled.
import gateway.rsio.*;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.*;
import org.reactivestreams.*;

public class RsioClone {
    public static void main(String[] words) throws Exception {
        if (words[0].equals("send")) {
            SubmissionPublisher<ByteBuffer> numbers = new SubmissionPublisher<>();
            Sender sender = Rsio.at(words[1]).name("jvm").sender("events");
            numbers.subscribe(FlowAdapters.toFlowSubscriber(sender));
            for (int n = 0; n < COUNT; n++) {
                numbers.submit(ByteBuffer.wrap(("{\"n\":" + n + "}").getBytes()));
            }
            numbers.close();
            sender.stored().toCompletableFuture().join();
            return;
        }
        CountDownLatch ended = new CountDownLatch(1);
        Rsio.at(words[1]).publisher("events?from=1&to=" + COUNT).subscribe(new Subscriber<>() {
            public void onSubscribe(Subscription given) { given.request(COUNT); }
            public void onNext(ByteBuffer each) {
                System.out.println(StandardCharsets.UTF_8.decode(each));
            }
            public void onError(Throwable why) { System.err.println(why); ended.countDown(); }
            public void onComplete() { ended.countDown(); }
        });
        ended.await();
    }
}
