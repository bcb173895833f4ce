package gateway.rsio;

import java.io.Closeable;
import java.io.IOException;
import java.nio.ByteBuffer;

/** An open connection whose calls wait; one thread reads, another one writes. */
interface Transport extends Closeable {
    /** Octets into `room`: how many, 0 after so long a silence as was set, -1 at the end. */
    int read(ByteBuffer room) throws IOException;

    /** How long {@link #read} waits. */
    void patience(int milliseconds) throws IOException;

    void write(ByteBuffer data) throws IOException;

    /** Ends our octets; the peer's are still read. */
    void end() throws IOException;

    /** Ends both ways at once; whoever reads or writes gets an error. */
    @Override
    void close();
}
