import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.KnownLength;
import io.grpc.ManagedChannel;
import io.grpc.MethodDescriptor;
import io.grpc.Server;
import io.grpc.ServerServiceDefinition;
import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import io.grpc.netty.shaded.io.grpc.netty.NettyServerBuilder;
import io.grpc.stub.CallStreamObserver;
import io.grpc.stub.ClientCallStreamObserver;
import io.grpc.stub.ClientCalls;
import io.grpc.stub.ClientResponseObserver;
import io.grpc.stub.ServerCallStreamObserver;
import io.grpc.stub.ServerCalls;
import io.grpc.stub.StreamObserver;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.net.InetSocketAddress;
import java.util.concurrent.atomic.AtomicLong;

/** `serve`, or `send` to that or `read` of it: port, octets, seconds.  Nothing is kept. */
final class Grpc {
    private static final MethodDescriptor.Marshaller<byte[]> OCTETS =
            new MethodDescriptor.Marshaller<>() {
                @Override
                public InputStream stream(byte[] value) {
                    return new ByteArrayInputStream(value);
                }

                @Override
                public byte[] parse(InputStream stream) {
                    try {
                        return stream.readNBytes(((KnownLength) stream).available());
                    } catch (IOException why) {
                        throw new IllegalStateException(why);
                    }
                }
            };
    private static final MethodDescriptor<byte[], byte[]> SEND =
            method("Send", MethodDescriptor.MethodType.CLIENT_STREAMING);
    private static final MethodDescriptor<byte[], byte[]> READ =
            method("Read", MethodDescriptor.MethodType.SERVER_STREAMING);

    private Grpc() {}

    private static MethodDescriptor<byte[], byte[]> method(
            String name, MethodDescriptor.MethodType type) {
        return MethodDescriptor.<byte[], byte[]>newBuilder(OCTETS, OCTETS)
                .setType(type).setFullMethodName("bench.Elements/" + name).build();
    }

    public static void main(String[] words) throws Exception {
        byte[][] elements = Meter.elements(Integer.parseInt(words[2]));
        if (words[0].equals("serve")) {
            Server server = NettyServerBuilder.forAddress(new InetSocketAddress("127.0.0.1", 0))
                    .addService(ServerServiceDefinition.builder("bench.Elements")
                            .addMethod(SEND, ServerCalls.asyncClientStreamingCall(
                                    answer -> new Counter()))
                            .addMethod(READ, ServerCalls.asyncServerStreamingCall(
                                    (asked, answer) -> fill(
                                            (ServerCallStreamObserver<byte[]>) answer, elements,
                                            new AtomicLong())))
                            .build())
                    .build().start();
            System.out.println(server.getPort());
            server.awaitTermination();
        }
        ManagedChannel channel = NettyChannelBuilder
                .forAddress("127.0.0.1", Integer.parseInt(words[1])).usePlaintext().build();
        AtomicLong count = words[0].equals("send") ? send(channel, elements) : read(channel);
        Meter.measure(new String[] {words[3], words[4]}, count::get);
        System.exit(0);
    }

    /** Gives elements while the transport takes them. */
    private static void fill(CallStreamObserver<byte[]> to, byte[][] elements, AtomicLong count) {
        to.setOnReadyHandler(() -> {
            long n = count.get();
            while (to.isReady()) {
                to.onNext(elements[(int) (n++ & elements.length - 1)]);
                count.lazySet(n);
            }
        });
    }

    private static AtomicLong send(Channel channel, byte[][] elements) {
        AtomicLong count = new AtomicLong();
        ClientCalls.asyncClientStreamingCall(channel.newCall(SEND, CallOptions.DEFAULT),
                new ClientResponseObserver<byte[], byte[]>() {
                    @Override
                    public void beforeStart(ClientCallStreamObserver<byte[]> call) {
                        fill(call, elements, count);
                    }

                    @Override
                    public void onNext(byte[] element) {}

                    @Override
                    public void onError(Throwable why) {
                        System.err.println(why);
                    }

                    @Override
                    public void onCompleted() {}
                });
        return count;
    }

    private static AtomicLong read(Channel channel) {
        Counter counter = new Counter();
        ClientCalls.asyncServerStreamingCall(
                channel.newCall(READ, CallOptions.DEFAULT), new byte[0], counter);
        return counter.count;
    }

    private static final class Counter implements StreamObserver<byte[]> {
        final AtomicLong count = new AtomicLong();

        @Override
        public void onNext(byte[] element) {
            count.lazySet(count.get() + 1);
        }

        @Override
        public void onError(Throwable why) {}

        @Override
        public void onCompleted() {}
    }
}
