// Learn: six lessons on list-watch. The reader presses the buttons, the server really does it, and the bytes stand beside.
import { bearer } from '../session.js';
import { collection, json, query } from '../api.js';
import { h, setText } from '../dom.js';
import { Stream } from '../stream.js';
import { Wire } from './wire.js';

const MAPS = '/api/v1/namespaces/default/configmaps';
const SELECTOR = { labelSelector: 'dogwatch-lesson=yes' };

/**
 * @typedef {{ title: string, text: string[], buttons: (wire: Wire, context: import('../main.js').Context, place: HTMLElement) => [string, () => void][] }} Lesson
 */

/** Makes the lesson's ConfigMap, or changes it. */
async function touch(name = 'lesson') {
  const body = JSON.stringify({ apiVersion: 'v1', kind: 'ConfigMap', metadata: { name, labels: { 'dogwatch-lesson': 'yes' } }, data: { time: new Date().toISOString() } });
  await json(`${MAPS}/${name}?fieldManager=dogwatch-lesson&force=true`, { method: 'PATCH', type: 'application/apply-patch+yaml', body });
}

const remove = (name = 'lesson') => json(`${MAPS}/${name}`, { method: 'DELETE' }).catch(() => {});

/** The revision of the collection now. */
const revisionNow = async () => (await json(`${MAPS}?${query({ ...SELECTOR, limit: 1 })}`)).metadata.resourceVersion;

/** @type {Lesson[]} */
const LESSONS = [
  {
    title: 'A list and its revision',
    text: ['A list is a picture of the collection at one moment. That moment has a number, metadata.resourceVersion, and the number counts every write of the whole cluster.',
      'Each object has a number as well: the revision of its last write. Make an object, list, change it, and list again: both numbers move, and the one of the list is never the smaller.'],
    buttons: (wire) => [['List', () => wire.get(`${MAPS}?${query(SELECTOR)}`)], ['Make or change the object', () => wire.act('write', touch)], ['Delete it', () => wire.act('delete', remove)]],
  },
  {
    title: 'A watch and its chunks',
    text: ['A watch is an answer that does not end. It begins after the revision that you name, and each change is one line of JSON: a type and the whole object.',
      'Start it from the revision of a list, so that nothing is missed between the two. Then change the object: the line is there at once.'],
    buttons: (wire) => [['Watch', async () => wire.watch(`${MAPS}?${query({ ...SELECTOR, watch: 1, resourceVersion: await revisionNow() })}`)],
      ['Make or change the object', () => wire.act('write', touch)], ['Delete it', () => wire.act('delete', remove)], ['Stop', () => wire.stop()]],
  },
  {
    title: 'Bookmarks',
    text: ['A quiet watch learns nothing, and its revision grows old: after a cut it could not resume. So the server sends bookmarks, events with a revision and no object.',
      'The first one can be seen at once: ask for the initial objects in the stream, and a bookmark with the annotation k8s.io/initial-events-end says that they were all.'],
    buttons: (wire) => [['Watch with initial events', () => wire.watch(`${MAPS}?${query({ ...SELECTOR, watch: 1, allowWatchBookmarks: true, sendInitialEvents: true, resourceVersionMatch: 'NotOlderThan', resourceVersion: 0 })}`)],
      ['Make or change the object', () => wire.act('write', touch)], ['Stop', () => wire.stop()]],
  },
  {
    title: 'A cut and a resume',
    text: ['Connections break. A client keeps the last revision that it saw, in an object or in a bookmark, and watches again from there.',
      'Watch, cut the connection, change the object while nobody listens, and resume: the server repeats what you missed, in order, and nothing twice.'],
    buttons: (wire) => [['Watch', async () => wire.watch(`${MAPS}?${query({ ...SELECTOR, watch: 1, allowWatchBookmarks: true, resourceVersion: await revisionNow() })}`)], ['Cut', () => wire.stop('cut')],
      ['Make or change the object', () => wire.act('write', touch)], ['Resume', () => wire.watch(`${MAPS}?${query({ ...SELECTOR, watch: 1, allowWatchBookmarks: true, resourceVersion: wire.revision || '0' })}`)]],
  },
  {
    title: 'A 410 and a relist',
    text: ['History is finite. Who asks for a revision that the server no longer has gets 410 Gone, and there is one way on: list again, and watch from the revision of that list.',
      'What happened in between is not repeated. A client that kept objects must compare: what is not in the list was deleted.'],
    buttons: (wire, context) => [
      ['Watch from the past', async () => {
        const faults = context.lab('faults');
        // A young server still has everything: with a lab, a fault makes the answer come anyway.
        if (faults) await wire.act('a fault makes the next watch of ConfigMaps in default expire', () => expireOnce(faults));
        await wire.watch(`${MAPS}?${query({ ...SELECTOR, watch: 1, resourceVersion: 1 })}`);
      }],
      ['List again', () => wire.get(`${MAPS}?${query(SELECTOR)}`)], ['Watch from there', () => wire.watch(`${MAPS}?${query({ ...SELECTOR, watch: 1, resourceVersion: wire.revision || '0' })}`)],
      ['Make or change the object', () => wire.act('write', touch)], ['Stop', () => wire.stop()]],
  },
  {
    title: 'What an informer keeps',
    text: ['An informer is list, watch, and a map. It answers every question of a controller from the map, and the server is asked once.',
      'Below is the map of one, the same module that every table of this page uses. Make, change and delete objects, cut its connection, and see what it does.'],
    buttons: (wire, _, place) => informer(wire, place),
  },
];

