// Editing an object as text: the whole of it with an update, or some fields with a server-side apply. The server reads the YAML.
import { Refusal, json } from '../api.js';
import { h } from '../dom.js';

const MANAGER = 'dogwatch-console';

/**
 * @param {{ mode: 'edit' | 'apply', text: string, path: string, close: (done: string) => void, reload: () => void }} options
 */
export function editor({ mode, text, path, close, reload }) {
  const area = /** @type {HTMLTextAreaElement} */ (h('textarea', { spellcheck: 'false', rows: mode === 'edit' ? '20' : '10', 'aria-label': 'YAML to send' }));
  area.value = text;
  const answer = h('div', { role: 'alert' });
  const send = async (/** @type {boolean} */ isForced) => {
    try {
      if (mode === 'edit') await json(`${path}?fieldManager=${MANAGER}`, { method: 'PUT', type: 'application/yaml', body: area.value });
      else await json(`${path}?fieldManager=${MANAGER}${isForced ? '&force=true' : ''}`, { method: 'PATCH', type: 'application/apply-patch+yaml', body: area.value });
      close(mode === 'edit' ? 'Updated.' : 'Applied: these fields are now those of dogwatch-console.');
    } catch (failure) {
      answer.replaceChildren(...refusal(failure, mode, () => send(true), reload));
    }
  };
  return h('section', { class: 'editor' },
    h('h2', null, mode === 'edit' ? 'Edit' : 'Apply'),
    h('p', null, mode === 'edit'
      ? 'The whole object is sent with the revision that you see; if it changed meanwhile, the server refuses it.'
      : 'The fields below become those of the manager dogwatch-console; others stay as they are. A field of another manager is a conflict, and you choose.'),
    area, answer,
    h('div', { class: 'actions' }, h('button', { class: 'main', onclick: () => send(false) }, mode === 'edit' ? 'Update' : 'Apply'), h('button', { onclick: () => close('') }, 'Cancel')));
}

/**
 * @param {unknown} failure
 * @param {string} mode
 * @param {() => void} force
 * @param {() => void} reload
 * @returns {Node[]}
 */
function refusal(failure, mode, force, reload) {
  const isRefusal = failure instanceof Refusal;
  const head = h('p', { class: 'trouble' }, h('strong', null, isRefusal ? `${failure.code} ${failure.reason}` : 'Failed'), ` ${failure instanceof Error ? failure.message : failure}`);
  if (!isRefusal || failure.code !== 409) return [head];
  if (mode === 'edit') return [head, h('div', { class: 'actions' }, h('button', { onclick: reload }, 'Start again from the new version'))];
  const causes = failure.status.details?.causes ?? [];
  return [head,
    h('table', { class: 'plain-table' }, h('thead', null, h('tr', null, h('th', null, 'Field'), h('th', null, 'Owner'))),
      h('tbody', null, ...causes.map((/** @type {any} */ cause) => h('tr', null, h('td', null, h('code', null, cause.field)), h('td', null, /"([^"]+)"/.exec(cause.message)?.[1] ?? cause.message))))),
    h('div', { class: 'actions' }, h('button', { class: 'danger', onclick: force }, 'Take these fields over'), h('span', null, 'or change the text and apply again'))];
}
