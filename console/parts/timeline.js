// Timeline: an object and all it owns, one lane each, every revision a tick with its writer.
//
// The lanes come from history: a watch from the oldest revision that the server has repeats every change since, and then goes on live.
// With a lab, each change also has its client and, for some, the revision that it had been sent before.
import { address, collection, json, query } from '../api.js';
import { h, onceAFrame, s } from '../dom.js';
import { oldestRevision } from '../history.js';
import { colourOf, writer } from '../owners.js';
import { Stream } from '../stream.js';
import { lineDiff, yamlLines } from '../yaml.js';
import { owned } from './tree.js';

/** @typedef {import('../api.js').Kind} Kind */
/** @typedef {import('../api.js').Thing} Thing */
/** @typedef {{ revision: number, type: string, object: Thing, before: Thing | null, writer: string, lane: Lane, agent: string, after: number }} Tick */
/** @typedef {{ uid: string, kind: Kind, name: string, ticks: Tick[], owners: string[], isGone: boolean }} Lane */

const [ROW, STEP, TOP] = [30, 26, 24];
/** Ticks that are drawn, the newest. */
const TICKS_MAX = 300;
/** What these kinds usually own, so that what is gone already has its lane too. @type {Record<string, [string, string][]>} */
const USUAL = {
  deployments: [['apps', 'replicasets'], ['', 'pods']], replicasets: [['', 'pods']], statefulsets: [['', 'pods']], daemonsets: [['', 'pods']],
  cronjobs: [['batch', 'jobs'], ['', 'pods']], jobs: [['', 'pods']], services: [['discovery.k8s.io', 'endpointslices']],
};
/** Kinds that are followed: browsers open few connections to a server without TLS. */
const KINDS_MAX = 4;
/** Pause between two reads of the changes of the lab, while ticks arrive. */
const CHANGES_MS = 1500;

/** @type {import('../main.js').Part} */
export function showTimeline(place, context, [group, plural, namespaceWord, name]) {
  const kind = group && context.find(group === 'core' ? '' : group, plural);
  if (!kind || !name) {
    choose(place, context);
    return undefined;
  }
  const view = new Timeline(place, context, kind, namespaceWord === '_' ? undefined : namespaceWord, name);
  view.start();
  return { stop: () => view.stop(), moved: () => view.redraw(), keys: { j: () => view.step(1), k: () => view.step(-1) } };
}

/**
 * @param {HTMLElement} place
 * @param {import('../main.js').Context} context
 */
async function choose(place, context) {
  const list = h('div', { class: 'two' });
  place.append(h('div', { class: 'title' }, h('h1', null, 'Timeline')), h('p', null, 'Choose what to look at. Every object has a timeline: press t where one is shown.'), list);
  for (const [group, plural] of [['apps', 'deployments'], ['apps', 'statefulsets'], ['apps', 'daemonsets'], ['batch', 'cronjobs'], ['batch', 'jobs'], ['', 'services']]) {
    const kind = context.find(group, plural);
    if (!kind) continue;
    const { items } = await json(`${collection(kind)}?limit=12`).catch(() => ({ items: [] }));
    if (!items.length) continue;
    list.append(h('section', null, h('h2', null, plural), h('ul', { class: 'tree' }, ...items.map((/** @type {Thing} */ item) => h('li', null,
      h('a', { href: context.link(kind, item.metadata.namespace, item.metadata.name).replace('#/object/', '#/timeline/') }, item.metadata.name), ' ', h('small', null, item.metadata.namespace ?? ''))))));
  }
  if (!list.children.length) place.append(h('p', { class: 'empty' }, 'There is no workload yet.'));
}

class Timeline {
  /**
   * @param {HTMLElement} place
   * @param {import('../main.js').Context} context
   * @param {Kind} kind
   * @param {string | undefined} namespace
   * @param {string} name
   */
  constructor(place, context, kind, namespace, name) {
    this.context = context;
    this.kind = kind;
    this.namespace = namespace;
    this.name = name;
    /** @type {Map<string, Lane>} */
    this.lanes = new Map();
    /** @type {Stream[]} */
    this.streams = [];
    /** What the lab knows of a change, by revision. @type {Map<number, any>} */
    this.changes = new Map();
    /** @type {Tick | null} */
    this.chosen = null;
    this.root = '';
    this.redraw = onceAFrame(() => this.draw());
    this.names = h('div', { class: 'names' });
    this.scroll = h('div', { class: 'ticks', tabindex: '0', role: 'region', 'aria-label': 'Revisions' });
    this.note = h('p', null, h('small', null, 'reading history …'));
    this.legend = h('ul', { class: 'legend', 'aria-label': 'Writers' });
    this.detail = h('section', { 'aria-live': 'polite' });
    place.append(h('div', { class: 'title' }, h('h1', null, name), h('span', { class: 'version' }, `timeline of ${kind.kind}${namespace ? ` in ${namespace}` : ''}`),
      h('a', { href: context.link(kind, namespace, name) }, 'object')),
      this.legend, h('div', { class: 'lanes' }, this.names, this.scroll), this.note, this.detail);
  }

