// The page's list-then-watch client on its own: against the real server, and against one that says what a script says.
import assert from 'node:assert/strict';
import http from 'node:http';
import { after, before, test } from 'node:test';
import { Stream } from '../../console/stream.js';
import { Server, until } from './server.mjs';

const MAPS = '/api/v1/namespaces/default/configmaps';
let server;
let base;
const real = globalThis.fetch;

before(async () => {
  server = await Server.start(['--no-controllers', '--lab']);
  base = await server.proxy();
  // The page sends paths; here they get a host.
  globalThis.fetch = (path, options) => real(new URL(path, base), options);
});
after(() => server.stop());

/** Follows a collection as a table of the page does. */
function follow(parameters = {}) {
  const seen = { kept: new Map(), events: [], states: [], pages: 0, revision: '' };
  const stream = new Stream({ path: MAPS, parameters }, {
    page: (items, _, isFirst) => {
      if (isFirst) seen.kept.clear();
      seen.pages += 1;
      items.forEach((item) => seen.kept.set(item.metadata.name, item));
    },
    event: (type, item) => {
      seen.events.push(`${type} ${item.metadata.name}`);
      if (type === 'DELETED') seen.kept.delete(item.metadata.name);
      else seen.kept.set(item.metadata.name, item);
    },
    revision: (revision) => { seen.revision = revision; },
    state: (state, detail) => seen.states.push(detail ? `${state}: ${detail}` : state),
  });
  return { seen, stream: stream.start() };
}

/** Reads an answer to its end: until then its connection cannot be used again. */
const read = async (answer) => {
  await answer.arrayBuffer();
  return answer.ok;
};
const write = (name) => real(`${base}${MAPS}/${name}?fieldManager=test&force=true`, {
  method: 'PATCH', headers: { 'Content-Type': 'application/apply-patch+yaml' },
  body: JSON.stringify({ apiVersion: 'v1', kind: 'ConfigMap', metadata: { name, labels: { test: 'yes' } }, data: { at: String(performance.now()) } }),
}).then(read);
const remove = (name) => real(`${base}${MAPS}/${name}`, { method: 'DELETE' }).then(read);
const watching = (seen) => until('the watch', () => seen.states.at(-1) === 'watching');

test('lists, then watches', async () => {
  assert.ok(await write('first'));
  const { seen, stream } = follow({ labelSelector: 'test=yes' });
  await watching(seen);
  assert.deepEqual([...seen.kept.keys()], ['first']);
  await write('second');
  await write('first');
  await remove('second');
  await until('three events', () => seen.events.length === 3);
  assert.deepEqual(seen.events, ['ADDED second', 'MODIFIED first', 'DELETED second']);
  assert.equal(stream.counts.lists, 1);
  stream.stop();
  assert.equal(seen.states.at(-1), 'stopped');
});

test('resumes after a cut without a gap, a repetition or a second list', async () => {
  const { seen, stream } = follow({ labelSelector: 'test=yes' });
  await watching(seen);
  stream.cut();
  for (let index = 0; index < 20; index += 1) await write(`cut-${index}`);
  await until('all events', () => seen.events.length >= 20);
  assert.deepEqual(seen.events, Array.from({ length: 20 }, (_, index) => `ADDED cut-${index}`));
  assert.equal(stream.counts.lists, 1);
  stream.stop();
});

test('resumes after the server was killed', async () => {
  const { seen, stream } = follow({ labelSelector: 'test=yes' });
  await watching(seen);
  await write('before-the-kill');
  await until('the event', () => seen.events.length === 1);
  await server.killAndRestart();
  await until('the server', () => write('after-the-kill').catch(() => false));
  await until('the second event', () => seen.events.length >= 2);
  assert.deepEqual(seen.events, ['ADDED before-the-kill', 'ADDED after-the-kill']);
  assert.ok(seen.states.some((state) => state.startsWith('waiting')), seen.states.join());
  assert.equal(stream.counts.lists, 1, 'history outlives the kill, so nothing is listed again');
  stream.stop();
});

test('lists again after 410', async () => {
  const { seen, stream } = follow({ labelSelector: 'test=yes' });
  await watching(seen);
  const fault = { apiVersion: 'lab.dogwatch.dev/v1', kind: 'Fault', metadata: { name: 'gone' }, spec: { match: { verbs: ['watch'], resources: ['configmaps'] }, when: { times: 1 }, effect: { expire: { form: 'event' } } } };
  const made = await real(`${base}/apis/lab.dogwatch.dev/v1/faults`, { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(fault) });
  assert.ok(await read(made));
  await write('makes-an-event');
  await until('a second list', () => stream.counts.lists === 2 && seen.states.at(-1) === 'watching');
  // The watch may have ended before the write: then it comes as an event.
  await until('the object', () => seen.kept.has('makes-an-event'));
  await write('after-410');
  await until('the event', () => seen.events.includes('ADDED after-410'));
  stream.stop();
});

test('reads long lists in pages of one revision', async () => {
  const many = Array.from({ length: 620 }, (_, index) => ({ apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: `page-${index}`, labels: { many: 'yes' } } }));
  const make = (map) => real(`${base}${MAPS}`, { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(map) }).then(read);
  while (many.length) assert.ok((await Promise.all(many.splice(0, 20).map(make))).every(Boolean));
  const { seen, stream } = follow({ labelSelector: 'many=yes' });
  await watching(seen);
  assert.equal(seen.pages, 2);
  assert.equal(seen.kept.size, 620);
  stream.stop();
});

test('says why it is refused', async () => {
  const { seen, stream } = follow({ labelSelector: 'not a selector' });
  await until('the refusal', () => seen.states.at(-1)?.startsWith('refused'));
  assert.match(seen.states.at(-1), /unable to parse/);
  stream.stop();
});

test('a bookmark moves the revision from which it resumes', async () => {
  const asked = [];
  const scripted = http.createServer((request, response) => {
    const parameters = new URL(request.url, 'http://x').searchParams;
    asked.push(parameters.get('watch') ? `watch ${parameters.get('resourceVersion')}` : 'list');
    if (!parameters.get('watch')) return response.end(JSON.stringify({ metadata: { resourceVersion: '10' }, items: [] }));
    if (asked.length === 2) return response.end(`${JSON.stringify({ type: 'BOOKMARK', object: { metadata: { resourceVersion: '25' } } })}\n{"type":"ADDED","obj`);
    response.write('\n');
    return undefined;
  });
  await new Promise((resolve) => { scripted.listen(0, '127.0.0.1', resolve); });
  const usual = base;
  base = `http://127.0.0.1:${scripted.address().port}`;
  const { seen, stream } = follow();
  await until('the second watch', () => asked.length === 3);
  assert.deepEqual(asked, ['list', 'watch 10', 'watch 25']);
  assert.deepEqual(seen.events, [], 'a line that was cut off is no event');
  assert.equal(stream.counts.bookmarks, 1);
  stream.stop();
  base = usual;
  scripted.closeAllConnections();
  scripted.close();
});
