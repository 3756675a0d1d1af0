// Objects: the server's own table of a kind, live, or as of a revision. Filters are sent to the server.
import { FORMS, Refusal, collection, groupVersion, json, query } from '../api.js';
import { h, setText } from '../dom.js';
import { Stream } from '../stream.js';
import { LiveTable } from '../table.js';

/** @typedef {import('../api.js').Kind} Kind */

/** Pause after the last key before a filter is sent. */
const TYPING_MS = 250;
/** The filter of each kind, kept while the page lives. @type {Map<string, string>} */
const filters = new Map();

/**
 * Reads a filter: `ns:shop` is a namespace, `app=web` a label selector, `status.phase=Running` a field selector, another word a name.
 * @param {string} text
 */
export function readFilter(text) {
  const [labels, fields] = [/** @type {string[]} */ ([]), /** @type {string[]} */ ([])];
  let namespace = '';
  for (const word of text.split(/\s+/).filter(Boolean)) {
    const key = /^([^=!]+)(?:=|!=|==)/.exec(word)?.[1];
    if (word.startsWith('ns:')) namespace = word.slice(3);
    else if (key && /^[a-zA-Z]+(\.[a-zA-Z]+)+$/.test(key)) fields.push(word);
    else if (key || word.startsWith('!') || /^[\w./-]+\(/.test(word)) labels.push(word);
    else fields.push(`metadata.name=${word}`);
  }
  return { namespace, labelSelector: labels.join(','), fieldSelector: fields.join(',') };
}

/** @type {import('../main.js').Part} */
export function showObjects(place, context, [group = 'core', plural = 'pods']) {
  const kind = context.find(group === 'core' ? '' : group, plural);
  if (!kind) {
    place.append(h('h1', null, plural), h('p', { class: 'empty' }, 'The server has no such kind. Press : to choose another.'));
    return undefined;
  }
  const key = `${group}/${plural}`;
  const input = /** @type {HTMLInputElement} */ (h('input', {
    type: 'search', id: 'filter', placeholder: kind.namespaced ? 'ns:default  app=web  status.phase=Running  name' : 'app=web  name',
    'aria-label': 'Filter: namespace, labels, fields or name', spellcheck: 'false', autocomplete: 'off', value: filters.get(key) ?? '',
  }));
  const sent = h('code', { class: 'sent' });
  const state = h('span', { class: 'state', role: 'status' });
  const number = h('span', { class: 'total' });
  const trouble = h('p', { class: 'trouble', role: 'alert', hidden: true });
  const table = /** @type {LiveTable} */ (document.createElement('live-table'));
  table.setAttribute('label', kind.plural);
  const empty = h('p', { class: 'empty', hidden: true });
  place.classList.add('fixed');
  place.append(
    h('div', { class: 'title' }, h('h1', null, kind.plural), h('span', { class: 'version' }, groupVersion(kind)), number, state),
    h('div', { class: 'filter' }, input, sent), trouble, empty, table);
  table.onopen = (row) => { location.hash = context.link(kind, row.metadata.namespace, row.metadata.name); };
  const count = () => {
    setText(number, `${table.rows.size} ${table.rows.size === 1 ? 'object' : 'objects'}`);
    empty.hidden = table.rows.size > 0 || !isListed;
  };
  table.onchange = count;

  /** @type {Stream | undefined} */
  let stream;
  let isListed = false;
  const refuse = (/** @type {string} */ why) => {
    trouble.hidden = !why;
    setText(trouble, why);
  };
  const start = () => {
    stream?.stop();
    table.clear();
    isListed = false;
    empty.hidden = true;
    refuse('');
    const { namespace, ...selectors } = readFilter(input.value);
    const path = collection(kind, namespace);
    const revision = context.rail.revision;
    setText(sent, `GET ${path}${query(selectors) && `?${decodeURIComponent(query(selectors))}`}`);
    setText(empty, input.value ? 'Nothing matches the filter.' : `There are no ${kind.plural}${revision === null ? ' yet' : ' at this revision'}.`);
    table.showsNamespace = kind.namespaced && !namespace;
    const listed = () => {
      isListed = true;
      table.listed();
      count();
    };
    if (revision !== null && kind.group !== 'lab.dogwatch.dev') {
      setText(state, '');
      readExactly(path, selectors, revision, table).then(listed, (failure) => refuse(explain(failure, kind)));
      return;
    }
    stream = new Stream({ path, parameters: selectors, accept: FORMS.table }, {
      page: (rows, columns, isFirst) => table.page(rows, columns, isFirst),
      listed,
      event: (type, row) => table.event(type, row),
      revision: (seen) => kind.group !== 'lab.dogwatch.dev' && context.rail.seen(Number(seen)),
      state: (name, detail) => {
        setText(state, { listing: 'listing', watching: 'watching', waiting: 'reconnecting', refused: 'refused', stopped: '' }[name]);
        state.dataset.state = name;
        refuse(name === 'refused' || name === 'waiting' ? detail : '');
      },
    }).start();
  };
  let timer = 0;
  input.addEventListener('input', () => {
    filters.set(key, input.value);
    clearTimeout(timer);
    timer = setTimeout(start, TYPING_MS);
  });
  input.addEventListener('keydown', (event) => {
    if (event.key === 'Enter' || event.key === 'Escape') table.scroller?.focus();
  });
  start();
  return {
    stop: () => {
      stream?.stop();
      clearTimeout(timer);
      place.classList.remove('fixed');
    },
    keys: { '/': () => input.select(), j: () => table.move(1), k: () => table.move(-1), Enter: () => table.openSelected() },
  };
}

/**
 * Lists the objects as they were at a revision.
 * @param {string} path
 * @param {Record<string, string>} selectors
 * @param {number} revision
 * @param {LiveTable} table
 */
async function readExactly(path, selectors, revision, table) {
  const parameters = { ...selectors, resourceVersion: revision, resourceVersionMatch: 'Exact' };
  const list = await json(`${path}?${query(parameters)}`, { accept: FORMS.table });
  table.page(list.rows ?? [], list.columnDefinitions ?? [], true);
}

/**
 * @param {unknown} failure
 * @param {Kind} kind
 */
function explain(failure, kind) {
  if (failure instanceof Refusal && failure.code === 410) return `The history of ${kind.plural} does not reach back so far: ${failure.message}`;
  return failure instanceof Refusal ? failure.message : 'the connection broke';
}
