// The Kubernetes API: requests with the page's token, errors as the server states them, and which kinds there are.
import { bearer } from './session.js';

/**
 * A kind that the server serves.
 * @typedef {object} Kind
 * @property {string} group empty for the core group
 * @property {string} version
 * @property {string} plural
 * @property {string} kind
 * @property {boolean} namespaced
 * @property {string[]} verbs
 * @property {string[]} shortNames
 * @property {string[]} subresources
 */

/**
 * An object of any kind.
 * @typedef {{ apiVersion?: string, kind?: string, metadata: Metadata, spec?: any, status?: any, [field: string]: any }} Thing
 */

/**
 * @typedef {{ name: string, namespace?: string, uid?: string, resourceVersion?: string, creationTimestamp?: string,
 *   deletionTimestamp?: string, generation?: number, labels?: Record<string, string>, annotations?: Record<string, string>,
 *   ownerReferences?: { apiVersion: string, kind: string, name: string, uid: string, controller?: boolean }[],
 *   managedFields?: any[], [field: string]: any }} Metadata
 */

/** A refusal of the server: its Status. */
export class Refusal extends Error {
  /** @param {{ code?: number, reason?: string, message?: string, details?: any }} status */
  constructor(status) {
    super(status.message || status.reason || 'the server gave no reason');
    this.status = status;
    this.code = status.code ?? 0;
    this.reason = status.reason ?? '';
  }
}

/**
 * Sends a request. A refusal of the server is thrown as a `Refusal`.
 * @param {string} path
 * @param {RequestInit & { accept?: string, type?: string }} [options]
 * @returns {Promise<Response>}
 */
export async function send(path, options = {}) {
  const headers = new Headers(options.headers);
  headers.set('Accept', options.accept ?? 'application/json');
  if (bearer()) headers.set('Authorization', bearer());
  if (options.type) headers.set('Content-Type', options.type);
  const answer = await fetch(path, { ...options, headers, cache: 'no-store' });
  if (answer.ok) return answer;
  const text = await answer.text();
  let status;
  try {
    status = JSON.parse(text);
  } catch {
    status = { message: text.trim() };
  }
  throw new Refusal({ code: answer.status, ...status });
}

/**
 * @param {string} path
 * @param {RequestInit & { accept?: string, type?: string }} [options]
 * @returns {Promise<any>}
 */
export const json = async (path, options) => (await send(path, options)).json();

/**
 * @param {Record<string, string | number | boolean | undefined>} parameters empty ones are omitted
 */
export function query(parameters) {
  const given = Object.entries(parameters).filter(([, value]) => value !== undefined && value !== '' && value !== false);
  return new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
}

/**
 * The path of the objects of a kind, in a namespace or in all.
 * @param {Kind} kind
 * @param {string} [namespace]
 */
export function collection(kind, namespace) {
  const group = kind.group ? `/apis/${kind.group}/${kind.version}` : `/api/${kind.version}`;
  return `${group}${kind.namespaced && namespace ? `/namespaces/${encodeURIComponent(namespace)}` : ''}/${kind.plural}`;
}

/**
 * @param {Kind} kind
 * @param {string | undefined} namespace
 * @param {string} name
 */
export const address = (kind, namespace, name) => `${collection(kind, namespace)}/${encodeURIComponent(name)}`;

/** @param {Kind} kind */
export const groupVersion = (kind) => (kind.group ? `${kind.group}/${kind.version}` : kind.version);

const AGGREGATED = 'application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList';

/**
 * Every kind that can be listed, in the preferred version of its group.
 * @returns {Promise<Kind[]>}
 */
export async function discover() {
  const lists = await Promise.all(['/api', '/apis'].map((path) => json(path, { accept: AGGREGATED })));
  /** @type {Kind[]} */
  const kinds = [];
  for (const group of lists.flatMap((list) => list.items)) {
    for (const [index, version] of group.versions.entries()) {
      for (const resource of version.resources ?? []) {
        const kind = {
          group: group.metadata?.name ?? '',
          version: version.version,
          plural: resource.resource,
          kind: resource.responseKind?.kind ?? resource.resource,
          namespaced: resource.scope === 'Namespaced',
          verbs: resource.verbs ?? [],
          shortNames: resource.shortNames ?? [],
          subresources: (resource.subresources ?? []).map((/** @type {any} */ one) => one.subresource),
        };
        const isKnown = index > 0 && kinds.some((one) => one.group === kind.group && one.plural === kind.plural);
        if (!isKnown) kinds.push(kind);
      }
    }
  }
  return kinds;
}

const TABLE = 'application/json;as=Table;v=v1;g=meta.k8s.io,application/json';
const PARTIAL = 'application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json';
export const FORMS = { table: TABLE, partial: PARTIAL, plain: 'application/json' };
