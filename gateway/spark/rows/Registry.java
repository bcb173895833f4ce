/*
 * Schemas that a registry's REST has, asked for when an event first needs one.
 *
 * What was found is kept in the folder of schemas, where tasks see it.  What was not is asked
 * for again half a minute later, and nothing is while the registry does not answer.
 *
 * Janino compiles it: no generics, no lambdas, no switch on strings.
 */
package gateway.spark;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.net.HttpURLConnection;
import java.net.URL;
import java.net.URLDecoder;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.nio.file.CopyOption;
import java.nio.file.Files;
import java.nio.file.OpenOption;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.Base64;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import org.apache.avro.Schema;

/** One registry, for all tasks of this Java. */
final class Registry {

    private static final int TIMEOUT_MS = 3000;
    private static final int MOST_BYTES = 1 << 20;
    private static final long AGAIN_NS = 30000000000L;
    /** So long tasks wait for its answers until then, whatever ids senders make up. */
    private static final long PATIENCE_NS = 5000000000L;

    /** Texts that were found; others, which are not asked for again before `again`. */
    private static final Map FOUND = new HashMap();
    private static final Set MISSED = new HashSet();
    private static long again = System.nanoTime();
    private static long waited;
    private static boolean away;
    private static String of = "";

    private Registry() {
    }

    /**
     * The schema of an event behind a header of this *framing*, null where it is not to be had.
     * Of Pravega's registry it is that of the group that is called as the stream.
     */
    static synchronized Object find(
            String url, String folder, String framing, String stream, String id) {
        boolean ofPravega = framing.equals("pravega-registry");
        String name = ofPravega ? stream + "/" + id : id;
        String key = url + " " + name;
        Object found = FOUND.get(key);
        if (found != null) {
            return found;
        }
        long now = System.nanoTime();
        if (now - again > 0 || !url.equals(of)) {
            again = now + AGAIN_NS;
            of = url;
            waited = 0;
            away = false;
            MISSED.clear();
        }
        if (away || waited > PATIENCE_NS || MISSED.contains(key)) {
            return null;
        }
        String text = null;
        try {
            text = ofPravega ? pravega(url, stream, id) : confluent(url, id);
            found = text == null ? null : parsed(text);
        } catch (JsonProcessingException why) {
            found = null; // its answer is none
        } catch (RuntimeException why) {
            found = null;
        } catch (IOException why) {
            away = true;
        }
        waited += System.nanoTime() - now;
        if (found == null) {
            MISSED.add(key);
            return null;
        }
        FOUND.put(key, found);
        if (found instanceof Schema) {
            keep(folder, name + ".avsc", found.toString().getBytes(StandardCharsets.UTF_8));
        } else {
            int blank = text.indexOf(' ');
            byte[] set = Base64.getDecoder().decode(text.substring(blank + 1));
            keep(folder, name + "." + text.substring(0, blank) + ".desc", set);
        }
        return found;
    }

    /** Of Avro it is JSON, of Protobuf the message's name, a blank, and descriptors as base64. */
    static Object parsed(String text) {
        int blank = text.indexOf(' ');
        if (blank < 0 || "{[\"".indexOf(text.trim().charAt(0)) >= 0) {
            return new Schema.Parser().parse(text);
        }
        byte[] set = Base64.getDecoder().decode(text.substring(blank + 1));
        return Proto.of(set, text.substring(0, blank));
    }

    private static String confluent(String url, String id) throws IOException {
        JsonNode found = ask(url + "/schemas/ids/" + id);
        boolean ours = text(found, "schemaType", "AVRO").equals("AVRO");
        return ours ? text(found, "schema", null) : null;
    }

    private static String pravega(String url, String stream, String id) throws IOException {
        String group = URLEncoder.encode(stream, "UTF-8");
        JsonNode found = ask(url + "/v1/groups/" + group + "/encodings/" + id);
        JsonNode schema = at(found, "schemaInfo");
        String kind = text(at(schema, "serializationFormat"), "serializationFormat", "");
        if (text(at(found, "codecType"), "name", "").length() > 0) {
            return null;
        }
        String data = text(schema, "schemaData", "");
        if (kind.equals("Protobuf")) {
            return text(schema, "type", "") + " " + data;
        }
        boolean avro = kind.equals("Avro");
        return avro ? new String(Base64.getDecoder().decode(data), StandardCharsets.UTF_8) : null;
    }

    private static JsonNode at(JsonNode of, String name) {
        return (JsonNode) of.path(name);
    }

    private static String text(JsonNode of, String name, String none) {
        JsonNode found = at(of, name);
        return found.isTextual() ? found.textValue() : none;
    }

    private static JsonNode ask(String url) throws IOException {
        URL address = new URL(url);
        HttpURLConnection asked = (HttpURLConnection) address.openConnection();
        asked.setConnectTimeout(TIMEOUT_MS);
        asked.setReadTimeout(TIMEOUT_MS);
        asked.setRequestProperty("Accept", "application/json");
        if (address.getUserInfo() != null) {
            String user = URLDecoder.decode(address.getUserInfo().replace("+", "%2B"), "UTF-8");
            byte[] bytes = user.getBytes(StandardCharsets.UTF_8);
            String secret = Base64.getEncoder().encodeToString(bytes);
            asked.setRequestProperty("Authorization", "Basic " + secret);
        }
        if (asked.getResponseCode() != 200) {
            throw new IllegalStateException(); // of this id it has none
        }
        InputStream answer = asked.getInputStream();
        try {
            byte[] bytes = answer.readNBytes(MOST_BYTES);
            return new ObjectMapper().readTree(bytes);
        } finally {
            answer.close();
        }
    }

    private static void keep(String folder, String file, byte[] bytes) {
        Path place = new File(folder, file).toPath().normalize();
        if (!place.startsWith(new File(folder).toPath().normalize())) {
            return; // a stream, or a message, may be called like a folder above
        }
        try {
            Files.createDirectories(place.getParent());
            File made = File.createTempFile("schema", null, place.getParent().toFile());
            Files.write(made.toPath(), bytes, new OpenOption[0]);
            CopyOption[] how = {StandardCopyOption.ATOMIC_MOVE};
            Files.move(made.toPath(), place, how);
        } catch (IOException why) {
            return; // a task of a cluster, which does not see it
        }
    }
}