  stop() {
    this.isStopped = true;
    this.streams.forEach((stream) => stream.stop());
  }

  async start() {
    const { context, kind, namespace } = this;
    const root = await json(address(kind, namespace, this.name)).catch(() => null);
    this.root = root?.metadata.uid ?? '';
    const all = await owned(context, namespace, null);
    const found = new Set([this.root]);
    const kinds = new Set([kind, ...(USUAL[kind.plural] ?? []).map(([group, plural]) => context.find(group, plural)).filter((one) => one !== undefined)]);
    // Owners come before what they own, but the list has no order: as often as it finds something new.
    for (let size = 0; size !== found.size;) {
      size = found.size;
      for (const one of all) {
        if (!one.metadata.ownerReferences?.some(({ uid }) => found.has(uid))) continue;
        found.add(one.metadata.uid ?? '');
        kinds.add(one.kind);
      }
    }
    if (this.isStopped) return;
    await this.readChanges();
    let begins = 0;
    await Promise.all([...kinds].slice(0, KINDS_MAX).map(async (one) => {
      const path = collection(one, namespace);
      const list = await json(`${path}?limit=1`).catch(() => null);
      if (!list) return;
      const oldest = await oldestRevision(path, Number(list.metadata.resourceVersion));
      begins = Math.max(begins, oldest);
      if (!this.isStopped) this.follow(one, path, oldest);
    }));
    this.note.replaceChildren(h('small', null, begins > 1 ? `History begins at revision ${begins}: the server has nothing older. ` : 'History is whole: it begins with the first revision. ',
      'A dashed line leads to a write from the change that its writer had seen last, as far as that is known; otherwise from the last change of an owner or an owned object. It is a guess.'));
  }

  /** What the lab has recorded of writers, if there is a lab. */
  async readChanges() {
    const kind = this.context.lab('changes');
    if (!kind || this.isStopped) return;
    const list = await json(`${collection(kind)}?${query({ fieldSelector: this.namespace && `namespace=${this.namespace}` })}`).catch(() => ({ items: [] }));
    for (const { status } of list.items ?? []) this.changes.set(Number(status?.revision), status);
    this.redraw();
  }

  /**
   * @param {Kind} kind
   * @param {string} path
   * @param {number} oldest
   */
  follow(kind, path, oldest) {
    const stream = new Stream({ path, from: String(oldest) }, {
      page: (items) => items.forEach((item) => this.put(kind, 'ADDED', item)),
      event: (type, item) => this.put(kind, type, item),
      revision: (revision) => this.context.rail.seen(Number(revision)),
    });
    this.streams.push(stream.start());
  }

  /**
   * @param {Kind} kind
   * @param {string} type
   * @param {Thing} object
   */
  put(kind, type, object) {
    const { uid = '', name } = object.metadata;
    const owners = (object.metadata.ownerReferences ?? []).map((one) => one.uid);
    if (kind === this.kind && name === this.name) this.root ||= uid;
    const isRoot = kind === this.kind && name === this.name;
    if (!isRoot && !owners.length) return;
    const lane = this.lanes.get(uid) ?? { uid, kind, name, ticks: [], owners, isGone: false };
    this.lanes.set(uid, lane);
    const before = lane.ticks.at(-1)?.object ?? null;
    const revision = Number(object.metadata.resourceVersion);
    if (lane.ticks.some((tick) => tick.revision === revision)) return;
    lane.isGone = type === 'DELETED';
    lane.ticks.push({ revision, type, object, before, writer: type === 'DELETED' ? 'delete' : writer(before, object), lane, agent: '', after: 0 });
    if (this.changes.size && !this.isWaiting) {
      this.isWaiting = true;
      setTimeout(() => {
        this.isWaiting = false;
        this.readChanges();
      }, CHANGES_MS);
    }
    this.redraw();
  }

