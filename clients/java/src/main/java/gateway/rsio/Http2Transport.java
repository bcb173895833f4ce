package gateway.rsio;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.net.URI;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import javax.net.ssl.SSLContext;

/**
 * HTTP/2: the DATA of one stream, which a POST opens, is one stream of octets.
 *
 * <p>Its windows hold no publisher back: what is read is credited at once, and what nobody reads
 * stays in the connection below. It is written from RFC 9113, because {@code java.net.http} shows
 * an answer only when the body of its request has ended.
 */
final class Http2Transport implements Transport {
    private static final String PREFACE = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    private static final int HEADER_TABLE_SIZE = 1;
    private static final int ENABLE_PUSH = 2;
    private static final int INITIAL_WINDOW_SIZE = 4;
    private static final int WINDOW_BYTES = 1 << 20;
    private static final int USUAL_WINDOW_BYTES = 65_535;
    private static final int FIELDS_BYTES = 1 << 16;
    private static final int FAREWELL_BYTES = 200;
    private static final int OK = 200;
    private static final String[] CODES = {
        "NO_ERROR", "PROTOCOL_ERROR", "INTERNAL_ERROR", "FLOW_CONTROL_ERROR", "SETTINGS_TIMEOUT",
        "STREAM_CLOSED", "FRAME_SIZE_ERROR", "REFUSED_STREAM", "CANCEL", "COMPRESSION_ERROR",
        "CONNECT_ERROR", "ENHANCE_YOUR_CALM", "INADEQUATE_SECURITY", "HTTP_1_1_REQUIRED",
    };

    private final Transport below;
    private final Http2Output output;
    private final ByteBuffer input = ByteBuffer.allocate(4 * Http2Frame.MOST_BYTES).flip();
    /** What of a DATA frame, in `input`, is not read. */
    private ByteBuffer data = ByteBuffer.allocate(0);
    private int uncredited;
    private int milliseconds;
    private boolean greeted;
    private boolean granted;
    private boolean ended;
    /** Header fields that are not whole. */
    private ByteArrayOutputStream fields;
    private boolean fieldsEnd;
    private String farewell = "";

    /** Asks for the stream over an open connection, and does not wait for the answer. */
    Http2Transport(Transport below, URI where) throws IOException {
        ByteBuffer settings = ByteBuffer.allocate(18)
                .putShort((short) HEADER_TABLE_SIZE).putInt(0)
                .putShort((short) ENABLE_PUSH).putInt(0)
                .putShort((short) INITIAL_WINDOW_SIZE).putInt(WINDOW_BYTES).flip();
        ByteBuffer head = Http2Head.request(where);
        ByteArrayOutputStream first = new ByteArrayOutputStream();
        first.writeBytes(PREFACE.getBytes(StandardCharsets.US_ASCII));
        first.writeBytes(Http2Frame.of(Http2Frame.SETTINGS, 0, 0, settings).array());
        first.writeBytes(Http2Frame.credit(0, WINDOW_BYTES - USUAL_WINDOW_BYTES).array());
        first.writeBytes(Http2Frame.of(
                Http2Frame.HEADERS, Http2Frame.END_HEADERS, Http2Frame.STREAM, head).array());
        below.write(ByteBuffer.wrap(first.toByteArray()));
        this.below = below;
        this.output = new Http2Output(below);
    }

    /** Connects to an address of http, or of https if there is a context. */
    static Transport open(URI where, SSLContext tls) throws IOException {
        int usual = tls == null ? 80 : 443;
        int port = where.getPort() < 0 ? usual : where.getPort();
        Transport below = SocketTransport.open(where.getHost(), port, tls, "h2");
        try {
            return new Http2Transport(below, where);
        } catch (IOException why) {
            below.close();
            throw why;
        }
    }

    @Override
    public void write(ByteBuffer octets) throws IOException {
        output.data(octets);
    }

    @Override
    public void end() throws IOException {
        output.send(Http2Frame.of(Http2Frame.DATA, Http2Frame.END_STREAM, Http2Frame.STREAM,
                ByteBuffer.allocate(0)));
    }

    @Override
    public void close() {
        output.close();
    }

    @Override
    public void patience(int wait) throws IOException {
        milliseconds = wait;
        below.patience(wait);
    }

    @Override
    public int read(ByteBuffer room) throws IOException {
        long began = System.nanoTime();
        while (!data.hasRemaining()) {
            if (ended) {
                return -1;
            }
            Http2Frame next = Http2Frame.next(input, !greeted);
            if (next != null) {
                greeted = true;
                take(next);
                continue;
            }
            long waited = System.nanoTime() - began;
            if (milliseconds > 0 && waited > milliseconds * 1_000_000L || !fill()) {
                return 0; // frames without octets are silence, too
            }
        }
        int count = Math.min(room.remaining(), data.remaining());
        room.put(data.slice(data.position(), count));
        data.position(data.position() + count);
        return count;
    }

