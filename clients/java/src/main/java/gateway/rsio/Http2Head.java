package gateway.rsio;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.net.URI;
import java.nio.BufferUnderflowException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;

/**
 * The heads of a request and of its answer, in HPACK (RFC 7541) without a dynamic table.
 *
 * <p>Ours is written with the static table, and literals without Huffman's code. Of an answer the
 * status alone is read, which is the first of its fields.
 */
final class Http2Head {
    private static final int POST = 0x83;
    private static final int HTTP = 0x86;
    private static final int HTTPS = 0x87;
    private static final byte[] PATH = {0x04};
    private static final byte[] AUTHORITY = {0x01};
    private static final byte[] CONTENT_TYPE = {0x0f, 0x10};
    private static final int FIRST_STATUS = 8;
    private static final int[] STATUSES = {200, 204, 206, 304, 400, 404, 500};
    private static final int LENGTH = 0x7f;

    private Http2Head() {}

    static ByteBuffer request(URI where) throws IOException {
        String path = where.getRawPath().isEmpty() ? "/" : where.getRawPath();
        String port = where.getPort() < 0 ? "" : ":" + where.getPort();
        ByteArrayOutputStream head = new ByteArrayOutputStream();
        head.write(POST);
        head.write(where.getScheme().equals("https") ? HTTPS : HTTP);
        field(head, PATH, where.getRawQuery() == null ? path : path + "?" + where.getRawQuery());
        field(head, AUTHORITY, where.getHost() + port);
        field(head, CONTENT_TYPE, "application/rs-io");
        if (head.size() > Http2Frame.MOST_BYTES) {
            throw new IOException("so long a path has no room in a frame of HTTP/2");
        }
        return ByteBuffer.wrap(head.toByteArray());
    }

    private static void field(ByteArrayOutputStream head, byte[] name, String value) {
        byte[] octets = value.getBytes(StandardCharsets.US_ASCII);
        head.writeBytes(name);
        head.write(Math.min(octets.length, LENGTH));
        if (octets.length >= LENGTH) {
            int rest = octets.length - LENGTH;
            for (; rest > 0x7f; rest >>= 7) {
                head.write(rest & 0x7f | 0x80);
            }
            head.write(rest);
        }
        head.writeBytes(octets);
    }

    static int status(ByteBuffer block) throws IOException {
        try {
            int first = block.get() & 0xff;
            while ((first & 0xe0) == 0x20) { // the size of a table, which we do not have
                integer(first, 0x1f, block);
                first = block.get() & 0xff;
            }
            boolean indexed = (first & 0x80) != 0;
            int mask = indexed ? 0x7f : (first & 0x40) != 0 ? 0x3f : 0x0f;
            int index = integer(first, mask, block);
            if (!indexed && index == 0) {
                int name = integer(block.get(), LENGTH, block); // no other than :status may be here
                block.position(Math.min(block.position() + name, block.limit()));
            } else if (index < FIRST_STATUS || index >= FIRST_STATUS + STATUSES.length) {
                throw Http2Frame.broken("an answer without a status");
            }
            return indexed ? STATUSES[index - FIRST_STATUS] : number(block);
        } catch (BufferUnderflowException cut) {
            throw Http2Frame.broken("header fields that are cut");
        }
    }

    /** An integer whose first bits are those of `first` in `mask`. */
    private static int integer(int first, int mask, ByteBuffer block) throws IOException {
        int value = first & mask;
        if (value < mask) {
            return value;
        }
        int more = 0x80;
        for (int shift = 0; (more & 0x80) != 0; shift += 7) {
            if (shift > 14) {
                throw Http2Frame.broken("header fields of too large a number");
            }
            more = block.get();
            value += (more & 0x7f) << shift;
        }
        return value;
    }

    /** Three digits; in Huffman's code 0 to 2 have five bits, and 3 to 9 six. */
    private static int number(ByteBuffer block) throws IOException {
        int head = block.get();
        int length = integer(head, LENGTH, block);
        int bits = 0;
        for (int n = 0; n < length && n < 3; n++) {
            bits = bits << 8 | block.get() & 0xff;
        }
        int left = length <= 3 ? length * 8 : 0;
        int number = 0;
        for (int n = 0; n < 3; n++) {
            int width = head >= 0 ? 8 : left >= 5 && (bits >> left - 5 & 0x1f) < 3 ? 5 : 6;
            left -= width;
            int zero = width == 8 ? '0' : width == 6 ? 0x19 - 3 : 0;
            int digit = left < 0 ? -1 : (bits >> left & (1 << width) - 1) - zero;
            if (digit < 0 || digit > 9) {
                throw Http2Frame.broken("a status that is no number");
            }
            number = number * 10 + digit;
        }
        return number;
    }
}
