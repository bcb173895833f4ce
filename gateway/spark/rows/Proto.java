/*
 * JSON of Protobuf payloads, by a set of descriptors as `protoc --descriptor_set_out` writes it.
 *
 * Spark has no Protobuf of its own that others may use, and what is needed of it is little: both
 * the descriptors and the payloads are read here.  Janino compiles it: no generics, no lambdas, no
 * switch on strings.
 */
package gateway.spark;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/** A message type; its fields have the names that the .proto has. */
final class Proto {

    private static final int DEEP = 100;
    private static final int VARINT = 0;
    private static final int FIXED64 = 1;
    private static final int BYTES = 2;
    private static final int FIXED32 = 5;
    private static final String INSTANT = ".google.protobuf.Timestamp";

    /** Fields by number, in this order. */
    private final Map fields = new TreeMap();
    private String name;
    private boolean isMap;

    private Proto() {
    }

    /** A field of a message. */
    private static final class Field {
        String name;
        int number;
        int type;
        String typeName = "";
        boolean repeated;
        /** Whether it has no other value than its default while it is not there. */
        boolean implicit = true;
        Proto message;
        Map symbols;
    }

    /** The message type of this full name in a FileDescriptorSet. */
    static Proto of(byte[] set, String name) {
        Map messages = new HashMap();
        Map enums = new HashMap();
        ByteBuffer in = in(set);
        while (in.hasRemaining()) {
            long tag = varint(in);
            if (tag == 10) {
                file(in(take(in)), messages, enums);
            } else {
                skip(in, tag);
            }
        }
        for (Iterator all = messages.values().iterator(); all.hasNext();) {
            Proto message = (Proto) all.next();
            for (Iterator each = message.fields.values().iterator(); each.hasNext();) {
                Field field = (Field) each.next();
                field.message = (Proto) messages.get(field.typeName);
                field.symbols = (Map) enums.get(field.typeName);
            }
        }
        Proto found = (Proto) messages.get("." + name);
        if (found == null) {
            throw new IllegalArgumentException(name);
        }
        return found;
    }

    private static void file(ByteBuffer in, Map messages, Map enums) {
        String space = "";
        boolean three = false;
        List parts = new ArrayList();
        while (in.hasRemaining()) {
            long tag = varint(in);
            if ((tag & 7) != BYTES) {
                skip(in, tag);
                continue;
            }
            byte[] part = take(in);
            if (tag >> 3 == 2) {
                space = "." + text(part);
            } else if (tag >> 3 == 12) {
                three = text(part).equals("proto3");
            } else if (tag >> 3 == 4 || tag >> 3 == 5) {
                parts.add(new Object[] {Long.valueOf(tag >> 3), part});
            }
        }
        for (int n = 0; n < parts.size(); n++) {
            Object[] part = (Object[]) parts.get(n);
            if (((Long) part[0]).longValue() == 4) {
                message(in((byte[]) part[1]), space, three, messages, enums, 0);
            } else {
                symbols(in((byte[]) part[1]), space, enums);
            }
        }
    }

    private static void message(
            ByteBuffer in, String space, boolean three, Map messages, Map enums, int depth) {
        if (depth > DEEP) {
            throw new IllegalArgumentException();
        }
        Proto made = new Proto();
        List nested = new ArrayList();
        while (in.hasRemaining()) {
            long tag = varint(in);
            if ((tag & 7) != BYTES) {
                skip(in, tag);
                continue;
            }
            byte[] part = take(in);
            switch ((int) (tag >> 3)) {
                case 1:
                    made.name = space + "." + text(part);
                    break;
                case 2:
                    Field field = field(in(part), three);
                    made.fields.put(Integer.valueOf(field.number), field);
                    break;
                case 3:
                case 4:
                    nested.add(new Object[] {Long.valueOf(tag >> 3), part});
                    break;
                case 7:
                    made.isMap = number(in(part), 7) == 1;
                    break;
                default:
            }
        }
        messages.put(made.name, made);
        for (int n = 0; n < nested.size(); n++) {
            Object[] part = (Object[]) nested.get(n);
            if (((Long) part[0]).longValue() == 3) {
                message(in((byte[]) part[1]), made.name, three, messages, enums, depth + 1);
            } else {
                symbols(in((byte[]) part[1]), made.name, enums);
            }
        }
    }

