// Where history begins: the oldest revision of a collection that the server can still show.
import { json } from './api.js';

/**
 * Asks for ever older revisions, halving the distance: the protocol has no other way to learn it.
 * @param {string} path of a collection
 * @param {number} newest
 * @returns {Promise<number>}
 */
export async function oldestRevision(path, newest) {
  let [gone, kept] = [0, newest];
  while (kept - gone > 1) {
    const middle = Math.floor((gone + kept) / 2);
    try {
      await json(`${path}?limit=1&resourceVersion=${middle}&resourceVersionMatch=Exact`);
      kept = middle;
    } catch {
      gone = middle;
    }
  }
  return kept;
}
