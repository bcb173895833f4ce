// What a program in TypeScript may write; `tsc` checks it, and nothing runs it.

import { Fenced, Rsio, type Sender, type Subscription } from 'rsio-client';

const place: Rsio = Rsio.at('tls://gw.example:7400', { name: 'meter-17', tls: { ca: 'PEM' } });
const sender: Sender = place.sender('events', { size: 8 });
const subscription: Subscription = place.subscribe('tap', { window: 16, resume: true });

export async function send(readable: ReadableStream<Uint8Array>): Promise<number> {
  await sender.send(new Float64Array(1));
  await place.sender().sendAll(['{}', new ArrayBuffer(2)]);
  await readable.pipeTo(sender.writable());
  try {
    await sender.close();
  } catch (why) {
    if (why instanceof Fenced) return sender.unacknowledged().length;
  }
  return sender.acknowledged;
}

export async function read(): Promise<void> {
  for await (const element of subscription) element satisfies Uint8Array;
  for await (const some of subscription.batches()) some satisfies Uint8Array[];
  await subscription.readable().pipeThrough(new TextDecoderStream() as ReadableWritablePair<string, Uint8Array>)
    .pipeTo(new WritableStream<string>());
}

// @ts-expect-error a number is no element
void sender.send(7);
// @ts-expect-error only `Rsio` makes them
void new Subscription();
