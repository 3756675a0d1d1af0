// Settle: ask the server when it is quiet, and who is not.
import { collection, json } from '../api.js';
import { h } from '../dom.js';

/** @typedef {import('../api.js').Kind} Kind */
/** @typedef {import('./lab.js').Lab} Lab */

const VERSION = 'lab.dogwatch.dev/v1';

/**
 * @param {Lab} lab
 * @param {Kind} kind
 */
export function showSettle(lab, kind) {
  const answer = h('p', { role: 'status' }, 'A controller is done when nothing is written for a while and every watch has been sent all that concerns it.');
  const busy = h('pre', { class: 'busy', hidden: true });
  const ask = async () => {
    answer.textContent = 'Waiting until nothing has been written for half a second, ten seconds at most…';
    busy.hidden = true;
    const body = JSON.stringify({ apiVersion: VERSION, kind: kind.kind, spec: { quiet: '500ms', timeout: '10s' } });
    const { status } = await json(collection(kind), { method: 'POST', type: 'application/json', body });
    answer.textContent = status.settled
      ? `Settled at revision ${status.revision} after ${status.waited}, with ${status.changes ?? 0} changes.`
      : `Not settled after ${status.waited}: ${status.changes ?? 0} changes.`;
    const rest = { ...(status.busy && { busy: status.busy }), ...(status.unmet?.length && { unmet: status.unmet }) };
    busy.hidden = Object.keys(rest).length === 0;
    busy.textContent = JSON.stringify(rest, null, 2);
  };
  lab.place.append(h('section', null, h('h2', null, 'Settle'), answer, busy,
    h('div', { class: 'actions' }, h('button', { onclick: () => lab.attempt(ask(), 'The server has answered.') }, 'Wait until it is quiet'))));
}
