package gateway.rsio;

import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.function.LongUnaryOperator;

/**
 * Reads messages out of octets that arrive in any pieces.
 *
 * <p>Every length is held against its limit before the octets that it announces are kept.
 */
final class Decoder {
    /** The element size of a stream that was never answered, or that nobody subscribed. */
    static final int UNKNOWN = -1;

    private static final int ROOM_BYTES = 1 << 16;
    private static final Incomplete INCOMPLETE = new Incomplete();

    private static final class Incomplete extends RuntimeException {
        Incomplete() {
            super(null, null, false, false);
        }
    }

    private final LongUnaryOperator sizeOf;
    private byte[] octets;
    private int at;
    private int end;

    /** `sizeOf` gives the elementSize of a stream, {@link #UNKNOWN} if there is none. */
    Decoder(LongUnaryOperator sizeOf) {
        this.sizeOf = sizeOf;
        this.octets = new byte[ROOM_BYTES];
    }

    /** Where octets that arrive are to be put; then {@link #arrived} is called. */
    ByteBuffer room() {
        if (at > 0) {
            System.arraycopy(octets, at, octets, 0, end - at);
            end -= at;
            at = 0;
        }
        if (octets.length - end < ROOM_BYTES / 2) {
            octets = Arrays.copyOf(octets, octets.length * 2);
        } else if (end == 0 && octets.length > ROOM_BYTES * 16) {
            octets = new byte[ROOM_BYTES]; // a large element has passed
        }
        return ByteBuffer.wrap(octets, end, octets.length - end);
    }

    void arrived(int count) {
        end += count;
    }

    void feed(byte[] data, int from, int count) {
        while (count > 0) {
            ByteBuffer room = room();
            int some = Math.min(count, room.remaining());
            room.put(data, from, some);
            arrived(some);
            from += some;
            count -= some;
        }
    }

    /** Octets of a message that is not whole. */
    int unread() {
        return end - at;
    }

    /** The next message, or null if it is not whole. Its octets are a copy. */
    Message next() throws Violation {
        if (at == end) {
            return null;
        }
        int start = at;
        try {
            Message message = new Message(Type.of(octet()));
            for (Type.Field field : message.type.fields) {
                read(field, message);
            }
            return message;
        } catch (Incomplete why) {
            at = start;
            return null;
        }
    }

    private void read(Type.Field field, Message message) throws Violation {
        switch (field) {
            case VERSION -> message.number = octet();
            case EXTENSIONS -> {
                long[] found = new long[length(Limits.EXTENSIONS, "extensions")];
                for (int n = 0; n < found.length; n++) {
                    found[n] = varint();
                }
                message.extensions = found;
            }
            case SUBSCRIBER -> message.subscriber = varint();
            case NUMBER -> message.number = varint();
            case OFFSET -> message.offset = varint();
            case SIZE -> message.number = length(Limits.DECLARED_BYTES, "a size");
            case NAME -> message.text = text(length(Limits.NAME_BYTES, "a name"));
            case TEXT -> message.text = text(length(Limits.TEXT_BYTES, "a text"));
            case DATA -> message.data = take(length(Limits.TEXT_BYTES, "data"));
            case INSTANCE -> message.data = take(length(Limits.INSTANCE_BYTES, "an instance"));
            case PART -> message.data = take(length(Limits.PART_BYTES, "a part"));
            case ELEMENT -> {
                int size = size(message);
                message.data = take(size > 0 ? size : length(Limits.DECLARED_BYTES, "an element"));
            }
            case PACKED -> {
                int size = size(message);
                if (size == 0) {
                    throw new Violation("packed elements in a stream without a size");
                }
                int count = length(Limits.DECLARED_BYTES / size, "a pack");
                message.number = count;
                message.data = take(count * size);
            }
        }
    }

    private int size(Message message) throws Violation {
        int size = (int) sizeOf.applyAsLong(message.subscriber);
        if (size == UNKNOWN) {
            throw new Violation("an element before onSubscribe (1.9)");
        }
        return size;
    }

    private int octet() {
        if (at == end) {
            throw INCOMPLETE;
        }
        return octets[at++] & 0xff;
    }

    private long varint() throws Violation {
        long value = 0;
        for (int shift = 0; shift < 70; shift += 7) {
            int octet = octet();
            if (shift == 63 && (octet & 0x7e) != 0) {
                throw new Violation("a varint of more than 64 bits");
            }
            value |= (long) (octet & 0x7f) << shift;
            if (octet < 0x80) {
                return value;
            }
        }
        throw new Violation("a varint of more than ten octets");
    }

    private int length(int most, String what) throws Violation {
        long value = varint();
        if (Long.compareUnsigned(value, most) > 0) {
            throw new Violation(
                    what + " of " + Long.toUnsignedString(value) + ", limit " + most);
        }
        return (int) value;
    }

    private ByteBuffer take(int count) {
        if (end - at < count) {
            throw INCOMPLETE;
        }
        ByteBuffer taken = ByteBuffer.wrap(Arrays.copyOfRange(octets, at, at + count));
        at += count;
        return taken;
    }

    private String text(int count) throws Violation {
        ByteBuffer taken = take(count);
        try {
            return StandardCharsets.UTF_8.newDecoder().decode(taken).toString();
        } catch (CharacterCodingException why) {
            throw new Violation("a String that is not UTF-8");
        }
    }
}
