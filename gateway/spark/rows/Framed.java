/*
 * JSON of Avro and Protobuf payloads, by the schemas that are known.
 *
 * Runs in Spark's Java as a function of a row, as `Fields.java`.  Whatever the payload is, this
 * ends well: what is not wholly a value of its schema is null.
 *
 * Janino compiles it: no generics, no lambdas, no switch on strings.
 */
package gateway.spark;

import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import org.apache.avro.Schema;
import org.apache.spark.sql.api.java.UDF3;

/** Payload, content type and channel to the JSON in UTF-8; null where there is no schema. */
public final class Framed implements UDF3 {

    private static final String ID = ";schema=";
    private static final String FRAMING = ";framing=";

    private final String[] names;
    private final String[] texts;
    private final String url;
    private final String folder;
    private transient Map schemas;

    /**
     * Each name is the id of a schema, or SCOPE/STREAM/ID; *texts* are the schemas.  Others
     * are asked for at *url*, if it is not empty, and kept in *folder*.
     */
    public Framed(String[] names, String[] texts, String url, String folder) {
        this.names = names;
        this.texts = texts;
        this.url = url;
        this.folder = folder;
    }

    public Object call(Object payload, Object type, Object channel) {
        if (payload == null || type == null) {
            return null;
        }
        StringBuilder out = new StringBuilder();
        try {
            Object schema = find((String) type, channel == null ? "" : (String) channel);
            if (schema instanceof Schema) {
                Avro.read((Schema) schema, (byte[]) payload, out);
            } else if (schema != null) {
                ((Proto) schema).read((byte[]) payload, out);
            } else {
                return null;
            }
        } catch (RuntimeException why) {
            return null;
        }
        return out.toString().getBytes(StandardCharsets.UTF_8);
    }

    private Object find(String type, String channel) {
        if (schemas == null) {
            Map made = new HashMap();
            for (int n = 0; n < names.length; n++) {
                try {
                    made.put(names[n], Registry.parsed(texts[n]));
                } catch (RuntimeException why) {
                    made.remove(names[n]); // its events are misfits, and others are not
                }
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
            String fetched = framing + " " + own; // no name of a schema that was given
            found = schemas.get(fetched);
            if (found == null) {
                found = Registry.find(url, folder, framing, stream, id);
                if (found != null) {
                    schemas.put(fetched, found);
                }
            }
        }
        return found;
    }
}
