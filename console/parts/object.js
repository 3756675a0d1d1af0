// One object: YAML with the owner of each field, its tree, events and conditions; and what can be done to it.
import { Refusal, address, collection, groupVersion, json, query } from '../api.js';
import { confirm } from '../dialogs.js';
import { age, h, setText } from '../dom.js';
import { managers, ownerOf, ownersByPath } from '../owners.js';
import { Stream } from '../stream.js';
import { lineDiff, yaml, yamlLines } from '../yaml.js';
import { editor } from './editor.js';
import { showTree } from './tree.js';

/** @typedef {import('../api.js').Kind} Kind */
/** @typedef {import('../api.js').Thing} Thing */

/** @type {import('../main.js').Part} */
export function showObject(place, context, [group, plural, namespaceWord, name]) {
  const kind = context.find(group === 'core' ? '' : group, plural);
  if (!kind) {
    place.append(h('h1', null, name ?? plural), h('p', { class: 'empty' }, 'The server has no such kind.'));
    return undefined;
  }
  const namespace = namespaceWord === '_' ? undefined : namespaceWord;
  const revision = kind.group === 'lab.dogwatch.dev' ? null : context.rail.revision;
  const view = new ObjectView(place, context, kind, namespace, name);
  const parameters = { fieldSelector: `metadata.name=${name}` };
  if (revision !== null) {
    view.isPast = true;
    json(`${collection(kind, namespace)}?${query({ ...parameters, resourceVersion: revision, resourceVersionMatch: 'Exact' })}`)
      .then((list) => (list.items[0] ? view.put({ apiVersion: groupVersion(kind), kind: kind.kind, ...list.items[0] }) : view.gone(`There was no such object at revision ${revision}.`)),
        (failure) => view.gone(failure.message));
    return { stop: () => view.stop(), keys: { t: () => view.openTimeline() } };
  }
  let isFound = false;
  const stream = new Stream({ path: collection(kind, namespace), parameters }, {
    page: ([item]) => {
      isFound = Boolean(item);
      if (item) view.put({ apiVersion: groupVersion(kind), kind: kind.kind, ...item });
    },
    listed: () => { if (!isFound) view.gone('There is no such object. It may have been deleted.'); },
    event: (type, item) => {
      if (type === 'DELETED') view.gone('The object was deleted.');
      else view.put(item);
    },
    revision: (seen) => kind.group !== 'lab.dogwatch.dev' && context.rail.seen(Number(seen)),
    state: (state, detail) => view.state(state, detail),
  }).start();
  return {
    stop: () => {
      stream.stop();
      view.stop();
    },
    keys: { e: () => view.edit('edit'), a: () => view.edit('apply'), t: () => view.openTimeline() },
  };
}

