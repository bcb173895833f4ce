package gateway.rsio;

import java.io.IOException;
import java.nio.ByteBuffer;
import org.reactivestreams.Publisher;
import org.reactivestreams.tck.PublisherVerification;
import org.reactivestreams.tck.TestEnvironment;
import org.testng.annotations.AfterClass;
import org.testng.annotations.BeforeClass;

/** The specification's tests of publishers, for one at the other end of a TCP connection. */
public class PublisherTckTest extends PublisherVerification<ByteBuffer> {
    private SmallServer server;

    public PublisherTckTest() {
        super(new TestEnvironment(3_000, 200), 1_000);
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
    public Publisher<ByteBuffer> createPublisher(long elements) {
        return Rsio.at(server.address()).publisher("check/count?n=" + elements);
    }

    @Override
    public Publisher<ByteBuffer> createFailedPublisher() {
        return Rsio.at(server.address()).publisher("check/unknown");
    }
}