/** @param {import('../api.js').Kind} kind */
async function expireOnce(kind) {
  const name = 'lesson-expire';
  await json(`${collection(kind)}/${name}`, { method: 'DELETE' }).catch(() => {});
  const spec = { match: { verbs: ['watch'], resources: ['configmaps'], namespaces: ['default'], userAgents: ['Mozilla*'] }, when: { times: 1 }, effect: { expire: { form: 'status' } } };
  await json(collection(kind), { method: 'POST', type: 'application/json', body: JSON.stringify({ apiVersion: 'lab.dogwatch.dev/v1', kind: 'Fault', metadata: { name }, spec }) });
}

/**
 * @param {Wire} wire
 * @param {HTMLElement} place
 * @returns {[string, () => void][]}
 */
function informer(wire, place) {
  /** @type {Map<string, any>} */
  const kept = new Map();
  const list = h('ul', { class: 'kept', 'aria-label': 'The map of the informer' });
  const counts = h('p', null);
  place.append(counts, list);
  const draw = () => {
    const { lists, watches, events, bookmarks } = stream.counts;
    setText(counts, `${lists} lists, ${watches} watches, ${events} events, ${bookmarks} bookmarks; last revision ${stream.revision || 'none'}`);
    list.replaceChildren(...[...kept.values()].map((item) => h('li', null, `${item.metadata.namespace}/${item.metadata.name} @ ${item.metadata.resourceVersion}`)));
    if (!kept.size) list.append(h('li', null, 'empty'));
  };
  const stream = new Stream({ path: MAPS, parameters: SELECTOR }, {
    page: (items, _, isFirst) => {
      if (isFirst) kept.clear();
      items.forEach((item) => kept.set(item.metadata.name, item));
      wire.note(`list: ${items.length} objects`);
    },
    listed: draw,
    event: (type, item) => {
      if (type === 'DELETED') kept.delete(item.metadata.name);
      else kept.set(item.metadata.name, item);
      wire.note(`${type} ${item.metadata.name} @ ${item.metadata.resourceVersion}`);
      draw();
    },
    state: (state, detail) => {
      wire.note([state, detail].filter(Boolean).join(': '));
      draw();
    },
  });
  wire.onstop = () => stream.stop();
  let number = 0;
  stream.start();
  return [['Make an object', () => wire.act('write', () => touch(`lesson-${(number = (number % 3) + 1)}`))], ['Change the first', () => wire.act('write', () => touch('lesson-1'))],
    ['Delete the first', () => wire.act('delete', () => remove('lesson-1'))], ['Cut its connection', () => stream.cut()]];
}

/** @type {import('../main.js').Part} */
export function showLearn(place, context, [word = '1']) {
  const index = Math.max(0, Math.min(LESSONS.length - 1, Number(word) - 1 || 0));
  const lesson = LESSONS[index];
  const wire = new Wire(bearer);
  const picture = h('div');
  const buttons = lesson.buttons(wire, context, picture);
  place.append(h('div', { class: 'title' }, h('h1', null, 'Learn list-watch')),
    h('ol', { class: 'lessons' }, ...LESSONS.map((one, at) => h('li', null, h('a', { href: `#/learn/${at + 1}`, 'aria-current': at === index ? 'page' : null }, `${at + 1}  ${one.title}`)))),
    h('div', { class: 'lesson' }, h('section', null, h('h2', null, lesson.title), ...lesson.text.map((text) => h('p', null, text)),
      h('div', { class: 'actions' }, ...buttons.map(([text, action]) => h('button', { onclick: action }, text))), picture), wire.element));
  return { stop: () => wire.end() };
}
