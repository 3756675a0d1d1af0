// Lab: faults from templates and their hits, and of the other kinds of the lab those that the server has.
import { Refusal, address, collection, json } from '../api.js';
import { confirm } from '../dialogs.js';
import { h } from '../dom.js';
import { Stream } from '../stream.js';
import { showClock } from './clock.js';
import { showSettle } from './settle.js';

/** @typedef {import('../api.js').Kind} Kind */

const VERSION = 'lab.dogwatch.dev/v1';

/** What people most often want to see go wrong. @type {{ name: string, text: string, spec: any }[]} */
const TEMPLATES = [
  { name: 'writes-fail', text: 'Each third write is refused with 503', spec: { match: { verbs: ['create', 'update', 'patch'] }, when: { every: 3 }, effect: { error: { code: 503 } } } },
  { name: 'conflicts', text: 'The first update of each object conflicts', spec: { match: { verbs: ['update', 'patch'] }, effect: { conflictOnce: { perObject: true } } } },
  { name: 'watches-end', text: 'Every watch of pods ends once', spec: { match: { verbs: ['watch'], resources: ['pods'] }, when: { times: 1 }, effect: { cut: {} } } },
  { name: 'history-gone', text: 'A watch of pods gets 410 once', spec: { match: { verbs: ['watch'], resources: ['pods'] }, when: { times: 1 }, effect: { expire: { form: 'event' } } } },
  { name: 'silence', text: 'Watches of pods say nothing', spec: { match: { verbs: ['watch'], resources: ['pods'] }, effect: { silence: {} } } },
  { name: 'missed-deletes', text: 'Deletes of pods are not delivered', spec: { match: { verbs: ['watch'], resources: ['pods'] }, effect: { dropEvents: { types: ['DELETED'] } } } },
  { name: 'slow-reads', text: 'Reads of pods take two seconds', spec: { match: { verbs: ['get', 'list'], resources: ['pods'] }, effect: { delay: '2s' } } },
  { name: 'lost-answers', text: 'The answer to a creation is lost once', spec: { match: { verbs: ['create'] }, when: { times: 1 }, effect: { loseAnswer: {} } } },
];

/** @type {import('../main.js').Part} */
export function showLab(place, context) {
  const message = h('div', { class: 'message', role: 'alert' });
  place.append(h('div', { class: 'title' }, h('h1', null, 'Lab')), h('p', null, 'Powers over this control plane. Nothing here is stored, and nothing hits requests for the lab itself: one can always get out.'), message);
  const attempt = async (/** @type {Promise<any>} */ work, /** @type {string} */ done) => {
    try {
      await work;
      message.replaceChildren(h('p', { class: 'notice' }, done));
    } catch (failure) {
      const text = failure instanceof Refusal ? `${failure.code} ${failure.reason}: ${failure.message}` : String(failure);
      message.replaceChildren(h('p', { class: 'trouble' }, text));
    }
  };
  const create = (/** @type {Kind} */ kind, /** @type {string} */ name, /** @type {any} */ spec) =>
    json(collection(kind), { method: 'POST', type: 'application/json', body: JSON.stringify({ apiVersion: VERSION, kind: kind.kind, metadata: { name }, spec }) });
  const grid = h('div', { class: 'two' });
  place.append(grid);
  /** @type {Stream[]} */
  const streams = [];
  const lab = { attempt, create, place: grid, streams };
  const faults = context.lab('faults');
  if (faults) showFaults(lab, faults);
  const checkpoints = context.lab('checkpoints');
  if (checkpoints) showCheckpoints(lab, checkpoints);
  const worlds = context.lab('worlds');
  if (worlds) showWorlds(lab, worlds);
  const clocks = context.lab('clocks');
  if (clocks) showClock(lab, clocks);
  const settlements = context.lab('settlements');
  if (settlements) showSettle(lab, settlements);
  const requests = context.lab('requests');
  if (requests) showRequests(lab, requests);
  return { stop: () => streams.forEach((stream) => stream.stop()) };
}

