// The tree of an object: its owners above it, and below it what it owns, of any kind.
import { FORMS, collection, groupVersion, json, query } from '../api.js';
import { h } from '../dom.js';

/** @typedef {import('../api.js').Kind} Kind */
/** @typedef {import('../api.js').Metadata} Metadata */
/** @typedef {{ kind: Kind, metadata: Metadata }} Node_ */

/** Objects of the tree that are drawn. */
const NODES_MAX = 60;

/**
 * Every object of the namespace with its owners: metadata only.
 * @param {import('../main.js').Context} context
 * @param {string | undefined} namespace
 * @param {number | null} revision
 * @returns {Promise<Node_[]>}
 */
export async function owned(context, namespace, revision) {
  const kinds = context.kinds.filter((kind) => kind.namespaced === Boolean(namespace) && kind.group !== 'lab.dogwatch.dev' && kind.plural !== 'events' && kind.verbs.includes('delete'));
  const at = revision === null ? {} : { resourceVersion: revision, resourceVersionMatch: 'Exact' };
  const lists = await Promise.all(kinds.map((kind) => json(`${collection(kind, namespace)}?${query(at)}`, { accept: FORMS.partial })
    .then((list) => (list.items ?? []).map((/** @type {any} */ item) => ({ kind, metadata: item.metadata })), () => [])));
  return lists.flat();
}

/**
 * @param {HTMLElement} section
 * @param {import('../main.js').Context} context
 * @param {import('../api.js').Thing} object
 * @param {Kind} kind
 */
export async function showTree(section, context, object, kind) {
  const all = await owned(context, object.metadata.namespace, context.rail.revision);
  /** @type {Map<string, Node_[]>} */
  const children = new Map();
  for (const one of all) {
    for (const { uid } of one.metadata.ownerReferences ?? []) children.set(uid, [...(children.get(uid) ?? []), one]);
  }
  let left = NODES_MAX;
  const branch = (/** @type {Node_} */ node, /** @type {boolean} */ isHere) => {
    left -= 1;
    const below = children.get(node.metadata.uid ?? '') ?? [];
    const label = [h('small', null, node.kind.kind), ' ', isHere ? h('strong', { 'aria-current': 'true' }, node.metadata.name) : h('a', { href: context.link(node.kind, node.metadata.namespace, node.metadata.name) }, node.metadata.name)];
    /** @type {HTMLElement} */
    const item = h('li', null, ...label);
    const shown = below.slice(0, Math.max(0, left));
    if (shown.length) item.append(h('ul', null, ...shown.map((one) => branch(one, false))));
    if (shown.length < below.length) item.append(h('small', null, ` and ${below.length - shown.length} more`));
    return item;
  };
  let item = branch({ kind, metadata: object.metadata }, true);
  let top = object.metadata;
  // Owners one above the other; a loop of owners ends at the bound.
  for (let depth = 0; depth < 10; depth += 1) {
    const owner = top.ownerReferences?.find((one) => one.controller) ?? top.ownerReferences?.[0];
    if (!owner) break;
    const found = all.find((one) => one.metadata.uid === owner.uid);
    const ownerKind = found?.kind ?? context.kinds.find((one) => one.kind === owner.kind && groupVersion(one) === owner.apiVersion);
    const name = ownerKind ? h('a', { href: context.link(ownerKind, found ? found.metadata.namespace : ownerKind.namespaced ? top.namespace : undefined, owner.name) }, owner.name) : owner.name;
    item = h('li', null, h('small', null, owner.kind), ' ', name, h('ul', null, item));
    if (!found) break;
    top = found.metadata;
  }
  section.hidden = !section.isConnected || (item.querySelector('ul') === null);
  section.replaceChildren(h('h2', null, 'Owners and owned'), h('ul', { class: 'tree' }, item));
}
