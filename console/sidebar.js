// The side bar: parts, and kinds by group with the number of their objects.
import { h, setText } from './dom.js';
import { objectCounts, scrape } from './metrics.js';

/** @typedef {import('./main.js').Context} Context */

const COUNT_MS = 3000;
/** Kinds that most people look at, before the others. */
const FIRST = ['pods', 'deployments', 'replicasets', 'statefulsets', 'daemonsets', 'jobs', 'cronjobs', 'services', 'configmaps', 'secrets', 'events', 'nodes', 'namespaces'];

export class Sidebar {
  /**
   * @param {Context} context
   * @param {boolean} hasLab
   */
  constructor(context, hasLab) {
    this.context = context;
    const parts = [['objects', 'Objects'], ['timeline', 'Timeline'], ['loop', 'The loop'], ...(hasLab ? [['lab', 'Lab']] : []), ['learn', 'Learn']];
    /** @type {Map<string, HTMLElement>} */
    this.counts = new Map();
    /** @type {Map<string, HTMLElement>} */
    this.links = new Map();
    const groups = this.groups();
    this.kinds = h('div', { class: 'kinds' }, ...groups.map(([name, kinds]) => h('details', { open: name === 'common' },
      h('summary', null, name), h('ul', null, ...kinds.map((kind) => h('li', null, this.kindLink(kind)))))));
    this.menu = h('button', { class: 'menu', 'aria-expanded': 'false', 'aria-controls': 'menu', onclick: () => this.toggle() }, 'Menu');
    this.element = h('nav', { 'aria-label': 'Parts and kinds' },
      h('div', { class: 'brand' }, h('img', { src: 'icon.svg', alt: '', width: '20', height: '20' }), h('strong', null, 'dogwatch'), this.menu),
      h('div', { id: 'menu' },
        h('div', { class: 'parts' }, ...parts.map(([word, title], index) => {
          const link = h('a', { href: word === 'objects' ? '#/objects/core/pods' : `#/${word}` }, title, h('kbd', null, index + 1));
          this.links.set(word, link);
          return link;
        })),
        this.kinds,
        h('p', { class: 'hints' }, h('kbd', null, '/'), ' filter ', h('kbd', null, ':'), ' kind ', h('kbd', null, '?'), ' keys')));
    this.count();
  }

  toggle(isOpen = !this.element.classList.contains('open')) {
    this.element.classList.toggle('open', isOpen);
    this.menu.setAttribute('aria-expanded', String(isOpen));
  }

  groups() {
    const { kinds } = this.context;
    const isCommon = (/** @type {import('./api.js').Kind} */ kind) => FIRST.includes(kind.plural) && ['', 'apps', 'batch'].includes(kind.group);
    const common = kinds.filter(isCommon).sort((a, b) => FIRST.indexOf(a.plural) - FIRST.indexOf(b.plural));
    /** @type {Map<string, import('./api.js').Kind[]>} */
    const groups = new Map([['common', common]]);
    for (const kind of kinds) {
      if (isCommon(kind)) continue;
      const name = kind.group || 'core';
      groups.set(name, [...(groups.get(name) ?? []), kind]);
    }
    return [...groups];
  }

  /** @param {import('./api.js').Kind} kind */
  kindLink(kind) {
    const count = h('span', { class: 'count' });
    this.counts.set(kind.group ? `${kind.plural}.${kind.group}` : kind.plural, count);
    const link = h('a', { href: `#/objects/${kind.group || 'core'}/${kind.plural}`, title: `${kind.kind}, ${kind.group || 'core'}/${kind.version}` },
      h('span', { class: 'plural' }, kind.plural), count);
    this.links.set(`${kind.group || 'core'}/${kind.plural}`, link);
    return link;
  }

  /**
   * @param {string} part
   * @param {string[]} words
   */
  mark(part, words) {
    this.toggle(false);
    const wanted = [part === 'object' ? 'objects' : part, part.startsWith('object') ? `${words[0]}/${words[1]}` : ''];
    for (const [word, link] of this.links) {
      if (wanted.includes(word)) link.setAttribute('aria-current', 'page');
      else link.removeAttribute('aria-current');
    }
    this.links.get(wanted[1])?.closest('details')?.setAttribute('open', '');
  }

  async count() {
    if (!document.hidden) {
      try {
        const { samples } = await scrape();
        for (const [key, value] of objectCounts(samples)) {
          const element = this.counts.get(key);
          if (element) setText(element, value || '');
        }
        const revisions = samples.filter(({ name }) => name === 'apiserver_watch_cache_resource_version');
        this.context.rail.seen(Math.max(0, ...revisions.map(({ value }) => value)));
      } catch {
        // Not everyone may read metrics: then there are no numbers.
      }
    }
    setTimeout(() => this.count(), COUNT_MS);
  }
}