/**
 * @typedef {{ attempt: (work: Promise<any>, done: string) => Promise<void>, create: (kind: Kind, name: string, spec: any) => Promise<any>, place: HTMLElement, streams: Stream[] }} Lab
 */

/**
 * Keeps a table of the objects of a kind.
 * @param {Lab} lab
 * @param {Kind} kind
 * @param {string[]} heads
 * @param {(item: any) => (Node | string | number)[]} cells
 * @param {{ none: string, limit?: number, parameters?: Record<string, string> }} options
 */
function table(lab, kind, heads, cells, { none, limit = 200, parameters }) {
  /** @type {Map<string, any>} */
  const found = new Map();
  const body = h('tbody');
  const empty = h('p', { class: 'empty', hidden: true }, none);
  const whole = h('table', { class: 'plain-table' }, h('thead', null, h('tr', null, ...heads.map((text) => h('th', null, text || h('span', { class: 'unseen' }, 'Action'))))), body);
  let timer = 0;
  const draw = () => {
    timer = 0;
    while (found.size > limit) found.delete(found.keys().next().value ?? '');
    empty.hidden = found.size > 0;
    whole.hidden = found.size === 0;
    body.replaceChildren(...[...found.values()].reverse().map((item) => h('tr', null, ...cells(item).map((cell) => h('td', null, cell)))));
  };
  const soon = () => { timer ||= setTimeout(draw, 100); };
  const stream = new Stream({ path: collection(kind), parameters }, {
    page: (items, _, isFirst) => {
      if (isFirst) found.clear();
      items.forEach((item) => found.set(item.metadata.name, item));
      soon();
    },
    event: (type, item) => {
      if (type === 'DELETED') found.delete(item.metadata.name);
      else found.set(item.metadata.name, item);
      soon();
    },
  }).start();
  lab.streams.push(stream);
  return { element: h('div', { class: 'wide' }, empty, whole), stream };
}

/**
 * @param {Lab} lab
 * @param {Kind} kind
 */
function showFaults(lab, kind) {
  const remove = (/** @type {string} */ name) => lab.attempt(json(address(kind, undefined, name), { method: 'DELETE' }), `The fault ${name} is gone.`);
  const faults = table(lab, kind, ['Fault', 'Effect', 'Hits', ''], (item) => [
    item.metadata.name, Object.keys(item.spec.effect ?? {})[0] ?? '', item.status?.hits ?? 0,
    h('button', { class: 'small', onclick: () => remove(item.metadata.name) }, 'Remove'),
  ], { none: 'No fault is active.' });
  const add = (/** @type {typeof TEMPLATES[number]} */ one) => lab.attempt(lab.create(kind, one.name, one.spec), `The fault ${one.name} is active.`);
  lab.place.append(h('section', null, h('h2', null, 'Faults'), faults.element),
    h('section', null, h('h2', null, 'Make a fault'), h('table', { class: 'plain-table' }, h('tbody', null, ...TEMPLATES.map((one) => h('tr', null, h('td', null, one.text), h('td', null, h('code', null, one.name)),
      h('td', null, h('button', { class: 'small', 'aria-label': `Make ${one.name}`, onclick: () => add(one) }, 'Make'))))))));
}

/**
 * A form with one name.
 * @param {string} label
 * @param {string} action
 * @param {(name: string) => void} submit
 */
function nameForm(label, action, submit) {
  const input = /** @type {HTMLInputElement} */ (h('input', { 'aria-label': label, placeholder: label, required: true, pattern: '[a-z0-9]([a-z0-9.\\-]*[a-z0-9])?', autocomplete: 'off' }));
  return h('form', { class: 'actions', onsubmit: (/** @type {Event} */ event) => {
    event.preventDefault();
    submit(input.value);
    input.value = '';
  } }, input, h('button', null, action));
}

/**
 * @param {Lab} lab
 * @param {Kind} kind
 */
