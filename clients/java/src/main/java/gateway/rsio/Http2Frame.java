package gateway.rsio;

import java.io.IOException;
import java.nio.ByteBuffer;

/** A frame of HTTP/2 (RFC 9113, 4 and 6), of a connection with one stream. */
record Http2Frame(int type, int flags, int stream, ByteBuffer payload) {
    static final int DATA = 0;
    static final int HEADERS = 1;
    static final int RST_STREAM = 3;
    static final int SETTINGS = 4;
    static final int PUSH_PROMISE = 5;
    static final int PING = 6;
    static final int GOAWAY = 7;
    static final int WINDOW_UPDATE = 8;
    static final int CONTINUATION = 9;

    static final int ACK = 1;
    static final int END_STREAM = 1;
    static final int END_HEADERS = 4;
    private static final int PADDED = 8;
    private static final int PRIORITY = 0x20;
    private static final int PRIORITY_BYTES = 5;

    /** The only one. */
    static final int STREAM = 1;
    /** Of a payload, in both directions: what either side may send unasked. */
    static final int MOST_BYTES = 1 << 14;
    private static final int HEAD_BYTES = 9;

    static IOException broken(String how) {
        return new IOException("the peer breaks HTTP/2: " + how);
    }

    static ByteBuffer of(int type, int flags, int stream, ByteBuffer payload) {
        return ByteBuffer.allocate(HEAD_BYTES + payload.remaining())
                .putInt(payload.remaining() << 8 | type).put((byte) flags).putInt(stream)
                .put(payload).flip();
    }

    static ByteBuffer credit(int stream, int octets) {
        return of(WINDOW_UPDATE, 0, stream, ByteBuffer.allocate(4).putInt(0, octets));
    }

    /** Takes the next frame, whose payload is a part of `input`; null if it is not whole. */
    static Http2Frame next(ByteBuffer input, boolean first) throws IOException {
        int at = input.position();
        if (input.remaining() < HEAD_BYTES) {
            return null;
        }
        int length = input.getInt(at) >>> 8;
        int type = input.get(at + 3) & 0xff;
        if (first && type != SETTINGS) {
            throw new IOException("no HTTP/2 there");
        }
        if (length > MOST_BYTES) {
            throw broken("a frame of " + length + " octets");
        }
        if (input.remaining() < HEAD_BYTES + length) {
            return null;
        }
        int stream = input.getInt(at + 5) & Integer.MAX_VALUE;
        input.position(at + HEAD_BYTES + length);
        Http2Frame made = new Http2Frame(
                type, input.get(at + 4), stream, input.slice(at + HEAD_BYTES, length));
        if (!made.possible()) {
            throw broken("a frame of type " + type + " with " + length + " octets in stream "
                    + stream);
        }
        return made;
    }

    private boolean possible() {
        int length = payload.remaining();
        return switch (type) {
            case DATA, HEADERS, CONTINUATION -> stream == STREAM;
            case RST_STREAM -> stream == STREAM && length == 4;
            case SETTINGS -> stream == 0 && length % 6 == 0;
            case PING -> stream == 0 && length == 8;
            case GOAWAY -> stream == 0 && length >= 8;
            case WINDOW_UPDATE -> stream <= STREAM && length == 4;
            default -> type != PUSH_PROMISE;
        };
    }

    boolean has(int flag) {
        return (flags & flag) != 0;
    }

    /** What DATA, HEADERS or CONTINUATION have beside padding and priority. */
    ByteBuffer content() throws IOException {
        ByteBuffer rest = payload.slice();
        int padding = 0;
        if (type != CONTINUATION && has(PADDED)) {
            padding = rest.hasRemaining() ? rest.get() & 0xff : MOST_BYTES;
        }
        int skipped = type == HEADERS && has(PRIORITY) ? PRIORITY_BYTES : 0;
        if (skipped + padding > rest.remaining()) {
            throw broken("more padding than there are octets");
        }
        return rest.slice(rest.position() + skipped, rest.remaining() - skipped - padding);
    }
}
