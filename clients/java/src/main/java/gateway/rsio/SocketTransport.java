package gateway.rsio;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.nio.ByteBuffer;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLSocket;

/** TCP, and TLS over it. */
final class SocketTransport implements Transport {
    private static final int CONNECT_MILLISECONDS = 10_000;

    private final Socket socket;
    private final InputStream input;
    private final OutputStream output;

    SocketTransport(Socket socket) throws IOException {
        this.socket = socket;
        socket.setTcpNoDelay(true);
        this.input = socket.getInputStream();
        this.output = socket.getOutputStream();
    }

    /**
     * Connects; with TLS if there is a context, by which the peer must prove that it is `host`.
     *
     * @param protocol is offered within TLS; the peer may choose none, and no other
     */
    static Transport open(String host, int port, SSLContext tls, String protocol)
            throws IOException {
        Socket socket = new Socket();
        try {
            socket.connect(new InetSocketAddress(host, port), CONNECT_MILLISECONDS);
            if (tls == null) {
                return new SocketTransport(socket);
            }
            socket.setSoTimeout(CONNECT_MILLISECONDS);
            SSLSocket secure =
                    (SSLSocket) tls.getSocketFactory().createSocket(socket, host, port, true);
            SSLParameters parameters = secure.getSSLParameters();
            parameters.setEndpointIdentificationAlgorithm("HTTPS");
            parameters.setApplicationProtocols(new String[] {protocol});
            secure.setSSLParameters(parameters);
            secure.startHandshake();
            return new SocketTransport(secure);
        } catch (IOException why) {
            socket.close();
            throw why;
        }
    }

    @Override
    public int read(ByteBuffer room) throws IOException {
        try {
            int count = input.read(
                    room.array(), room.arrayOffset() + room.position(), room.remaining());
            return count == 0 ? -1 : count;
        } catch (SocketTimeoutException silence) {
            return 0;
        }
    }

    @Override
    public void patience(int milliseconds) throws IOException {
        socket.setSoTimeout(milliseconds);
    }

    @Override
    public void write(ByteBuffer data) throws IOException {
        output.write(data.array(), data.arrayOffset() + data.position(), data.remaining());
    }

    @Override
    public void end() throws IOException {
        socket.shutdownOutput();
    }

    @Override
    public void close() {
        try {
            socket.close();
        } catch (IOException gone) {
            // There is nothing left to close.
        }
    }
}
