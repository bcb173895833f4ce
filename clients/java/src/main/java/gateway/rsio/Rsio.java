package gateway.rsio;

import java.io.IOException;
import java.net.URI;
import java.nio.ByteBuffer;
import java.security.NoSuchAlgorithmException;
import java.util.Objects;
import java.util.Set;
import java.util.function.Function;
import java.util.stream.LongStream;
import javax.net.ssl.SSLContext;
import org.reactivestreams.Publisher;

/**
 * Where a peer is, and who we are there: what remote publishers and senders are made of.
 *
 * <p>It connects to nothing by itself. Each subscription and each sender has a connection of its
 * own, so a slow one holds back no other. It does not change, and may be shared.
 */
public final class Rsio {
    private static final int ELEMENT_BYTES = 16 << 20;
    private static final int MOST_PORT = 65_535;
    private static final String PROTOCOL = "rsio/0";
    private static final Set<String> SCHEMES = Set.of("tcp", "tls", "ws", "wss", "http", "https");

    /** What may be chosen; none of it is null but name, token and tls. */
    private record Options(
            String name, String token, SSLContext tls, boolean compress, int elementBytes) {}

    private final URI where;
    private final Options options;

    private Rsio(URI where, Options options) {
        this.where = where;
        this.options = options;
    }

    /**
     * @param where {@code tcp://HOST:PORT} or {@code tls://…}; {@code ws://HOST:PORT/PATH} or {@code
     *     wss://…}, a WebSocket; {@code http://HOST:PORT/PATH} or {@code https://…}, HTTP/2
     */
    public static Rsio at(String where) {
        URI uri = URI.create(where);
        boolean plain = "tcp".equals(uri.getScheme()) || "tls".equals(uri.getScheme());
        if (!SCHEMES.contains(String.valueOf(uri.getScheme())) || uri.getHost() == null
                || plain && uri.getPort() < 0 || uri.getPort() > MOST_PORT) {
            throw new IllegalArgumentException(where
                    + " is not tcp://HOST:PORT, tls://…, ws://HOST:PORT/PATH, wss://…,"
                    + " http://HOST:PORT/PATH or https://…");
        }
        return new Rsio(uri, new Options(null, null, null, false, ELEMENT_BYTES));
    }

    private Rsio with(Function<Options, Options> change) {
        return new Rsio(where, change.apply(options));
    }

    /** The same, under a name: a gateway stores what the sender of a name sends exactly once. */
    public Rsio name(String name) {
        Objects.requireNonNull(name);
        return with(o -> new Options(name, o.token, o.tls, o.compress, o.elementBytes));
    }

    /** The same, showing a token. */
    public Rsio token(String token) {
        Objects.requireNonNull(token);
        return with(o -> new Options(o.name, token, o.tls, o.compress, o.elementBytes));
    }

    /** The same, with these certificates; else those that the JVM trusts. */
    public Rsio tls(SSLContext context) {
        Objects.requireNonNull(context);
        return with(o -> new Options(o.name, o.token, context, o.compress, o.elementBytes));
    }

    /** The same, where what a sender sends is compressed if the peer allows it. */
    public Rsio compressed() {
        return with(o -> new Options(o.name, o.token, o.tls, true, o.elementBytes));
    }

    /** The same, with another limit of an element that is taken; by default 16 MiB. */
    public Rsio elementBytes(int most) {
        if (most < 1 || most > Limits.DECLARED_BYTES) {
            throw new IllegalArgumentException(
                    "elements of " + most + " octets; 1 to " + Limits.DECLARED_BYTES);
        }
        return with(o -> new Options(o.name, o.token, o.tls, o.compress, most));
    }

    /**
     * A publisher of the peer. Each subscription connects; a lost connection is an onError with
     * {@link RsioException.Disconnected}.
     */
    public Publisher<ByteBuffer> publisher(String name) {
        return new RemotePublisher(this, name, false);
    }

    /**
     * A publisher of the peer that can go on behind what was received, like a gateway's {@code
     * events?from=…} in JSON and without a filter: a subscription connects again by itself.
     */
    public Publisher<ByteBuffer> resumingPublisher(String name) {
        return new RemotePublisher(this, name, true);
    }

    /** Sends to a peer that subscribes to {@code publisher}; see {@link Sender}. */
    public Sender sender(String publisher) {
        return new Sender(this, publisher, 0);
    }

    /** The same, for elements that all have {@code size} octets: these are sent packed. */
    public Sender sender(String publisher, int size) {
        if (size < 1 || size > Limits.DECLARED_BYTES) {
            throw new IllegalArgumentException(
                    "elements of " + size + " octets; 1 to " + Limits.DECLARED_BYTES);
        }
        return new Sender(this, publisher, size);
    }

    Transport open() throws IOException {
        SSLContext tls = options.tls;
        if (tls == null && Set.of("tls", "wss", "https").contains(where.getScheme())) {
            try {
                tls = SSLContext.getDefault();
            } catch (NoSuchAlgorithmException why) {
                throw new IOException(why);
            }
        }
        return switch (where.getScheme()) {
            case "tcp" -> SocketTransport.open(where.getHost(), where.getPort(), null, PROTOCOL);
            case "tls" ->
                SocketTransport.open(where.getHost(), where.getPort(), tls, PROTOCOL);
            case "http" -> Http2Transport.open(where, null);
            case "https" -> Http2Transport.open(where, tls);
            default -> WebSocketTransport.open(where, tls);
        };
    }

    /** What the hello of a subscriber, or of a sender, lists. */
    long[] extensions(boolean sends) {
        return LongStream.of(1, 2, 3, 4, 5, 6, 7, 8)
                .filter(each -> each != 4 || options.name != null || options.token != null)
                .filter(each -> each != 7 || sends)
                .toArray();
    }

    /** Both hellos were exchanged: says who we are, and asks for what we want. */
    void identify(Session session) {
        if (session.uses(4)) {
            if (options.token != null) {
                session.say(Message.token("bearer", options.token));
            }
            if (options.name != null && (options.token == null || session.uses(7))) {
                session.say(Message.token("name", options.name));
            }
        }
        if (options.compress && session.uses(6)) {
            session.compress();
        }
    }

    Limits limits() {
        return new Limits(options.elementBytes);
    }

    @Override
    public String toString() {
        return where.toString();
    }
}
