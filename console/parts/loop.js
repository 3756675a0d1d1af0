// The loop: the picture of the architecture with live numbers on it, and the watchers.
import { collection, json } from '../api.js';
import { age, h, onceAFrame, s, setText } from '../dom.js';
import { scrape, sum } from '../metrics.js';
import { Stream } from '../stream.js';
import { clientName } from './lab.js';

const SAMPLE_MS = 2000;
const [WIDTH, HEIGHT, GAP] = [168, 74, 34];

/** The places of the loop, in its order: name, unit of the first number, column, row. @type {[string, string, number, number][]} */
const PLACES = [
  ['request', 'requests a second', 0, 0], ['server', 'in flight', 1, 0], ['registry', 'writes a second', 2, 0], ['store', 'revision', 3, 0],
  ['cache', 'changes kept', 4, 0], ['watch streams', 'open watches', 5, 0],
  ['reflector', 'events a second', 5, 1], ['FIFO', '', 4, 1], ['indexer', 'objects', 3, 1], ['handlers', '', 2, 1], ['work queue', ' ', 1, 1], ['reconcile', ' ', 0, 1],
];

/** @type {import('../main.js').Part} */
export function showLoop(place, context) {
  /** @type {Map<string, SVGElement>} */
  const values = new Map();
  place.append(h('div', { class: 'title' }, h('h1', null, 'The loop')),
    h('p', null, 'Every change takes this way. The upper row is the server, the lower one is what a controller does with what it is sent; numbers are of the last two seconds.'),
    drawing(values));
  const memory = h('p', { class: 'version' });
  const tables = h('div', { class: 'two' });
  place.append(memory, tables);
  const watchers = context.lab('watchers');
  const stopWatchers = watchers ? showWatchers(tables, watchers) : undefined;
  const resources = h('section');
  const queues = h('section', { class: 'queues', hidden: true });
  tables.append(resources, queues);

  const abort = new AbortController();
  /** @type {Awaited<ReturnType<typeof scrape>> | undefined} */
  let before;
  let timer = 0;
  const sample = async () => {
    try {
      const now = await scrape(abort.signal);
      draw(values, resources, before, now);
      drawQueues(values, queues, now.samples);
      setText(memory, describe(now.samples));
      before = now;
    } catch {
      if (abort.signal.aborted) return;
      resources.replaceChildren(h('p', { class: 'empty' }, 'The server does not show its metrics now.'));
    }
    timer = setTimeout(sample, SAMPLE_MS);
  };
  sample();
  return {
    stop: () => {
      abort.abort();
      clearTimeout(timer);
      stopWatchers?.();
    },
  };
}

/** @param {Map<string, SVGElement>} values */
function drawing(values) {
  const [x, y] = [(/** @type {number} */ column) => 2 + column * (WIDTH + GAP), (/** @type {number} */ row) => 2 + row * (HEIGHT + 56)];
  const picture = s('svg', { class: 'loop', viewBox: `0 0 ${x(6) - GAP + 2} ${y(1) + HEIGHT + 4}`, role: 'img', 'aria-label': 'The loop from a request to the reconciliation that follows it' },
    s('defs', null, s('marker', { id: 'tip', viewBox: '0 0 8 8', refX: '7', refY: '4', markerWidth: '8', markerHeight: '8', orient: 'auto' }, s('path', { d: 'M0 0 8 4 0 8z' }))));
  PLACES.forEach(([name, unit, column, row], index) => {
    const value = s('text', { class: 'value', x: x(column) + 12, y: y(row) + 46 });
    const units = s('text', { class: 'unit', x: x(column) + 12, y: y(row) + 63 }, unit);
    values.set(name, value);
    values.set(`${name}: unit`, units);
    picture.append(s('g', { class: row === 0 ? 'server' : 'client' }, s('rect', { x: x(column), y: y(row), width: WIDTH, height: HEIGHT, rx: 3 }),
      s('text', { class: 'name', x: x(column) + 12, y: y(row) + (unit ? 22 : 42) }, name), value, units));
    const next = PLACES[(index + 1) % PLACES.length];
    const d = next[3] === row
      ? `M${row === 0 ? x(column) + WIDTH : x(column)} ${y(row) + HEIGHT / 2}h${(row === 0 ? 1 : -1) * (GAP - 2)}`
      : `M${x(column) + WIDTH / 2} ${row === 0 ? y(0) + HEIGHT : y(1)}v${row === 0 ? 54 : -54}`;
    picture.append(s('path', { d, 'marker-end': 'url(#tip)' }));
  });
  return h('div', { class: 'wide' }, picture);
}

