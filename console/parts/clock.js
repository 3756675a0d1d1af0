// The clock of the lab: stop time, and move it. It is never set back, so that it runs on from where it stands.
import { address, collection, json } from '../api.js';
import { h, setText } from '../dom.js';
import { Stream } from '../stream.js';

/** @typedef {import('../api.js').Kind} Kind */
/** @typedef {import('./lab.js').Lab} Lab */

/**
 * @param {Lab} lab
 * @param {Kind} kind
 */
export function showClock(lab, kind) {
  const now = h('p', { class: 'version' }, '…');
  const next = h('p', null);
  const patch = (/** @type {any} */ spec, /** @type {string} */ done) =>
    lab.attempt(json(address(kind, undefined, 'world'), { method: 'PATCH', type: 'application/merge-patch+json', body: JSON.stringify({ spec }) }), done);
  const put = (/** @type {any} */ clock) => {
    setText(now, `${clock.spec?.mode ?? 'Real'}${clock.spec?.rate ? ` × ${clock.spec.rate}` : ''}${clock.status?.now ? `, ${clock.status.now}` : ''}`);
    setText(next, clock.status?.next ? `Next: ${clock.status.next.who} at ${clock.status.next.at}` : '');
  };
  lab.streams.push(new Stream({ path: collection(kind) }, { page: ([clock]) => clock && put(clock), event: (_, clock) => put(clock) }).start());
  const button = (/** @type {string} */ text, /** @type {any} */ spec, /** @type {string} */ done) => h('button', { onclick: () => patch(spec, done) }, text);
  lab.place.append(h('section', null, h('h2', null, 'Clock'), now, next, h('div', { class: 'actions' },
    button('Stop', { mode: 'Stopped' }, 'The clock stands.'), button('Run', { mode: 'Scaled', rate: 1 }, 'The clock runs.'), button('One minute on', { advance: '1m' }, 'A minute has passed.'),
    button('To what is next', { advanceToNext: true }, 'The next thing that was due has happened.'))));
}
