package gateway.rsio;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/** Octets to send, in an array that grows and is used again. */
final class Output {
    private byte[] octets = new byte[1 << 12];
    private int size;

    int size() {
        return size;
    }

    /** What was written; valid until the next write. */
    ByteBuffer written() {
        return ByteBuffer.wrap(octets, 0, size);
    }

    void clear() {
        size = 0;
    }

    private void reserve(int more) {
        if (octets.length - size < more) {
            octets = Arrays.copyOf(octets, Math.max(octets.length * 2, size + more));
        }
    }

    void octet(int value) {
        reserve(1);
        octets[size++] = (byte) value;
    }

    void varint(long value) {
        reserve(10);
        while ((value & ~0x7fL) != 0) {
            octets[size++] = (byte) (value | 0x80);
            value >>>= 7;
        }
        octets[size++] = (byte) value;
    }

    /** Appends what remains of `data`, which stays as it is. */
    void raw(ByteBuffer data) {
        raw(data, data.position(), data.remaining());
    }

    void raw(ByteBuffer data, int from, int count) {
        reserve(count);
        data.get(from, octets, size, count);
        size += count;
    }

    void bytes(ByteBuffer data) {
        varint(data.remaining());
        raw(data);
    }

    /** The length of a text in UTF-8, and the text. */
    void text(String text) {
        bytes(ByteBuffer.wrap(text.getBytes(StandardCharsets.UTF_8)));
    }

    /** An onNext; without the length if the stream's elements have a fixed size. */
    void element(long subscriber, ByteBuffer element, boolean fixed) {
        octet(Type.ON_NEXT.code);
        varint(subscriber);
        if (!fixed) {
            varint(element.remaining());
        }
        raw(element);
    }

    /** A message whose elements, if it has any, are all of a fixed size or have their length. */
    void message(Message message) {
        octet(message.type.code);
        for (Type.Field field : message.type.fields) {
            switch (field) {
                case VERSION -> octet((int) message.number);
                case EXTENSIONS -> {
                    varint(message.extensions.length);
                    for (long each : message.extensions) {
                        varint(each);
                    }
                }
                case SUBSCRIBER -> varint(message.subscriber);
                case NUMBER, SIZE -> varint(message.number);
                case OFFSET -> varint(message.offset);
                case NAME, TEXT -> text(message.text);
                case DATA, INSTANCE, PART, ELEMENT -> bytes(message.data);
                case PACKED -> {
                    varint(message.number);
                    raw(message.data);
                }
            }
        }
    }
}
