import io.rsocket.Payload;
import io.rsocket.RSocket;
import io.rsocket.SocketAcceptor;
import io.rsocket.core.RSocketConnector;
import io.rsocket.core.RSocketServer;
import io.rsocket.frame.decoder.PayloadDecoder;
import io.rsocket.transport.netty.client.TcpClientTransport;
import io.rsocket.transport.netty.server.CloseableChannel;
import io.rsocket.transport.netty.server.TcpServerTransport;
import io.rsocket.util.DefaultPayload;
import java.util.concurrent.atomic.AtomicLong;
import org.reactivestreams.Publisher;
import org.reactivestreams.Subscription;
import reactor.core.publisher.BaseSubscriber;
import reactor.core.publisher.Flux;

/** `serve`, or `send` to that or `read` of it: port, octets, seconds.  Nothing is kept. */
final class Rsocket {
    /** Requested at a time. */
    private static final int WINDOW = 1 << 14;

    private Rsocket() {}

    public static void main(String[] words) throws Exception {
        byte[][] elements = Meter.elements(Integer.parseInt(words[2]));
        if (words[0].equals("serve")) {
            CloseableChannel server = RSocketServer
                    .create(SocketAcceptor.with(new Ends(elements)))
                    .payloadDecoder(PayloadDecoder.ZERO_COPY)
                    .bindNow(TcpServerTransport.create("127.0.0.1", 0));
            System.out.println(server.address().getPort());
            server.onClose().block();
        }
        RSocket peer = RSocketConnector.create()
                .payloadDecoder(PayloadDecoder.ZERO_COPY)
                .connect(TcpClientTransport.create("127.0.0.1", Integer.parseInt(words[1])))
                .block();
        AtomicLong count = new AtomicLong();
        if (words[0].equals("send")) {
            peer.requestChannel(endless(elements, count)).subscribe();
        } else {
            peer.requestStream(DefaultPayload.create("")).subscribe(new Counter(count));
        }
        Meter.measure(new String[] {words[3], words[4]}, count::get);
        System.exit(0);
    }

    private static Flux<Payload> endless(byte[][] elements, AtomicLong count) {
        return Flux.generate(sink -> {
            long n = count.get();
            count.lazySet(n + 1);
            sink.next(DefaultPayload.create(elements[(int) (n & elements.length - 1)]));
        });
    }

    private record Ends(byte[][] elements) implements RSocket {
        @Override
        public Flux<Payload> requestStream(Payload asked) {
            asked.release();
            return endless(elements, new AtomicLong());
        }

        @Override
        public Flux<Payload> requestChannel(Publisher<Payload> sent) {
            sent.subscribe(new Counter(new AtomicLong()));
            return Flux.never();
        }
    }

    /** Requests more when half of a window has come. */
    private static final class Counter extends BaseSubscriber<Payload> {
        private final AtomicLong count;

        Counter(AtomicLong count) {
            this.count = count;
        }

        @Override
        protected void hookOnSubscribe(Subscription subscription) {
            request(WINDOW);
        }

        @Override
        protected void hookOnNext(Payload element) {
            element.release();
            long n = count.get() + 1;
            count.lazySet(n);
            if ((n & WINDOW / 2 - 1) == 0) {
                request(WINDOW / 2);
            }
        }
    }
}
