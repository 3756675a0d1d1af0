// Dialogs: choose a kind, the keys, and a question before something is deleted.
import { h } from './dom.js';

const KEYS = [
  ['1 – 5', 'objects, timeline, the loop, lab, learn'], [':', 'go to a kind'], ['/', 'filter'], ['j k', 'next and previous row'],
  ['Enter', 'open the row'], ['Esc', 'leave a field, close a dialog'], ['[ ]', 'one revision back or forward'], ['=', 'back to live'],
  ['e', 'edit the object'], ['a', 'apply fields to the object'], ['t', 'its timeline'], ['?', 'this help'],
];

/** @param {...Node} content */
function dialog(...content) {
  const element = /** @type {HTMLDialogElement} */ (h('dialog', null, ...content));
  element.addEventListener('close', () => element.remove());
  document.body.append(element);
  element.showModal();
  return element;
}

export function showHelp() {
  const element = dialog(h('h2', null, 'Keys'), h('dl', { class: 'keys' }, ...KEYS.flatMap(([key, text]) => [h('dt', null, ...key.split(' ').map((one) => h('kbd', null, one))), h('dd', null, text)])),
    h('div', { class: 'actions' }, h('button', { onclick: () => element.close() }, 'Close')));
}

/**
 * Asks before something that cannot be undone.
 * @param {string} title
 * @param {string} text
 * @param {string} action
 * @returns {Promise<boolean>}
 */
export function confirm(title, text, action) {
  return new Promise((resolve) => {
    const element = dialog(h('h2', null, title), h('p', null, text), h('div', { class: 'actions' },
      h('button', { onclick: () => element.close() }, 'Cancel'),
      h('button', { class: 'danger', onclick: () => { resolve(true); element.close(); } }, action)));
    element.addEventListener('close', () => resolve(false));
  });
}

/** @param {import('./main.js').Context} context */
export function chooseKind(context) {
  const input = /** @type {HTMLInputElement} */ (h('input', { 'aria-label': 'Kind', placeholder: 'pods, deploy, …', autocomplete: 'off', spellcheck: 'false' }));
  const list = h('ul', { class: 'choices' });
  const element = dialog(h('h2', null, 'Go to a kind'), input, list);
  /** @type {import('./api.js').Kind[]} */
  let found = [];
  const go = (/** @type {import('./api.js').Kind | undefined} */ kind) => {
    if (!kind) return;
    element.close();
    location.hash = `#/objects/${kind.group || 'core'}/${kind.plural}`;
  };
  const draw = () => {
    const word = input.value.trim().toLowerCase();
    const rank = (/** @type {import('./api.js').Kind} */ kind) =>
      kind.shortNames.includes(word) || kind.plural === word ? 0 : kind.plural.startsWith(word) ? 1 : 2;
    found = context.kinds
      .filter((kind) => [kind.plural, kind.kind.toLowerCase(), kind.group, ...kind.shortNames].some((text) => text.includes(word)))
      .sort((a, b) => rank(a) - rank(b)).slice(0, 10);
    list.replaceChildren(...found.map((kind) => h('li', null, h('button', { onclick: () => go(kind) },
      h('span', null, kind.plural), h('small', null, [kind.group || 'core', ...kind.shortNames].join(' · '))))));
    if (!found.length) list.replaceChildren(h('li', { class: 'empty' }, 'No kind of this server has that name.'));
  };
  input.addEventListener('input', draw);
  input.addEventListener('keydown', (event) => {
    if (event.key === 'Enter') go(found[0]);
  });
  draw();
}
