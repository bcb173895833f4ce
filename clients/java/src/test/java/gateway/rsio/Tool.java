package gateway.rsio;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.util.concurrent.CompletionException;
import java.util.concurrent.CountDownLatch;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;
import org.reactivestreams.Publisher;
import org.reactivestreams.Subscriber;
import org.reactivestreams.Subscription;

/**
 * What tests with a daemon start.
 *
 * <pre>
 * send ADDRESS NAME COUNT         {"n":0} … to the publisher "events"; prints how many are stored
 * pack ADDRESS NAME COUNT         the same numbers, in 8 octets each
 * receive ADDRESS PUBLISHER COUNT prints that many elements, over lost connections
 * </pre>
 *
 * <p>The environment's CA names a certificate to trust, and COMPRESSED asks for compression.
 */
final class Tool {
    private Tool() {}

    public static void main(String... words) throws Exception {
        Rsio rsio = Rsio.at(words[1]);
        String ca = System.getenv("CA");
        if (ca != null) {
            rsio = rsio.tls(trusting(Path.of(ca)));
        }
        if (System.getenv("COMPRESSED") != null) {
            rsio = rsio.compressed();
        }
        long count = Long.parseLong(words[3]);
        switch (words[0]) {
            case "send" -> send(rsio.name(words[2]).sender("events"), count, false);
            case "pack" -> send(rsio.name(words[2]).sender("events", Long.BYTES), count, true);
            default -> receive(rsio.resumingPublisher(words[2]), count);
        }
    }

    static SSLContext trusting(Path pem) throws Exception {
        KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
        store.load(null, null);
        try (var input = java.nio.file.Files.newInputStream(pem)) {
            Certificate certificate =
                    CertificateFactory.getInstance("X.509").generateCertificate(input);
            store.setCertificateEntry("ca", certificate);
        }
        TrustManagerFactory trust =
                TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trust.init(store);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(null, trust.getTrustManagers(), null);
        return context;
    }

    private static void send(Sender sender, long count, boolean packed) {
        new Counting(count, packed).subscribe(sender);
        try {
            sender.stored().toCompletableFuture().join();
        } catch (CompletionException why) {
            System.err.println(why.getCause());
            System.exit(why.getCause() instanceof RsioException.Fenced ? 3 : 1);
        }
        System.out.println(sender.acknowledged() + " acknowledged");
    }

    private static void receive(Publisher<ByteBuffer> publisher, long count) throws Exception {
        CountDownLatch done = new CountDownLatch(1);
        publisher.subscribe(new Subscriber<>() {
            private Subscription subscription;
            private long found;

            @Override
            public void onSubscribe(Subscription given) {
                subscription = given;
                given.request(64);
            }

            @Override
            public void onNext(ByteBuffer element) {
                if (found < count) {
                    System.out.println(StandardCharsets.UTF_8.decode(element));
                }
                if (++found == count) {
                    subscription.cancel();
                    done.countDown();
                } else {
                    subscription.request(1);
                }
            }

            @Override
            public void onError(Throwable why) {
                System.err.println(why);
                System.exit(1);
            }

            @Override
            public void onComplete() {
                done.countDown();
            }
        });
        done.await();
        System.out.flush();
    }

    /** Numbers from 0, as many as were requested; in the thread that requests. */
    record Counting(long count, boolean packed) implements Publisher<ByteBuffer> {
        @Override
        public void subscribe(Subscriber<? super ByteBuffer> subscriber) {
            subscriber.onSubscribe(new Subscription() {
                private long next;
                private boolean over;

                @Override
                public void request(long more) {
                    for (long end = Math.min(count, next + more); next < end && !over; next++) {
                        subscriber.onNext(packed
                                ? ByteBuffer.allocate(Long.BYTES).putLong(0, next)
                                : ByteBuffer.wrap(("{\"n\":" + next + "}").getBytes()));
                    }
                    if (next == count && !over) {
                        over = true;
                        subscriber.onComplete();
                    }
                }

                @Override
                public void cancel() {
                    over = true;
                }
            });
        }
    }
}
