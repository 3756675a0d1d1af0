// The server's metrics: reads the text form, and adds up series.
import { send } from './api.js';

/** @typedef {{ name: string, labels: Record<string, string>, value: number }} Sample */

/**
 * @param {string} text
 * @returns {Sample[]}
 */
export function parse(text) {
  /** @type {Sample[]} */
  const samples = [];
  for (const line of text.split('\n')) {
    if (!line || line[0] === '#' || line.includes('_bucket{')) continue;
    const found = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)/.exec(line);
    if (!found) continue;
    /** @type {Record<string, string>} */
    const labels = {};
    for (const [, name, value] of (found[2] ?? '').matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)) labels[name] = value;
    samples.push({ name: found[1], labels, value: Number(found[3]) });
  }
  return samples;
}

/** @param {AbortSignal} [signal] */
export async function scrape(signal) {
  const answer = await send('/metrics', { accept: 'text/plain', signal });
  return { at: performance.now(), samples: parse(await answer.text()) };
}

/**
 * @param {Sample[]} samples
 * @param {string} name
 * @param {(labels: Record<string, string>) => boolean} [counts]
 */
export const sum = (samples, name, counts = () => true) =>
  samples.reduce((total, one) => (one.name === name && one.value > 0 && counts(one.labels) ? total + one.value : total), 0);

/**
 * Objects by `plural.group`.
 * @param {Sample[]} samples
 * @returns {Map<string, number>}
 */
export function objectCounts(samples) {
  const counts = new Map();
  for (const { name, labels, value } of samples) {
    // A server that has not counted yet reports -1.
    if (value < 0 || (name !== 'apiserver_storage_objects' && name !== 'apiserver_resource_objects')) continue;
    // Newer servers name the group in a label of its own, older ones in the resource.
    const key = labels.group !== undefined ? (labels.group ? `${labels.resource}.${labels.group}` : labels.resource) : labels.resource;
    counts.set(key, value);
  }
  return counts;
}
