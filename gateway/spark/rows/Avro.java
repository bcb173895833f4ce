/*
 * JSON of Avro payloads, by the schemas that are known.
 *
 * Runs in Spark's Java as a function of a row, as `Fields.java`.  The payload's length bounds
 * what it may say of lengths and counts, so no sender takes memory with a few bytes.  Whatever
 * the payload is, this ends well: what is not wholly a value of its schema is null.
 *
 * Janino compiles it: no generics, no lambdas, no switch on strings.
 */
package gateway.spark;

import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.time.LocalDate;
import java.time.temporal.ChronoUnit;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.avro.LogicalType;
import org.apache.avro.LogicalTypes;
import org.apache.avro.Schema;
import org.apache.spark.sql.api.java.UDF3;

/** Payload, content type and channel to the JSON in UTF-8; null where there is no schema. */
public final class Avro implements UDF3 {

    private static final String ID = ";schema=";
    private static final String FRAMING = ";framing=";
    private static final int DEEP = 200;

    private final String[] names;
    private final String[] texts;
    private final String url;
    private final String folder;
    private transient Map schemas;

    /**
     * Each name is the id of a schema, or SCOPE/STREAM/ID; *texts* are the schemas.  Others
     * are asked for at *url*, if it is not empty, and kept in *folder*.
     */
    public Avro(String[] names, String[] texts, String url, String folder) {
        this.names = names;
        this.texts = texts;
        this.url = url;
        this.folder = folder;
    }

    public Object call(Object payload, Object type, Object channel) {
        if (payload == null || type == null) {
            return null;
        }
        Value value = new Value((byte[]) payload);
        try {
            Schema schema = find((String) type, channel == null ? "" : (String) channel);
            if (schema == null) {
                return null;
            }
            value.read(schema, 0);
        } catch (RuntimeException why) {
            return null;
        }
        if (value.in.hasRemaining()) {
            return null;
        }
        return value.out.toString().getBytes(StandardCharsets.UTF_8);
    }

    private Schema find(String type, String channel) {
        if (schemas == null) {
            Map made = new HashMap();
            for (int n = 0; n < names.length; n++) {
                made.put(names[n], new Schema.Parser().parse(texts[n]));
            }
            schemas = made;
        }
        int at = type.lastIndexOf(ID);
        if (at < 0) {
            return null;
        }
        String id = type.substring(at + ID.length());
        String stream = channel.substring(0, Math.max(0, channel.lastIndexOf('/')));
        String own = stream + "/" + id;
        Object found = schemas.get(own);
        if (found == null) {
            found = schemas.get(id);
        }
        if (found == null && url.length() > 0) {
            int from = type.lastIndexOf(FRAMING) + FRAMING.length();
            String framing = type.substring(from, Math.max(from, at));
            String text = Registry.find(url, folder, framing, stream, id);
            if (text != null) {
                found = new Schema.Parser().parse(text);
                schemas.put(framing.equals("confluent") ? id : own, found);
            }
        }
        return (Schema) found;
    }

    /** One payload as it is read, and the JSON so far. */
    private static final class Value {

        final ByteBuffer in;
        final StringBuilder out = new StringBuilder();
        /** How many more elements that take no byte may come. */
        private int free = 10000;

        Value(byte[] payload) {
            in = ByteBuffer.wrap(payload).order(ByteOrder.LITTLE_ENDIAN);
        }

