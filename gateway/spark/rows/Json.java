/*
 * What binary formats of events have in common, and how their values are written as JSON.
 *
 * Janino compiles it: no generics, no lambdas, no switch on strings.
 */
package gateway.spark;

import java.nio.ByteBuffer;

/** Lengths and numbers that are bounded by what there is, and JSON. */
final class Json {

    /** So long may the JSON of a payload be: some bytes may say much, as names of fields do. */
    private static final int MOST = 32 << 20;

    private Json() {
    }

    /** Raises an IllegalArgumentException where there is too much of it. */
    static void check(StringBuilder out) {
        if (out.length() > MOST) {
            throw new IllegalArgumentException();
        }
    }

    /** A number of seven bits a byte, the lowest first. */
    static long varint(ByteBuffer in) {
        long found = 0;
        for (int shift = 0; shift < 64; shift += 7) {
            long next = in.get();
            found |= (next & 0x7f) << shift;
            if (next >= 0) {
                return found;
            }
        }
        throw new IllegalArgumentException();
    }

    static byte[] take(ByteBuffer in, long size) {
        if (size < 0 || size > in.remaining()) {
            throw new IllegalArgumentException();
        }
        byte[] found = new byte[(int) size];
        in.get(found);
        return found;
    }

    /** A number, or its name as text where JSON has no such number. */
    static void number(StringBuilder out, double found) {
        if (Double.isNaN(found) || Double.isInfinite(found)) {
            text(out, String.valueOf(found));
        } else {
            out.append(found);
        }
    }

    static void number(StringBuilder out, float found) {
        if (Float.isNaN(found) || Float.isInfinite(found)) {
            text(out, String.valueOf(found));
        } else {
            out.append(found);
        }
    }

    static void text(StringBuilder out, String found) {
        out.append('"');
        for (int n = 0; n < found.length(); n++) {
            char one = found.charAt(n);
            if (one == '"' || one == '\\') {
                out.append('\\').append(one);
            } else if (one < ' ') {
                out.append("\\u00").append(Character.forDigit(one >> 4, 16));
                out.append(Character.forDigit(one & 15, 16));
            } else {
                out.append(one);
            }
        }
        out.append('"');
    }
}