    private static Field field(ByteBuffer in, boolean three) {
        Field made = new Field();
        made.implicit = three;
        while (in.hasRemaining()) {
            long tag = varint(in);
            long of = tag >> 3;
            if ((tag & 7) == VARINT) {
                long value = varint(in);
                if (of == 3) {
                    made.number = (int) value;
                } else if (of == 4) {
                    made.repeated = value == 3;
                } else if (of == 5) {
                    made.type = (int) value;
                } else if (of == 9 || of == 17) {
                    made.implicit = false; // of a oneof, or optional
                }
            } else if (tag == 10) {
                made.name = text(take(in));
            } else if (of == 6) {
                made.typeName = text(take(in));
            } else {
                skip(in, tag);
            }
        }
        return made;
    }

    private static void symbols(ByteBuffer in, String space, Map enums) {
        Map made = new TreeMap();
        String name = "";
        while (in.hasRemaining()) {
            long tag = varint(in);
            if (tag == 10) {
                name = space + "." + text(take(in));
            } else if (tag == 18) {
                byte[] value = take(in);
                made.put(Long.valueOf(number(in(value), 2)), symbol(in(value)));
            } else {
                skip(in, tag);
            }
        }
        enums.put(name, made);
    }

    private static String symbol(ByteBuffer in) {
        String found = "";
        while (in.hasRemaining()) {
            long tag = varint(in);
            if (tag == 10) {
                found = text(take(in));
            } else {
                skip(in, tag);
            }
        }
        return found;
    }

    /** The number in a message's field; 0 where it is not there. */
    private static long number(ByteBuffer in, int field) {
        long found = 0;
        while (in.hasRemaining()) {
            long tag = varint(in);
            if (tag == field << 3) {
                found = varint(in);
            } else {
                skip(in, tag);
            }
        }
        return found;
    }

    /** Appends the JSON of a payload.  Raises a RuntimeException for one that is none. */
    void read(byte[] payload, StringBuilder out) {
        read(in(payload), out, 0);
    }

    private void read(ByteBuffer in, StringBuilder out, int depth) {
        if (depth > DEEP) {
            throw new IllegalArgumentException();
        }
        Map found = new HashMap();
        while (in.hasRemaining()) {
            long tag = varint(in);
            Field field = (Field) fields.get(Integer.valueOf((int) (tag >>> 3)));
            ByteBuffer value = next(in, tag, field);
            if (field == null) {
                continue;
            }
            List values = (List) found.get(field);
            if (values == null) {
                values = new ArrayList();
                found.put(field, values);
            }
            values.add(value);
        }
        out.append('{');
        String comma = "";
        for (Iterator each = fields.values().iterator(); each.hasNext();) {
            Field field = (Field) each.next();
            List values = (List) found.get(field);
            if (values == null && (field.repeated || !field.implicit || field.type == 11)) {
                continue;
            }
            out.append(comma);
            comma = ",";
            Json.text(out, field.name);
            out.append(':');
            if (values == null) {
                out.append(unset(field));
            } else {
                values(field, values, out, depth);
            }
        }
        out.append('}');
    }

    /** What is behind a tag: a value of the field, or several that are packed. */
    private static ByteBuffer next(ByteBuffer in, long tag, Field field) {
        int wire = (int) (tag & 7);
        ByteBuffer value = (ByteBuffer) in.duplicate();
        value.order(ByteOrder.LITTLE_ENDIAN);
        skip(in, tag);
        value.limit(in.position());
        if (field == null || wire == wireOf(field.type)) {
            return value;
        }
        if (wire != BYTES) {
            throw new IllegalArgumentException();
        }
        return part(value);
    }

    private static void values(Field field, List values, StringBuilder out, int depth) {
        boolean map = field.message != null && field.message.isMap;
        if (field.repeated) {
            out.append(map ? '{' : '[');
        }
        int from = out.length();
        for (int n = 0; n < values.size(); n++) {
            ByteBuffer in = (ByteBuffer) values.get(n);
            while (in.hasRemaining()) {
                if (!field.repeated) {
                    out.setLength(from); // the last one counts
                } else if (out.length() > from) {
                    out.append(',');
                }
                value(in, field, out, depth);
            }
        }
        if (field.repeated) {
            out.append(map ? '}' : ']');
        } else if (out.length() == from) {
            throw new IllegalArgumentException();
        }
    }

    private static String unset(Field field) {
        switch (field.type) {
            case 8:
                return "false";
            case 9:
            case 12:
                return "\"\"";
            case 14:
                return symbol(field, 0);
            default:
                return "0";
        }
    }