        void read(Schema schema, int depth) {
            if (depth > DEEP) {
                throw new IllegalArgumentException();
            }
            LogicalType logical = schema.getLogicalType();
            switch (schema.getType().ordinal()) {
                case 0: // RECORD
                    List fields = schema.getFields();
                    for (int n = 0; n < fields.size(); n++) {
                        Schema.Field field = (Schema.Field) fields.get(n);
                        out.append(n == 0 ? '{' : ',');
                        text(field.name());
                        out.append(':');
                        read(field.schema(), depth + 1);
                    }
                    out.append(fields.isEmpty() ? "{}" : "}");
                    return;
                case 1: // ENUM
                    text((String) schema.getEnumSymbols().get(index(schema.getEnumSymbols())));
                    return;
                case 2: // ARRAY
                    blocks(schema.getElementType(), false, depth);
                    return;
                case 3: // MAP
                    blocks(schema.getValueType(), true, depth);
                    return;
                case 4: // UNION
                    read((Schema) schema.getTypes().get(index(schema.getTypes())), depth + 1);
                    return;
                case 5: // FIXED
                    bytes(take(schema.getFixedSize()), logical);
                    return;
                case 6: // STRING
                    text(new String(take(varint()), StandardCharsets.UTF_8));
                    return;
                case 7: // BYTES
                    bytes(take(varint()), logical);
                    return;
                case 8: // INT
                case 9: // LONG
                    number(varint(), logical);
                    return;
                case 10: // FLOAT
                    floating(in.getFloat(), String.valueOf(in.getFloat(in.position() - 4)));
                    return;
                case 11: // DOUBLE
                    floating(in.getDouble(), String.valueOf(in.getDouble(in.position() - 8)));
                    return;
                case 12: // BOOLEAN
                    out.append(in.get() != 0);
                    return;
                default: // NULL
                    out.append("null");
            }
        }

        private int index(List of) {
            long found = varint();
            if (found < 0 || found >= of.size()) {
                throw new IllegalArgumentException();
            }
            return (int) found;
        }

        /** The elements of an array, or with *keys* of a map. */
        private void blocks(Schema schema, boolean keys, int depth) {
            out.append(keys ? '{' : '[');
            boolean first = true;
            for (long count = varint(); count != 0; count = varint()) {
                if (count < 0) {
                    varint(); // the block's size
                    count = -count;
                }
                for (long n = 0; n < count; n++) {
                    if (!first) {
                        out.append(',');
                    }
                    first = false;
                    int before = in.position();
                    if (keys) {
                        text(new String(take(varint()), StandardCharsets.UTF_8));
                        out.append(':');
                    }
                    read(schema, depth + 1);
                    if (in.position() == before && free-- == 0) {
                        throw new IllegalArgumentException();
                    }
                }
            }
            out.append(keys ? '}' : ']');
        }

        private long varint() {
            long found = 0;
            for (int shift = 0; shift < 64; shift += 7) {
                long next = in.get();
                found |= (next & 0x7f) << shift;
                if (next >= 0) {
                    return found >>> 1 ^ -(found & 1);
                }
            }
            throw new IllegalArgumentException();
        }

        private byte[] take(long size) {
            if (size < 0 || size > in.remaining()) {
                throw new IllegalArgumentException();
            }
            byte[] found = new byte[(int) size];
            in.get(found);
            return found;
        }

        private void bytes(byte[] found, LogicalType logical) {
            if (logical instanceof LogicalTypes.Decimal && found.length <= 100) {
                int scale = ((LogicalTypes.Decimal) logical).getScale();
                text(new BigDecimal(new BigInteger(found), scale).toPlainString());
            } else {
                text(Base64.getEncoder().encodeToString(found));
            }
        }

        private void number(long found, LogicalType logical) {
            if (logical instanceof LogicalTypes.Date) {
                text(LocalDate.ofEpochDay(found).toString());
            } else if (logical instanceof LogicalTypes.TimestampMillis) {
                text(Instant.ofEpochMilli(found).toString());
            } else if (logical instanceof LogicalTypes.TimestampMicros) {
                text(Instant.EPOCH.plus(found, ChronoUnit.MICROS).toString());
            } else {
                out.append(found);
            }
        }

        private void floating(double found, String said) {
            if (Double.isNaN(found) || Double.isInfinite(found)) {
                text(said);
            } else {
                out.append(said);
            }
        }

        private void text(String found) {
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
}