    /** Reads below; false after a silence. */
    private boolean fill() throws IOException {
        int kept = input.compact().position();
        int count = below.read(input.slice());
        input.position(kept + Math.max(count, 0)).flip();
        if (count < 0) {
            throw new IOException(greeted
                    ? "the connection ended before its stream" + farewell : "no HTTP/2 there");
        }
        return count > 0;
    }

    private void take(Http2Frame frame) throws IOException {
        if (fields != null && frame.type() != Http2Frame.CONTINUATION) {
            throw Http2Frame.broken("header fields that are not whole");
        }
        ByteBuffer payload = frame.payload();
        switch (frame.type()) {
            case Http2Frame.DATA -> takeData(frame);
            case Http2Frame.HEADERS -> {
                fields = new ByteArrayOutputStream();
                fieldsEnd = frame.has(Http2Frame.END_STREAM);
                takeFields(frame);
            }
            case Http2Frame.CONTINUATION -> takeFields(frame);
            case Http2Frame.RST_STREAM -> throw new IOException(
                    "the peer has reset the stream: " + code(payload.getInt()));
            case Http2Frame.SETTINGS -> {
                if (!frame.has(Http2Frame.ACK)) {
                    takeSettings(payload);
                    output.owe(Http2Frame.of(
                            Http2Frame.SETTINGS, Http2Frame.ACK, 0, ByteBuffer.allocate(0)));
                }
            }
            case Http2Frame.PING -> {
                if (!frame.has(Http2Frame.ACK)) {
                    output.owe(Http2Frame.of(Http2Frame.PING, Http2Frame.ACK, 0, payload));
                }
            }
            case Http2Frame.GOAWAY -> takeFarewell(payload);
            case Http2Frame.WINDOW_UPDATE ->
                output.opened(frame.stream(), payload.getInt() & Integer.MAX_VALUE);
            default -> { } // what nobody knows, and PRIORITY
        }
    }

    private void takeSettings(ByteBuffer settings) throws IOException {
        while (settings.hasRemaining()) {
            int name = settings.getShort();
            long value = settings.getInt() & 0xffff_ffffL;
            if (name == INITIAL_WINDOW_SIZE) {
                output.initial(value);
            }
        }
    }

    /** It ends a stream that the peer has not seen, and no other: that goes on to its own end. */
    private void takeFarewell(ByteBuffer goaway) throws IOException {
        int last = goaway.getInt() & Integer.MAX_VALUE;
        String why = code(goaway.getInt());
        ByteBuffer said = goaway.limit(Math.min(goaway.limit(), goaway.position() + FAREWELL_BYTES));
        farewell = "; the peer left: " + why + " " + StandardCharsets.UTF_8.decode(said);
        if (last < Http2Frame.STREAM) {
            throw new IOException("the stream is not taken" + farewell);
        }
    }

    private static String code(int code) {
        return code >= 0 && code < CODES.length ? CODES[code] : "code " + code;
    }

    private void takeData(Http2Frame frame) throws IOException {
        if (!granted) {
            throw Http2Frame.broken("DATA before the head of the answer");
        }
        data = frame.content();
        uncredited += frame.payload().remaining();
        if (uncredited >= WINDOW_BYTES / 4) {
            output.owe(Http2Frame.credit(0, uncredited));
            output.owe(Http2Frame.credit(Http2Frame.STREAM, uncredited));
            uncredited = 0;
        }
        if (frame.has(Http2Frame.END_STREAM)) {
            end("the peer has ended the stream");
        }
    }

    private void end(String why) {
        ended = true;
        output.shut(why);
    }

    private void takeFields(Http2Frame frame) throws IOException {
        if (fields == null) {
            throw Http2Frame.broken("CONTINUATION of nothing");
        }
        ByteBuffer block = frame.content();
        fields.write(block.array(), block.arrayOffset(), block.remaining());
        if (fields.size() > FIELDS_BYTES) {
            throw Http2Frame.broken("header fields of more than " + FIELDS_BYTES + " octets");
        }
        if (!frame.has(Http2Frame.END_HEADERS)) {
            return;
        }
        // Fields behind the answer's are trailers, which mean nothing.
        int status = granted ? OK : Http2Head.status(ByteBuffer.wrap(fields.toByteArray()));
        fields = null;
        boolean trailers = granted;
        granted = status == OK;
        if (status > OK || status == OK && fieldsEnd && !trailers) {
            throw new IOException("the request is answered with status " + status
                    + (status == OK ? ", and nothing else" : ""));
        }
        if (fieldsEnd != trailers) {
            throw Http2Frame.broken("header fields where none belong");
        }
        if (trailers) {
            end("the peer has ended the stream");
        }
    }
}