/** Memory and connections, where the server has metrics of them. @param {import('../metrics.js').Sample[]} samples */
function describe(samples) {
  const bytes = sum(samples, 'process_resident_memory_bytes');
  const connections = sum(samples, 'dogwatch_connections');
  return [bytes && `memory ${(bytes / 1e6).toFixed(0)} MB`, connections && `connections ${connections}`].filter(Boolean).join(' · ');
}

const WRITES = ['POST', 'PUT', 'PATCH', 'DELETE', 'APPLY', 'DELETECOLLECTION', 'create', 'update', 'patch', 'delete', 'apply'];

/**
 * @param {Map<string, SVGElement>} values
 * @param {HTMLElement} place
 * @param {{ at: number, samples: import('../metrics.js').Sample[] } | undefined} before
 * @param {{ at: number, samples: import('../metrics.js').Sample[] }} now
 */
function draw(values, place, before, now) {
  const rate = (/** @type {string} */ name, /** @type {any} */ counts = undefined) => {
    if (!before) return '…';
    const change = sum(now.samples, name, counts) - sum(before.samples, name, counts);
    return ((change * 1000) / (now.at - before.at)).toFixed(1);
  };
  const put = (/** @type {string} */ name, /** @type {string | number} */ text) => setText(/** @type {SVGElement} */ (values.get(name)), text);
  const revisions = now.samples.filter(({ name }) => name === 'apiserver_watch_cache_resource_version').map(({ value }) => value);
  put('request', rate('apiserver_request_total'));
  put('server', sum(now.samples, 'apiserver_current_inflight_requests'));
  put('registry', rate('apiserver_request_total', (/** @type {any} */ labels) => WRITES.includes(labels.verb)));
  put('store', Math.max(0, ...revisions));
  put('cache', sum(now.samples, 'dogwatch_cache_history_changes'));
  put('watch streams', sum(now.samples, 'dogwatch_watches') || sum(now.samples, 'apiserver_longrunning_requests', (labels) => labels.verb === 'WATCH'));
  put('reflector', rate('apiserver_watch_events_total'));
  put('indexer', sum(now.samples, 'apiserver_storage_objects') || sum(now.samples, 'apiserver_resource_objects'));

  /** @type {Map<string, { watchers: number, objects: number, events: number }>} */
  const rows = new Map();
  const add = (/** @type {string} */ metric, /** @type {'watchers' | 'objects' | 'events'} */ field) => {
    for (const { name, labels, value } of now.samples) {
      if (name !== metric) continue;
      const key = labels.group ? `${labels.resource}.${labels.group}` : labels.resource;
      const row = rows.get(key) ?? { watchers: 0, objects: 0, events: 0 };
      row[field] += value;
      rows.set(key, row);
    }
  };
  add('dogwatch_cache_watchers', 'watchers');
  add('apiserver_storage_objects', 'objects');
  add('apiserver_watch_cache_events_received_total', 'events');
  const busy = [...rows].filter(([, row]) => row.watchers).sort((a, b) => b[1].events - a[1].events || b[1].watchers - a[1].watchers).slice(0, 20);
  const most = Math.max(1, ...busy.map(([, row]) => row.watchers));
  place.replaceChildren(h('h2', null, 'Watchers by resource'), busy.length ? h('table', { class: 'plain-table' },
    h('thead', null, h('tr', null, ...['Resource', 'Watchers', '', 'Objects', 'Changes since start'].map((text, index) => h('th', { class: index === 1 || index > 2 ? 'n' : '' }, text || h('span', { class: 'unseen' }, 'Bar'))))),
    h('tbody', null, ...busy.map(([name, row]) => {
      const bar = h('span', { class: 'bar', 'aria-hidden': 'true' });
      bar.style.width = `${(row.watchers / most) * 60}px`;
      return h('tr', null, h('td', null, name), h('td', { class: 'n' }, row.watchers), h('td', null, bar), h('td', { class: 'n' }, row.objects), h('td', { class: 'n' }, row.events));
    }))) : h('p', { class: 'empty' }, 'The server does not say who watches what.'));
}

