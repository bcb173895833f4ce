package gateway.rsio;

import java.io.IOException;
import java.nio.ByteBuffer;
import org.reactivestreams.Subscriber;
import org.reactivestreams.tck.SubscriberBlackboxVerification;
import org.reactivestreams.tck.TestEnvironment;
import org.testng.annotations.AfterClass;
import org.testng.annotations.BeforeClass;

/** The specification's tests of subscribers, for a sender whose demand comes over TCP. */
public class SubscriberTckTest extends SubscriberBlackboxVerification<ByteBuffer> {
    private SmallServer server;

    public SubscriberTckTest() {
        super(new TestEnvironment(3_000, 200));
    }

    @BeforeClass
    public void listen() throws IOException {
        server = new SmallServer(0, 10_000);
    }

    @AfterClass
    public void close() throws IOException {
        server.close();
    }

    @Override
    public Subscriber<ByteBuffer> createSubscriber() {
        return Rsio.at(server.address()).sender("events");
    }

    @Override
    public ByteBuffer createElement(int element) {
        return ByteBuffer.wrap(Integer.toString(element).getBytes());
    }
}