    private static int wireOf(int type) {
        switch (type) {
            case 1:
            case 6:
            case 16:
                return FIXED64;
            case 2:
            case 7:
            case 15:
                return FIXED32;
            case 9:
            case 11:
            case 12:
                return BYTES;
            default:
                return VARINT;
        }
    }

    private static void value(ByteBuffer in, Field field, StringBuilder out, int depth) {
        Json.check(out);
        switch (field.type) {
            case 1:
                Json.number(out, in.getDouble());
                break;
            case 2:
                Json.number(out, in.getFloat());
                break;
            case 4:
                out.append(Long.toUnsignedString(varint(in)));
                break;
            case 6:
                out.append(Long.toUnsignedString(in.getLong()));
                break;
            case 7:
                out.append(in.getInt() & 0xffffffffL);
                break;
            case 8:
                out.append(varint(in) != 0);
                break;
            case 9:
                Json.text(out, text(take(in)));
                break;
            case 11:
                message(field, part(in), out, depth);
                break;
            case 12:
                Json.text(out, Base64.getEncoder().encodeToString(take(in)));
                break;
            case 13:
                out.append(varint(in) & 0xffffffffL);
                break;
            case 14:
                out.append(symbol(field, varint(in)));
                break;
            case 15:
                out.append(in.getInt());
                break;
            case 16:
                out.append(in.getLong());
                break;
            case 17:
            case 18:
                long zigzag = varint(in);
                out.append(zigzag >>> 1 ^ -(zigzag & 1));
                break;
            case 3:
            case 5:
                out.append(varint(in));
                break;
            default: // groups
                throw new IllegalArgumentException();
        }
    }

    private static void message(Field field, ByteBuffer in, StringBuilder out, int depth) {
        if (field.message.isMap) {
            entry(field.message, in, out, depth);
        } else if (field.typeName.equals(INSTANT)) {
            long seconds = number((ByteBuffer) in.duplicate(), 1);
            Json.text(out, Instant.ofEpochSecond(seconds, number(in, 2)).toString());
        } else {
            field.message.read(in, out, depth + 1);
        }
    }

    /** A key and its value. */
    private static void entry(Proto of, ByteBuffer in, StringBuilder out, int depth) {
        Field[] both = {
            (Field) of.fields.get(Integer.valueOf(1)), (Field) of.fields.get(Integer.valueOf(2)),
        };
        ByteBuffer[] said = new ByteBuffer[2];
        while (in.hasRemaining()) {
            long tag = varint(in);
            int n = (int) (tag >>> 3) - 1;
            if (n == 0 || n == 1) {
                said[n] = next(in, tag, both[n]);
            } else {
                skip(in, tag);
            }
        }
        StringBuilder key = new StringBuilder();
        if (said[0] == null) {
            key.append(unset(both[0]));
        } else {
            value(said[0], both[0], key, depth + 1);
        }
        boolean quoted = key.charAt(0) == '"';
        out.append(quoted ? key : "\"" + key + "\"").append(':');
        if (said[1] == null) {
            out.append(both[1].type == 11 ? "{}" : unset(both[1]));
        } else {
            value(said[1], both[1], out, depth + 1);
        }
    }

    private static String symbol(Field field, long number) {
        Object found = field.symbols == null ? null : field.symbols.get(Long.valueOf(number));
        return found == null ? String.valueOf(number) : "\"" + found + "\"";
    }

    private static ByteBuffer in(byte[] bytes) {
        return ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
    }

    private static String text(byte[] bytes) {
        return new String(bytes, StandardCharsets.UTF_8);
    }

    private static byte[] take(ByteBuffer in) {
        return Json.take(in, varint(in));
    }

    /** The bytes behind their length, where they are. */
    private static ByteBuffer part(ByteBuffer in) {
        long size = varint(in);
        if (size < 0 || size > in.remaining()) {
            throw new IllegalArgumentException();
        }
        ByteBuffer found = (ByteBuffer) in.slice();
        found.order(ByteOrder.LITTLE_ENDIAN);
        found.limit((int) size);
        in.position(in.position() + (int) size);
        return found;
    }

    private static long varint(ByteBuffer in) {
        return Json.varint(in);
    }

    private static void skip(ByteBuffer in, long tag) {
        switch ((int) (tag & 7)) {
            case VARINT:
                varint(in);
                return;
            case FIXED64:
                in.getLong();
                return;
            case BYTES:
                part(in);
                return;
            case FIXED32:
                in.getInt();
                return;
            default: // groups
                throw new IllegalArgumentException();
        }
    }
}