  /** The lanes of the root, each one below its owner. @returns {Lane[]} */
  sorted() {
    const roots = [...this.lanes.values()].filter((lane) => lane.kind === this.kind && lane.name === this.name);
    /** @type {Lane[]} */
    const out = [];
    const visit = (/** @type {Lane} */ lane) => {
      if (out.includes(lane)) return;
      out.push(lane);
      [...this.lanes.values()].filter((one) => one.owners.includes(lane.uid)).sort((a, b) => a.ticks[0].revision - b.ticks[0].revision).forEach(visit);
    };
    roots.forEach(visit);
    return out;
  }

  draw() {
    const lanes = this.sorted();
    let ticks = lanes.flatMap((lane) => lane.ticks).sort((a, b) => a.revision - b.revision);
    const dropped = Math.max(0, ticks.length - TICKS_MAX);
    ticks = ticks.slice(dropped);
    for (const tick of ticks) {
      const change = this.changes.get(tick.revision);
      if (!change) continue;
      tick.writer = change.manager || change.userAgent?.split('/')[0] || tick.writer;
      tick.agent = change.userAgent ?? '';
      tick.after = Number(change.after ?? 0);
    }
    this.ticks = ticks;
    const x = new Map(ticks.map((tick, index) => [tick.revision, 20 + index * STEP]));
    const width = Math.max(400, ticks.length * STEP + 40);
    const picture = s('svg', { width, height: TOP + lanes.length * ROW + 6, role: 'group', 'aria-label': 'Revisions by object' });
    const letters = new Map(/** @type {[string, string][]} */ ([]));
    lanes.forEach((lane, index) => {
      const y = TOP + index * ROW + ROW / 2;
      picture.append(s('line', { class: 'lane', x1: 0, x2: width, y1: y, y2: y }));
      const places = lane.ticks.map((tick) => x.get(tick.revision)).filter((one) => one !== undefined);
      if (places.length) picture.append(s('line', { class: 'life', x1: places[0], x2: lane.isGone ? places.at(-1) : width, y1: y, y2: y }));
    });
    const row = (/** @type {Tick} */ tick) => TOP + lanes.indexOf(tick.lane) * ROW + ROW / 2;
    for (const tick of ticks) {
      const cause = causeOf(tick, ticks);
      if (!cause || cause.lane === tick.lane) continue;
      const [x1, x2] = [x.get(cause.revision) ?? 0, x.get(tick.revision) ?? 0];
      picture.append(s('path', { class: 'cause', d: `M${x1} ${row(cause)}C${(x1 + x2) / 2} ${row(cause)} ${(x1 + x2) / 2} ${row(tick)} ${x2} ${row(tick)}` }));
    }
    const past = this.context.rail.revision;
    if (past !== null) {
      const at = x.get(ticks.findLast((tick) => tick.revision <= past)?.revision ?? -1) ?? 4;
      picture.append(s('line', { class: 'now', x1: at + STEP / 2, x2: at + STEP / 2, y1: 0, y2: TOP + lanes.length * ROW }), s('text', { class: 'soft', x: at + STEP / 2 + 4, y: 14 }, `as of ${past}`));
    }
    for (const tick of ticks) {
      const letter = letters.get(tick.writer) ?? letterFor(tick.writer, letters);
      const select = () => this.choose(tick);
      const label = `revision ${tick.revision}: ${tick.lane.kind.kind} ${tick.lane.name}, ${tick.type.toLowerCase()} by ${tick.writer}`;
      picture.append(s('g', { class: `tick c${colourOf(tick.writer)}${tick === this.chosen ? ' chosen' : ''}`, tabindex: '0', role: 'button', 'aria-label': label, 'data-revision': tick.revision, onclick: select,
        onkeydown: (/** @type {KeyboardEvent} */ event) => { if (event.key === 'Enter' || event.key === ' ') { event.preventDefault(); select(); } } },
        s('title', null, label), s('rect', { x: (x.get(tick.revision) ?? 0) - 9, y: row(tick) - 9, width: 18, height: 18, rx: tick.type === 'ADDED' ? 9 : 2 }),
        s('text', { x: x.get(tick.revision), y: row(tick) + 4 }, tick.type === 'DELETED' ? '×' : letter)));
    }
    const isAtEnd = this.scroll.scrollLeft + this.scroll.clientWidth >= this.scroll.scrollWidth - 4;
    const focused = document.activeElement?.getAttribute('data-revision');
    this.scroll.replaceChildren(picture);
    if (isAtEnd) this.scroll.scrollLeft = this.scroll.scrollWidth;
    if (focused) /** @type {HTMLElement | null} */ (this.scroll.querySelector(`[data-revision="${focused}"]`))?.focus();
    this.names.replaceChildren(h('div', { class: 'label' }), ...lanes.map((lane) => h('div', { class: 'label', title: lane.name },
      h('small', null, lane.kind.kind), ' ', lane.isGone ? h('s', null, lane.name) : h('a', { href: this.context.link(lane.kind, this.namespace, lane.name) }, lane.name))));
    this.legend.replaceChildren(...[...letters].map(([name, letter]) => h('li', null, h('span', { class: `owner c${colourOf(name)}` }, name === 'delete' ? '×' : letter), name === 'delete' ? ' deleted' : ` ${name}`)),
      h('li', null, h('small', null, `○ created  □ changed  × deleted${dropped ? `; ${dropped} older ones are not drawn` : ''}`)));
  }

