package gateway.rsio;

import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import javax.tools.JavaCompiler;
import javax.tools.ToolProvider;

/**
 * Small servers that have a fault each, for the kit, which has to notice: sources that were
 * changed, compiled and loaded apart, in one process.
 *
 * <pre>
 * Planted FOLDER …        prints their ports
 * </pre>
 */
final class Planted {
    private static final int HELLO_MILLISECONDS = 1500;

    private Planted() {}

    public static void main(String... folders) throws Exception {
        for (String each : folders) {
            System.out.println(port(Path.of(each)));
        }
        Thread.currentThread().join();
    }

    private static int port(Path folder) throws Exception {
        Path classes = Files.createDirectory(folder.resolve("classes"));
        String path = System.getProperty("java.class.path");
        List<String> words = new ArrayList<>(
                List.of("-proc:none", "-nowarn", "-d", classes.toString(), "-cp", path));
        try (var sources = Files.list(folder)) {
            sources.map(Path::toString).filter(each -> each.endsWith(".java")).forEach(words::add);
        }
        JavaCompiler compiler = ToolProvider.getSystemJavaCompiler();
        if (compiler.run(null, null, null, words.toArray(String[]::new)) != 0) {
            throw new IllegalStateException("not compiled: " + folder);
        }
        List<URL> urls = new ArrayList<>(List.of(classes.toUri().toURL()));
        for (String each : path.split(java.io.File.pathSeparator)) {
            urls.add(Path.of(each).toUri().toURL());
        }
        // All classes are loaded anew: what is private to the package is of one loader.
        ClassLoader loader = new URLClassLoader(
                urls.toArray(URL[]::new), ClassLoader.getPlatformClassLoader());
        Class<?> server = loader.loadClass(SmallServer.class.getName());
        var make = server.getDeclaredConstructor(int.class, int.class);
        make.setAccessible(true);
        var port = server.getDeclaredMethod("port");
        port.setAccessible(true);
        return (int) port.invoke(make.newInstance(0, HELLO_MILLISECONDS));
    }
}
