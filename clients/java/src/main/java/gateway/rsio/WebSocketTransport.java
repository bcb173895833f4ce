package gateway.rsio;

import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.WebSocket;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import javax.net.ssl.SSLContext;

/** WebSocket: its binary messages are one stream of octets. */
final class WebSocketTransport implements Transport, WebSocket.Listener {
    private static final Duration CONNECT = Duration.ofSeconds(10);
    private static final ByteBuffer END = ByteBuffer.allocate(0);

    /** What has arrived: one message is asked for when the one before was read. */
    private final BlockingQueue<ByteBuffer> arrived = new LinkedBlockingQueue<>();
    private volatile WebSocket socket;
    private volatile long milliseconds;
    private ByteBuffer current = ByteBuffer.allocate(0);

    static Transport open(URI uri, SSLContext tls) throws IOException {
        HttpClient.Builder client = HttpClient.newBuilder().connectTimeout(CONNECT);
        if (tls != null) {
            client.sslContext(tls);
        }
        WebSocketTransport made = new WebSocketTransport();
        made.socket = wait(client.build().newWebSocketBuilder()
                .connectTimeout(CONNECT).subprotocols("rsio.v0").buildAsync(uri, made));
        return made;
    }

    private static <T> T wait(CompletableFuture<T> future) throws IOException {
        try {
            return future.join();
        } catch (CompletionException why) {
            throw new IOException(String.valueOf(why.getCause()), why.getCause());
        }
    }

    @Override
    public void onOpen(WebSocket opened) {
        opened.request(1);
    }

    @Override
    public CompletionStage<?> onBinary(WebSocket from, ByteBuffer data, boolean last) {
        ByteBuffer copy = ByteBuffer.allocate(data.remaining()).put(data).flip();
        if (copy.hasRemaining()) {
            arrived.add(copy);
        } else {
            from.request(1);
        }
        return null;
    }

    @Override
    public CompletionStage<?> onText(WebSocket from, CharSequence data, boolean last) {
        from.sendClose(1003, "binary messages only");
        arrived.add(END);
        return null;
    }

    @Override
    public CompletionStage<?> onClose(WebSocket from, int code, String reason) {
        arrived.add(END);
        return null;
    }

    @Override
    public void onError(WebSocket from, Throwable why) {
        arrived.add(END);
    }

    @Override
    public int read(ByteBuffer room) throws IOException {
        if (!current.hasRemaining()) {
            try {
                ByteBuffer next = milliseconds == 0
                        ? arrived.take() : arrived.poll(milliseconds, TimeUnit.MILLISECONDS);
                if (next == null) {
                    return 0;
                }
                if (next == END) {
                    arrived.add(END);
                    return -1;
                }
                current = next;
            } catch (InterruptedException why) {
                throw new IOException("interrupted", why);
            }
        }
        int count = Math.min(room.remaining(), current.remaining());
        room.put(current.slice(current.position(), count));
        current.position(current.position() + count);
        if (!current.hasRemaining()) {
            socket.request(1);
        }
        return count;
    }

    @Override
    public void patience(int wait) {
        milliseconds = wait;
    }

    @Override
    public void write(ByteBuffer data) throws IOException {
        wait(socket.sendBinary(data, true));
    }

    @Override
    public void end() throws IOException {
        wait(socket.sendClose(WebSocket.NORMAL_CLOSURE, ""));
    }

    @Override
    public void close() {
        arrived.add(END);
        socket.abort();
    }
}
