// COUNT is a number by the time this runs.
import { Rsio } from 'rsio-client';

const [role, where] = process.argv.slice(2);
if (role === 'send') {
  const sender = Rsio.at(where, { name: 'js' }).sender();
  for (let n = 0; n < COUNT; n += 1) await sender.send(`{"n":${n}}`);
  await sender.close();
} else {
  for await (const each of Rsio.at(where).subscribe(`events?from=1&to=${COUNT}`)) {
    console.log(new TextDecoder().decode(each));
  }
}