function showCheckpoints(lab, kind) {
  const rewind = async (/** @type {string} */ name) => {
    if (!await confirm(`Rewind to ${name}?`, 'All objects become what they were then, by new revisions. What was made since is deleted.', 'Rewind')) return;
    lab.attempt(json(`${address(kind, undefined, name)}/rewind`, { method: 'POST', type: 'application/json', body: '{}' }), `The world is as it was at ${name}.`);
  };
  const list = table(lab, kind, ['Checkpoint', 'World', 'Revision', ''], (item) => [
    item.metadata.name, item.spec?.world ?? 'main', item.status?.revision ?? item.spec?.revision ?? '',
    h('span', { class: 'actions' }, h('button', { class: 'small', onclick: () => rewind(item.metadata.name) }, 'Rewind'),
      h('button', { class: 'small', onclick: () => lab.attempt(json(address(kind, undefined, item.metadata.name), { method: 'DELETE' }), 'The checkpoint is gone.') }, 'Remove')),
  ], { none: 'There is no checkpoint.' });
  lab.place.append(h('section', null, h('h2', null, 'Checkpoints'), list.element,
    nameForm('Name of a checkpoint', 'Keep this revision', (name) => lab.attempt(lab.create(kind, name, { world: 'main' }), `The checkpoint ${name} keeps this revision.`))));
}

/**
 * @param {Lab} lab
 * @param {Kind} kind
 */
function showWorlds(lab, kind) {
  const list = table(lab, kind, ['World', 'From', 'URL', ''], (item) => [
    item.metadata.name, item.spec?.from ? `${item.spec.from.world ?? 'main'}${item.spec.from.revision ? `@${item.spec.from.revision}` : ''}` : 'nothing', h('code', null, item.status?.url ?? ''),
    h('button', { class: 'small', onclick: () => lab.attempt(json(address(kind, undefined, item.metadata.name), { method: 'DELETE' }), 'The world is gone.') }, 'Remove'),
  ], { none: 'There is no world beside this one.' });
  lab.place.append(h('section', null, h('h2', null, 'Worlds'), list.element,
    nameForm('Name of a world', 'Fork this world', (name) => lab.attempt(lab.create(kind, name, { from: { world: 'main' } }), `The world ${name} is ready.`))));
}

/** @param {string | undefined} agent */
export const clientName = (agent = '') => (agent.startsWith('Mozilla/') ? 'a browser' : agent.slice(0, 36));

/**
 * @param {Lab} lab
 * @param {Kind} kind
 */
function showRequests(lab, kind) {
  const input = /** @type {HTMLInputElement} */ (h('input', { type: 'search', 'aria-label': 'Field selector of requests', placeholder: 'verb=create,resource=pods', autocomplete: 'off', spellcheck: 'false' }));
  const holder = h('div');
  /** @type {ReturnType<typeof table> | undefined} */
  let list;
  const start = () => {
    list?.stream.stop();
    list = table(lab, kind, ['Time', 'Verb', 'Resource', 'Object', 'Code', 'Latency', 'Client', 'Faults'], ({ status = {} }) => [
      (status.time ?? '').slice(11, 19), status.verb ?? '', [status.resource ?? status.path ?? '', status.subresource].filter(Boolean).join('/'), [status.namespace, status.name].filter(Boolean).join('/'),
      status.code ?? '', status.latency ?? '', clientName(status.userAgent), (status.faults ?? []).join(', '),
    ], { none: 'No request matches.', limit: 60, parameters: input.value ? { fieldSelector: input.value } : undefined });
    holder.replaceChildren(list.element);
  };
  let timer = 0;
  input.addEventListener('input', () => {
    clearTimeout(timer);
    timer = setTimeout(start, 300);
  });
  start();
  const section = h('section', { class: 'all' }, h('h2', null, 'Requests'), h('div', { class: 'filter' }, input), holder);
  lab.place.append(section);
}