  /** @param {number} by */
  step(by) {
    const ticks = this.ticks ?? [];
    const index = this.chosen ? ticks.indexOf(this.chosen) + by : ticks.length - 1;
    if (ticks[index]) this.choose(ticks[index]);
  }

  /** @param {Tick} tick */
  choose(tick) {
    this.chosen = tick;
    const texts = (/** @type {Thing | null} */ object) => (object ? yamlLines(withoutManaged(object)).map((line) => line.text) : []);
    const diff = lineDiff(tick.before ? texts(tick.before) : [], tick.type === 'DELETED' ? [] : texts(tick.object));
    this.detail.replaceChildren(h('div', { class: 'title' }, h('h2', null, `Revision ${tick.revision}`), h('span', null, `${tick.lane.kind.kind} ${tick.lane.name}, ${tick.type === 'DELETED' ? 'deleted' : `written by ${tick.writer}`}`, tick.agent && tick.agent !== tick.writer && h('small', null, ` ${tick.agent}`)),
      h('button', { class: 'small', onclick: () => this.context.rail.pick(tick.revision) }, 'Show the cluster as of this revision')),
      h('div', { class: 'yaml', tabindex: '0', role: 'region', 'aria-label': 'Changes of this revision' }, ...near(diff).map((line) => (line
        ? h('div', { class: `line ${line.type === '+' ? 'added' : line.type === '-' ? 'removed' : ''}` }, h('span', { class: 'sign' }, line.type.trim()), h('code', null, line.text || ' '))
        : h('div', { class: 'line' }, h('span', { class: 'sign' }), h('code', null, '…'))))));
    this.redraw();
  }
}

/**
 * The change that a write likely follows: the last one that its writer had been sent, if the lab knows it; else the last one before it of
 * the object itself, of what owns it or of what it owns.
 * @param {Tick} tick
 * @param {Tick[]} ticks
 */
function causeOf(tick, ticks) {
  if (tick.after) return ticks.findLast((one) => one.revision <= tick.after && one.revision < tick.revision);
  const { lane } = tick;
  // What people write follows from nothing in the picture.
  if (/^(kubectl|dogwatch-console)/.test(tick.writer)) return undefined;
  // Who made an object follows its owner; others, such as a node, follow the object itself.
  const followsOwner = tick.type !== 'MODIFIED' || tick.writer === lane.ticks[0].writer;
  return ticks.findLast((one) => {
    if (one.revision >= tick.revision) return false;
    if (one.lane === lane) return one.writer !== tick.writer;
    if (one.lane.owners.includes(lane.uid)) return true;
    return followsOwner && lane.owners.includes(one.lane.uid) && (tick.type !== 'MODIFIED' || one.writer !== tick.writer);
  });
}

/**
 * @param {string} name
 * @param {Map<string, string>} letters
 */
function letterFor(name, letters) {
  const words = [...name.replace(/^(dogwatch|kube)[/-]/, '').toUpperCase().replace(/[^A-Z]/g, ''), ...'ABCDEFGHIJKLMNOPQRSTUVWXYZ'];
  const letter = words.find((one) => ![...letters.values()].includes(one)) ?? '·';
  letters.set(name, letter);
  return letter;
}

/** @param {Thing} object */
function withoutManaged(object) {
  const { managedFields, ...metadata } = object.metadata;
  return { ...object, metadata };
}

/**
 * Changed lines with three around them; null where lines are left out.
 * @template {{ type: string }} L
 * @param {L[]} diff
 * @returns {(L | null)[]}
 */
function near(diff) {
  const isNear = diff.map((_, index) => diff.slice(Math.max(0, index - 3), index + 4).some((line) => line.type !== ' '));
  /** @type {(L | null)[]} */
  const out = [];
  diff.forEach((line, index) => {
    if (isNear[index]) out.push(line);
    else if (out.at(-1) !== null) out.push(null);
  });
  return out;
}