/** The metrics of a queue, by the heading of their column. @type {[string, string][]} */
const QUEUE_FIGURES = [['Queued', 'workqueue_depth'], ['In work', 'dogwatch_workqueue_working'], ['Delayed', 'dogwatch_workqueue_delayed'], ['Added since start', 'workqueue_adds_total']];

/**
 * The work queues of the controllers, where the server has them: a server without controllers shows none.
 * @param {Map<string, SVGElement>} values
 * @param {HTMLElement} place
 * @param {import('../metrics.js').Sample[]} samples
 */
function drawQueues(values, place, samples) {
  /** @type {Map<string, Map<string, number>>} */
  const rows = new Map();
  for (const { name, labels, value } of samples) {
    if (!QUEUE_FIGURES.some(([, metric]) => metric === name)) continue;
    const row = rows.get(labels.name) ?? new Map();
    rows.set(labels.name, row.set(name, value));
  }
  place.hidden = !rows.size;
  if (!rows.size) return;
  const put = (/** @type {string} */ name, /** @type {string | number} */ text) => setText(/** @type {SVGElement} */ (values.get(name)), text);
  put('work queue', sum(samples, 'workqueue_depth'));
  put('work queue: unit', 'queued keys');
  put('reconcile', sum(samples, 'dogwatch_workqueue_working'));
  put('reconcile: unit', 'keys in work');
  place.replaceChildren(h('h2', null, 'Queues of controllers'), h('table', { class: 'plain-table' },
    h('thead', null, h('tr', null, h('th', null, 'Controller'), ...QUEUE_FIGURES.map(([heading]) => h('th', { class: 'n' }, heading)))),
    h('tbody', null, ...[...rows].sort(([a], [b]) => (a < b ? -1 : 1)).map(([name, row]) => h('tr', { 'data-queue': name }, h('td', null, name),
      ...QUEUE_FIGURES.map(([, metric]) => h('td', { class: 'n' }, row.get(metric) ?? '')))))));
}

/**
 * The watchers of the lab, which can be cut.
 * @param {HTMLElement} place
 * @param {import('../api.js').Kind} kind
 */
function showWatchers(place, kind) {
  /** @type {Map<string, any>} */
  const found = new Map();
  const body = h('tbody');
  const section = h('section', { class: 'all' }, h('h2', null, 'Watchers'), h('div', { class: 'wide' }, h('table', { class: 'plain-table' },
    h('thead', null, h('tr', null, ...['Resource', 'Client', 'Since', 'Behind', 'Lag', 'Sent', ''].map((text) => h('th', null, text || h('span', { class: 'unseen' }, 'Action'))))), body)));
  place.append(section);
  const name = (/** @type {any} */ one) => `${one.status?.resource} ${one.status?.userAgent} ${one.metadata.name}`;
  const draw = onceAFrame(() => body.replaceChildren(...[...found.values()].sort((a, b) => (name(a) < name(b) ? -1 : 1)).map((one) => {
    const at = one.status ?? {};
    const lag = Number(at.lagMs ?? 0);
    const bar = h('span', { class: 'bar', 'aria-hidden': 'true' });
    bar.style.width = `${Math.min(60, lag / 20)}px`;
    return h('tr', { 'data-name': one.metadata.name }, h('td', null, at.resource ?? '', h('small', null, ` ${[at.namespace, at.name, at.selector].filter(Boolean).join(' ')}`)),
      h('td', null, clientName(at.userAgent)), h('td', null, age(at.since)),
      h('td', { class: 'n' }, at.revisionsBehind ?? 0), h('td', null, bar, ` ${lag} ms`), h('td', { class: 'n' }, at.eventsSent ?? 0),
      h('td', null, h('button', { class: 'small', onclick: () => json(`${collection(kind)}/${one.metadata.name}`, { method: 'DELETE' }).catch(() => {}) }, 'Cut')));
  })));
  const stream = new Stream({ path: collection(kind) }, {
    page: (items, _, isFirst) => {
      if (isFirst) found.clear();
      items.forEach((item) => found.set(item.metadata.name, item));
      draw();
    },
    event: (type, item) => {
      if (type === 'DELETED') found.delete(item.metadata.name);
      else found.set(item.metadata.name, item);
      draw();
    },
  }).start();
  return () => stream.stop();
}
