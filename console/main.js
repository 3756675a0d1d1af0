// The frame of the page: side bar, parts, the rail of revisions, keys. Each part is a module that fills one place.
import { Refusal, discover } from './api.js';
import { h } from './dom.js';
import { chooseKind, showHelp } from './dialogs.js';
import { Rail } from './rail.js';
import { open } from './session.js';
import { Sidebar } from './sidebar.js';
import { showLab } from './parts/lab.js';
import { showLearn } from './parts/learn.js';
import { showLoop } from './parts/loop.js';
import { showObject } from './parts/object.js';
import { showObjects } from './parts/objects.js';
import { showTimeline } from './parts/timeline.js';

/**
 * What every part gets.
 * @typedef {object} Context
 * @property {import('./api.js').Kind[]} kinds
 * @property {Rail} rail
 * @property {(group: string, plural: string) => import('./api.js').Kind | undefined} find
 * @property {(plural: string) => import('./api.js').Kind | undefined} lab a kind of the lab, if the server has it
 * @property {(kind: import('./api.js').Kind, namespace: string | undefined, name: string) => string} link
 */

/**
 * A part fills an element, and returns what ends it.
 * @typedef {{ stop: () => void, keys?: Record<string, () => void>, moved?: () => void }} Shown `moved` is called when the rail was moved
 * @typedef {(place: HTMLElement, context: Context, words: string[]) => Shown | undefined} Part
 */

/** @type {Record<string, { title: string, show: Part }>} */
const PARTS = {
  objects: { title: 'Objects', show: showObjects },
  object: { title: 'Object', show: showObject },
  timeline: { title: 'Timeline', show: showTimeline },
  loop: { title: 'The loop', show: showLoop },
  lab: { title: 'Lab', show: showLab },
  learn: { title: 'Learn', show: showLearn },
};

export const LAB = 'lab.dogwatch.dev';

const app = /** @type {HTMLElement} */ (document.getElementById('app'));

async function begin() {
  const trouble = await open();
  if (trouble) return app.replaceChildren(plainPage(trouble));
  let kinds;
  try {
    kinds = await discover();
  } catch (failure) {
    return app.replaceChildren(plainPage(failure instanceof Refusal ? failure.message : 'The server does not answer.'));
  }
  run(kinds);
}

/** @param {string} trouble */
function plainPage(trouble) {
  return h('main', { class: 'plain' }, h('h1', null, 'dogwatch console'), h('p', null, trouble),
    h('p', null, 'Run ', h('code', null, 'dogwatch console'), ' in a terminal and open the link that it prints.'));
}

/** @param {import('./api.js').Kind[]} all */
function run(all) {
  const kinds = all.filter((kind) => kind.verbs.includes('list'));
  const rail = new Rail();
  /** @type {Context} */
  const context = {
    kinds,
    rail,
    find: (group, plural) => kinds.find((kind) => kind.group === group && kind.plural === plural),
    lab: (plural) => all.find((kind) => kind.group === LAB && kind.plural === plural),
    link: (kind, namespace, name) => `#/object/${kind.group || 'core'}/${kind.plural}/${namespace || '_'}/${encodeURIComponent(name)}`,
  };
  const hasLab = all.some((kind) => kind.group === LAB);
  const place = h('main', { id: 'part', tabindex: '-1' });
  const sidebar = new Sidebar(context, hasLab);
  app.replaceChildren(h('a', { class: 'skip', href: '#part', onclick: (/** @type {Event} */ event) => { event.preventDefault(); place.focus(); } }, 'Skip to content'),
    sidebar.element, h('div', { id: 'page' }, rail.element, place));

  /** @type {Shown | undefined} */
  let shown;
  const show = () => {
    shown?.stop();
    const [part, ...words] = location.hash.replace(/^#\/?/, '').split('/').map(decodeURIComponent);
    const { title, show: fill } = PARTS[part] ?? PARTS.objects;
    document.title = `${words.at(-1) && part.startsWith('object') ? `${words.at(-1)} · ` : ''}${title} · dogwatch`;
    place.replaceChildren();
    place.scrollTop = 0;
    sidebar.mark(part || 'objects', words);
    rail.setUse(!['loop', 'learn', 'lab'].includes(part));
    shown = fill(place, context, words);
  };
  addEventListener('hashchange', show);
  rail.onchange = () => (shown?.moved ? shown.moved() : show());
  if (!location.hash) history.replaceState(null, '', '#/objects/core/pods');
  show();
  addEventListener('keydown', (event) => key(event, context, () => shown?.keys ?? {}));
}

/**
 * @param {KeyboardEvent} event
 * @param {Context} context
 * @param {() => Record<string, () => void>} keys of the part that is shown
 */
function key(event, context, keys) {
  const target = /** @type {HTMLElement} */ (event.target);
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector('dialog[open]')) return;
  if (target.matches('input:not([type=range]), textarea, select')) {
    if (event.key === 'Escape') target.blur();
    return;
  }
  const own = keys()[event.key];
  if (own) own();
  else if (event.key === ':') chooseKind(context);
  else if (event.key === '?') showHelp();
  else if (event.key === '[') context.rail.step(-1);
  else if (event.key === ']') context.rail.step(1);
  else if (event.key === '=') context.rail.live();
  else if (/^[1-5]$/.test(event.key)) /** @type {HTMLElement | undefined} */ (document.querySelectorAll('nav .parts a')[Number(event.key) - 1])?.click();
  else return;
  event.preventDefault();
}

begin();
