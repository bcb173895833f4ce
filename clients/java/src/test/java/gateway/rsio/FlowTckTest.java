package gateway.rsio;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.concurrent.Flow;
import org.reactivestreams.FlowAdapters;
import org.reactivestreams.tck.TestEnvironment;
import org.reactivestreams.tck.flow.FlowPublisherVerification;
import org.testng.annotations.AfterClass;
import org.testng.annotations.BeforeClass;

/** The specification's tests for a remote publisher behind the JDK's own interfaces. */
public class FlowTckTest extends FlowPublisherVerification<ByteBuffer> {
    private SmallServer server;

    public FlowTckTest() {
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
    public Flow.Publisher<ByteBuffer> createFlowPublisher(long elements) {
        Rsio rsio = Rsio.at(server.address());
        return FlowAdapters.toFlowPublisher(rsio.publisher("check/count?n=" + elements));
    }

    @Override
    public Flow.Publisher<ByteBuffer> createFailedFlowPublisher() {
        return FlowAdapters.toFlowPublisher(
                Rsio.at(server.address()).publisher("check/unknown"));
    }
}
