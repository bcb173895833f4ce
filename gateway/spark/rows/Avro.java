/*
 * JSON of Avro payloads, by their schemas.
 *
 * The payload's length bounds what it may say of lengths and counts, so no sender takes memory
 * with a few bytes.  Janino compiles it: no generics, no lambdas, no switch on strings.
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
import java.util.List;
import org.apache.avro.LogicalType;
import org.apache.avro.LogicalTypes;
import org.apache.avro.Schema;

/** One payload as it is read, and the JSON so far. */
final class Avro {

    private static final int DEEP = 200;

    private final ByteBuffer in;
    private final StringBuilder out;
    /** How many more elements that take no byte may come. */
    private int free = 10000;

    private Avro(byte[] payload, StringBuilder out) {
        in = ByteBuffer.wrap(payload).order(ByteOrder.LITTLE_ENDIAN);
        this.out = out;
    }

    /** Appends the JSON of a payload.  Raises a RuntimeException for one that is none. */
    static void read(Schema schema, byte[] payload, StringBuilder out) {
        Avro made = new Avro(payload, out);
        made.read(schema, 0);
        if (made.in.hasRemaining()) {
            throw new IllegalArgumentException();
        }
    }

    private void read(Schema schema, int depth) {
        if (depth > DEEP) {
            throw new IllegalArgumentException();
        }
        Json.check(out);
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
                Json.number(out, in.getFloat());
                return;
            case 11: // DOUBLE
                Json.number(out, in.getDouble());
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
        long found = Json.varint(in);
        return found >>> 1 ^ -(found & 1);
    }

    private byte[] take(long size) {
        return Json.take(in, size);
    }

    private void text(String found) {
        Json.text(out, found);
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
}
