// Who owns which field: reads managedFields, and gives each manager a letter and a colour.

/**
 * @typedef {{ name: string, operation: string, subresource: string, time: string, letter: string, colour: number }} Manager
 */

/**
 * The managers of an object, oldest first. Colour and letter follow from the name, so that they are the same everywhere.
 * @param {any[] | undefined} managedFields
 * @returns {Manager[]}
 */
export function managers(managedFields) {
  /** @type {Set<string>} */
  const letters = new Set();
  return (managedFields ?? []).map((entry) => {
    const name = entry.manager ?? 'unknown';
    return { name, operation: entry.operation, subresource: entry.subresource ?? '', time: entry.time ?? '', letter: letterOf(name, letters), colour: colourOf(name) };
  });
}

/**
 * The first letter of the name that no other name of the object has.
 * @param {string} name
 * @param {Set<string>} taken as `L name`
 */
function letterOf(name, taken) {
  const words = [...name.replace(/^(dogwatch|kube)[/-]/, '').toUpperCase().replace(/[^A-Z]/g, ''), ...'ABCDEFGHIJKLMNOPQRSTUVWXYZ'];
  const mine = [...taken].find((one) => one.slice(2) === name);
  if (mine) return mine[0];
  const letter = words.find((one) => ![...taken].some((other) => other[0] === one)) ?? '·';
  taken.add(`${letter} ${name}`);
  return letter;
}

/** @param {string} name */
export function colourOf(name) {
  let hash = 7;
  for (const character of name) hash = (hash * 31 + character.charCodeAt(0)) % 9973;
  return hash % 8;
}

/**
 * The manager of each path, the last writer of a shared one.
 * @param {any} object
 * @returns {Map<string, Manager>}
 */
export function ownersByPath(object) {
  const list = managers(object.metadata?.managedFields);
  /** @type {Map<string, Manager>} */
  const owners = new Map();
  (object.metadata?.managedFields ?? []).forEach((/** @type {any} */ entry, /** @type {number} */ index) =>
    walk(entry.fieldsV1 ?? {}, object, '', list[index], owners));
  return owners;
}

/**
 * @param {Record<string, any>} fields
 * @param {any} value
 * @param {string} path
 * @param {Manager} manager
 * @param {Map<string, Manager>} owners
 */
function walk(fields, value, path, manager, owners) {
  for (const [key, inner] of Object.entries(fields)) {
    const [at, next] = step(key, value, path);
    if (at === undefined) continue;
    const isLeaf = Object.keys(inner).length === 0;
    if (isLeaf || inner['.'] !== undefined) owners.set(at, manager);
    if (!isLeaf) walk(inner, next, at, manager, owners);
  }
}

/**
 * @param {string} key `f:NAME` is a field, `k:{…}` the entry of a list with these keys, `v:VALUE` one of a set
 * @param {any} value
 * @param {string} path
 * @returns {[string | undefined, any]}
 */
function step(key, value, path) {
  if (key.startsWith('f:')) return [`${path}.${key.slice(2)}`, value?.[key.slice(2)]];
  if (!Array.isArray(value)) return [undefined, undefined];
  if (key.startsWith('v:')) {
    const wanted = JSON.parse(key.slice(2));
    const index = value.findIndex((one) => one === wanted);
    return index < 0 ? [undefined, undefined] : [`${path}[${index}]`, value[index]];
  }
  if (!key.startsWith('k:')) return [undefined, undefined];
  const wanted = Object.entries(JSON.parse(key.slice(2)));
  const index = value.findIndex((one) => wanted.every(([name, part]) => one?.[name] === part));
  return index < 0 ? [undefined, undefined] : [`${path}[${index}]`, value[index]];
}

/**
 * The owner of a line: of its own path, or of the nearest field above that is owned as a whole.
 * @param {Map<string, Manager>} owners
 * @param {string} path
 */
export function ownerOf(owners, path) {
  for (let at = path; at; at = at.replace(/(\.[^.[]*|\[\d+\])$/, '')) {
    const owner = owners.get(at);
    if (owner) return owner;
    if (!/[.[]/.test(at.slice(1))) return undefined;
  }
  return undefined;
}

/**
 * Who wrote this version: a manager that is new, or whose entry has a new time. One that only lost fields did not write.
 * @param {any} before
 * @param {any} after
 * @returns {string}
 */
export function writer(before, after) {
  /** @param {any} entry */
  const key = (entry) => `${entry.manager} ${entry.operation} ${entry.subresource ?? ''}`;
  /** @type {Map<string, any>} */
  const known = new Map((before?.metadata?.managedFields ?? []).map((/** @type {any} */ entry) => [key(entry), entry]));
  /** @param {any} entry */
  const rank = (entry) => {
    const old = known.get(key(entry));
    if (!old) return 3;
    if (old.time !== entry.time) return 2;
    return JSON.stringify(old.fieldsV1) === JSON.stringify(entry.fieldsV1) ? 0 : 1;
  };
  const [latest] = (after.metadata?.managedFields ?? []).toSorted((/** @type {any} */ a, /** @type {any} */ b) => rank(b) - rank(a) || ((a.time ?? '') < (b.time ?? '') ? 1 : -1));
  return latest?.manager ?? 'unknown';
}