class ObjectView {
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
    /** @type {Thing | null} */
    this.object = null;
    /** The version before, to mark what changed. @type {Thing | null} */
    this.before = null;
    this.isPast = false;
    this.showsSecrets = false;
    this.version = h('span', { class: 'version' });
    this.stateText = h('span', { class: 'state', role: 'status' });
    this.message = h('div', { class: 'message', role: 'alert' });
    this.actions = h('div', { class: 'actions', role: 'group', 'aria-label': 'Actions' });
    this.text = h('div', { class: 'yaml', role: 'region', 'aria-label': 'YAML', tabindex: '0' });
    this.legend = h('ul', { class: 'legend', 'aria-label': 'Owners of fields' });
    this.conditions = h('section', { hidden: true });
    this.tree = h('section', { hidden: true });
    this.events = h('section', { hidden: true });
    this.editing = h('div');
    place.append(
      h('div', { class: 'title' }, h('h1', null, name), h('span', { class: 'version' }, `${kind.kind}${namespace ? ` in ${namespace}` : ''}`), this.version, this.stateText),
      this.actions, this.message, this.editing,
      h('div', { class: 'columns' }, h('section', { class: 'main' }, h('h2', null, 'Fields and their owners'), this.legend, this.text),
        h('div', { class: 'side' }, this.conditions, this.tree, this.events)));
  }

  stop() {
    this.eventStream?.stop();
    this.isStopped = true;
  }

  /**
   * @param {string} state
   * @param {string} detail
   */
  state(state, detail) {
    this.stateText.dataset.state = state;
    setText(this.stateText, state === 'waiting' ? 'reconnecting' : state === 'stopped' ? '' : state);
    if (state === 'refused') this.refuse(new Error(detail));
  }

  /** @param {string} why */
  gone(why) {
    this.isGone = true;
    this.actions.replaceChildren();
    this.message.replaceChildren(h('p', { class: 'notice' }, why));
  }

  /** @param {Thing} object */
  put(object) {
    if (this.isStopped) return;
    const isFirst = this.object === null || this.isGone;
    if (this.isGone) this.message.replaceChildren();
    this.isGone = false;
    this.before = this.object ?? this.before;
    this.object = object;
    setText(this.version, `revision ${object.metadata.resourceVersion}`);
    this.draw();
    this.drawConditions();
    if (!isFirst) return;
    this.drawActions();
    if (!this.isPast) this.showEvents();
    if (this.kind.group !== 'lab.dogwatch.dev') {
      showTree(this.tree, this.context, object, this.kind);
      this.readBefore(object);
    }
  }

  /** Reads the version before the one that is shown, where history has it. @param {Thing} object */
  async readBefore(object) {
    const revision = Number(object.metadata.resourceVersion) - 1;
    try {
      const parameters = { fieldSelector: `metadata.name=${this.name}`, resourceVersion: revision, resourceVersionMatch: 'Exact' };
      const list = await json(`${collection(this.kind, this.namespace)}?${query(parameters)}`);
      if (!this.before && list.items[0]?.metadata.uid === object.metadata.uid) {
        this.before = { apiVersion: object.apiVersion, kind: object.kind, ...list.items[0] };
        this.draw();
      }
    } catch {
      // History does not reach back so far.
    }
  }

  draw() {
    const object = /** @type {Thing} */ (this.object);
    const owners = ownersByPath(object);
    const lines = yamlLines(this.visible(object));
    const texts = lines.map((line) => line.text);
    const old = this.before && yamlLines(this.visible(this.before)).map((line) => line.text);
    const diff = old ? lineDiff(old, texts) : texts.map((text, index) => ({ type: ' ', text, index }));
    const scroll = this.text.scrollTop;
    let previous = '';
    this.text.replaceChildren(...diff.map(({ type, text, index }) => {
      const owner = type === '-' ? undefined : ownerOf(owners, lines[index].path);
      const isNew = owner?.name !== previous;
      previous = owner?.name ?? '';
      return h('div', { class: `line ${type === '+' ? 'added' : type === '-' ? 'removed' : ''}` },
        h('span', { class: 'sign' }, type === ' ' ? '' : type),
        h('span', { class: owner ? `owner c${owner.colour}` : 'owner', title: owner ? `${owner.name} (${owner.operation}${owner.subresource ? `, ${owner.subresource}` : ''}) ${owner.time}` : '' }, owner && isNew ? owner.letter : ''),
        h('code', null, text || ' '));
    }));
    this.text.scrollTop = scroll;
    const list = managers(object.metadata.managedFields);
    this.legend.replaceChildren(...list.map((one) => h('li', null, h('span', { class: `owner c${one.colour}` }, one.letter), ` ${one.name}`,
      h('small', null, ` ${one.operation}${one.subresource ? ` of ${one.subresource}` : ''}${one.time ? `, ${age(one.time)} ago` : ''}`))));
    if (old) this.legend.append(h('li', null, h('span', { class: 'sign added' }, '+'), h('span', { class: 'sign removed' }, '-'), ' changed since the revision before'));
  }

  /** What is shown: managedFields are in the margin, and values of secrets are hidden until asked for. @param {Thing} object */
  visible(object) {
    const { managedFields, ...metadata } = object.metadata;
    /** @type {Record<string, any>} */
    const shown = { apiVersion: object.apiVersion, kind: object.kind, ...object, metadata };
    if (this.kind.plural !== 'secrets' || this.kind.group || this.showsSecrets) return shown;
    const hide = (/** @type {Record<string, string> | undefined} */ data) => data && Object.fromEntries(Object.entries(data).map(([key, value]) => [key, `hidden, ${atob(value).length} bytes`]));
    const annotations = metadata.annotations && Object.fromEntries(Object.entries(metadata.annotations).map(([key, value]) => [key, key.endsWith('last-applied-configuration') ? 'hidden' : value]));
    return { ...shown, metadata: annotations ? { ...metadata, annotations } : metadata, ...(shown.data ? { data: hide(shown.data) } : {}) };
  }

  drawConditions() {
    const list = this.object?.status?.conditions;
    this.conditions.hidden = !Array.isArray(list) || !list.length;
    if (this.conditions.hidden) return;
    this.conditions.replaceChildren(h('h2', null, 'Conditions'), h('ul', { class: 'conditions' }, ...list.map((/** @type {any} */ one) =>
      h('li', { 'data-status': one.status }, h('strong', null, `${one.type}: ${one.status}`), h('small', null, [one.reason, age(one.lastTransitionTime)].filter(Boolean).join(', ')),
        one.message && h('p', null, one.message)))));
  }

  showEvents() {
    const events = this.context.find('', 'events');
    if (!events || this.kind.plural === 'events') return;
    const list = h('ul', { class: 'events' });
    /** @type {Map<string, any>} */
    const found = new Map();
    const draw = () => {
      this.events.hidden = found.size === 0;
      const sorted = [...found.values()].sort((a, b) => Number(b.metadata.resourceVersion) - Number(a.metadata.resourceVersion)).slice(0, 12);
      list.replaceChildren(...sorted.map((event) => h('li', { 'data-type': event.type }, h('strong', null, event.reason ?? ''),
        h('small', null, `${event.type === 'Warning' ? 'warning, ' : ''}${age(event.lastTimestamp || event.eventTime || event.metadata.creationTimestamp)} ago${event.count > 1 ? `, ${event.count} times` : ''}, ${event.source?.component || event.reportingComponent || ''}`),
        h('p', null, event.message ?? event.note ?? ''))));
    };
    this.events.replaceChildren(h('h2', null, 'Events'), list);
    const fieldSelector = `involvedObject.uid=${this.object?.metadata.uid}`;
    this.eventStream = new Stream({ path: collection(events, this.namespace ?? 'default'), parameters: { fieldSelector } }, {
      page: (items, _, isFirst) => {
        if (isFirst) found.clear();
        items.forEach((item) => found.set(item.metadata.uid, item));
        draw();
      },
      event: (type, item) => {
        if (type === 'DELETED') found.delete(item.metadata.uid);
        else found.set(item.metadata.uid, item);
        draw();
      },
    }).start();
  }

  openTimeline() {
    location.hash = partLink('timeline', this.kind, this.namespace, this.name);
  }

  drawActions() {
    const { kind } = this;
    const button = (/** @type {string} */ text, /** @type {() => void} */ action, className = '') => h('button', { onclick: action, class: className }, text);
    const can = (/** @type {string} */ verb) => !this.isPast && kind.verbs.includes(verb);
    const hasTemplate = Boolean(this.object?.spec?.template?.spec?.containers) && kind.group === 'apps';
    const scale = kind.subresources.includes('scale') && can('patch') ? this.scaleForm() : null;
    this.actions.replaceChildren(...[
      kind.group !== 'lab.dogwatch.dev' && button('Timeline', () => this.openTimeline()),
      can('update') && button('Edit', () => this.edit('edit')),
      can('patch') && button('Apply', () => this.edit('apply')),
      scale,
      can('patch') && hasTemplate && button('Restart', () => this.restart()),
      kind.plural === 'secrets' && !kind.group && button('Show values', () => { this.showsSecrets = true; this.draw(); }),
      can('delete') && button('Delete', () => this.remove(), 'danger'),
    ].filter((one) => one instanceof Node));
    if (this.isPast) this.message.replaceChildren(h('p', { class: 'notice' }, 'This is the past: it can be read, not changed.'));
  }

  scaleForm() {
    const input = /** @type {HTMLInputElement} */ (h('input', { type: 'number', min: '0', max: '10000', 'aria-label': 'Replicas', value: String(this.object?.spec?.replicas ?? 1) }));
    return h('form', { class: 'scale', onsubmit: (/** @type {Event} */ event) => {
      event.preventDefault();
      this.change(`Scaled to ${input.value}.`, `${this.path()}/scale`, { method: 'PATCH', type: 'application/merge-patch+json', body: JSON.stringify({ spec: { replicas: Number(input.value) } }) });
    } }, input, h('button', null, 'Scale'));
  }

  restart() {
    const annotations = { 'kubectl.kubernetes.io/restartedAt': new Date().toISOString().replace(/\.\d+Z/, 'Z') };
    const body = JSON.stringify({ spec: { template: { metadata: { annotations } } } });
    this.change('Restarted: the pods are replaced.', this.path(), { method: 'PATCH', type: 'application/merge-patch+json', body });
  }

  async remove() {
    const what = `${this.kind.kind} ${this.name}`;
    if (await confirm(`Delete ${what}?`, 'The objects that it owns are deleted as well.', 'Delete')) {
      this.change('Deleted.', `${this.path()}?propagationPolicy=Background`, { method: 'DELETE' });
    }
  }

  path() {
    return address(this.kind, this.namespace, this.name);
  }

  /**
   * @param {string} done
   * @param {string} path
   * @param {RequestInit & { type?: string }} request
   */
  async change(done, path, request) {
    try {
      await json(`${path}${path.includes('?') ? '&' : '?'}fieldManager=dogwatch-console`, request);
      // The watch may have said already that the object is gone.
      if (!this.isGone) this.message.replaceChildren(h('p', { class: 'notice' }, done));
    } catch (failure) {
      this.refuse(failure);
    }
  }

  /** Shows a refusal as the server states it. @param {unknown} failure */
  refuse(failure) {
    const code = failure instanceof Refusal ? `${failure.code} ${failure.reason}` : '';
    this.message.replaceChildren(h('p', { class: 'trouble' }, h('strong', null, code), ` ${failure instanceof Error ? failure.message : failure}`));
  }

  /** @param {'edit' | 'apply'} mode */
  edit(mode) {
    if (!this.object || this.isPast) return;
    const { managedFields, ...metadata } = this.object.metadata;
    const { status, ...rest } = this.object;
    const whole = yaml({ apiVersion: this.object.apiVersion, kind: this.object.kind, ...rest, metadata });
    const { object } = this;
    const start = yaml({
      apiVersion: object.apiVersion,
      kind: object.kind,
      metadata: { name: this.name, ...(this.namespace ? { namespace: this.namespace } : {}) },
      ...(object.spec?.replicas === undefined ? {} : { spec: { replicas: object.spec.replicas } }),
    });
    this.editing.replaceChildren(editor({ mode, text: mode === 'edit' ? whole : start, path: this.path(), close: (done) => {
      this.editing.replaceChildren();
      if (done) this.message.replaceChildren(h('p', { class: 'notice' }, done));
    }, reload: () => this.edit(mode) }));
    this.editing.querySelector('textarea')?.focus();
  }
}

/**
 * @param {string} part
 * @param {Kind} kind
 * @param {string | undefined} namespace
 * @param {string} name
 */
export const partLink = (part, kind, namespace, name) => `#/${part}/${kind.group || 'core'}/${kind.plural}/${namespace || '_'}/${encodeURIComponent(name)}`;
