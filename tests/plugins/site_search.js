// Asks a built site's search, by the worker that its pages run: for each of the words the
// best section of each page, best page first, as a line of JSON.
//
//     node site_search.js WORKER.js search_index.json WORDS...
'use strict';
const fs = require('fs');
const vm = require('vm');

const [worker, index, ...words] = process.argv.slice(2);
const SETUP = 0, READY = 1, QUERY = 2, RESULT = 3; // its messages
let hear;

globalThis.self = globalThis;
globalThis.addEventListener = (kind, listener) => { hear = listener; };
globalThis.postMessage = ({type, data}) => {
  if (type === READY) for (const each of words) hear({data: {type: QUERY, data: each}});
  if (type === RESULT) {
    const best = (page) => page.reduce((a, b) => (b.score > a.score ? b : a)).location;
    console.log(JSON.stringify(data.items.map(best)));
  }
};
vm.runInThisContext(fs.readFileSync(worker, 'utf8'), {filename: worker});
const {config, docs} = JSON.parse(fs.readFileSync(index, 'utf8'));
hear({data: {type: SETUP, data: {config, docs, options: {suggest: false}}}});
