// List, then watch: keeps a reader in step with a collection, whatever happens to the connection.
//
//   list ──► watch ──► ended ──────► watch from the last revision seen
//    ▲         │  └──► broken ─────► wait, watch from the last revision seen
//    │         └─────► 410 Gone ───┐
//    └─────────────────────────────┘ the server no longer has that revision: begin again
//
// A bookmark is an event without an object. It moves the last revision seen, so that a quiet watch can resume as well.
// The list comes in pages, so that the first rows are there before the last ones are read.
import { FORMS, Refusal, json, query, send } from './api.js';

/**
 * What a stream reports. An item is an object, or a row of a table.
 * @typedef {object} Reader
 * @property {(items: any[], columns: any[], isFirstPage: boolean) => void} page part of a list; the first one replaces everything
 * @property {(revision: string) => void} [listed] the list is complete
 * @property {(type: 'ADDED' | 'MODIFIED' | 'DELETED', item: any, revision: string) => void} event
 * @property {(state: State, detail: string) => void} [state]
 * @property {(revision: string) => void} [revision] the last revision seen
 */

/** @typedef {'listing' | 'watching' | 'waiting' | 'refused' | 'stopped'} State */

/**
 * @typedef {object} Source
 * @property {string} path the path of a collection
 * @property {Record<string, string | undefined>} [parameters] selectors
 * @property {string} [accept] the form of the answers
 * @property {string} [from] a revision to watch from, without a list before
 */

/** Items of a page of a list. The first rows of a page should be there soon. */
const PAGE_ITEMS = 500;
/** The server ends a watch after so long, and the stream begins the next one: a token is renewed by then. */
const WATCH_SECONDS = 290;
const SHORT_WATCH_MS = 500;
const BACKOFF_MS_MIN = 250;
const BACKOFF_MS_MAX = 8000;

export class Stream {
  /**
   * @param {Source} source
   * @param {Reader} reader
   */
  constructor(source, reader) {
    this.source = source;
    this.reader = reader;
    /** The last revision seen; empty before the first list. */
    this.revision = source.from ?? '';
    /** How often it listed and watched, for those who want to see it. */
    this.counts = { lists: 0, watches: 0, events: 0, bookmarks: 0 };
    this.backoff = BACKOFF_MS_MIN;
    this.abort = new AbortController();
    this.wake = () => {};
  }

  start() {
    this.run();
    return this;
  }

  stop() {
    this.abort.abort();
    this.wake();
    this.say('stopped', '');
  }

  /** Ends the current connection only, as a network would. */
  cut() {
    this.connection?.abort();
  }

  async run() {
    while (!this.abort.signal.aborted) {
      try {
        if (!this.revision) await this.list();
        const began = Date.now();
        await this.watch();
        // A server that ends each watch at once is not asked again at once.
        if (Date.now() - began < SHORT_WATCH_MS) await this.pause(this.backoff);
      } catch (failure) {
        if (this.abort.signal.aborted) return;
        await this.recover(failure);
      }
    }
  }

  /** Reads the whole collection, in pages of one revision. */
  async list() {
    this.say('listing', '');
    this.counts.lists += 1;
    let next = '';
    let revision = '';
    let isFirstPage = true;
    do {
      const parameters = { ...this.source.parameters, limit: String(PAGE_ITEMS), continue: next };
      const list = await json(`${this.source.path}?${query(parameters)}`, { accept: this.accept(), signal: this.abort.signal });
      this.reader.page(list.rows ?? list.items ?? [], list.columnDefinitions ?? [], isFirstPage);
      next = list.metadata.continue ?? '';
      revision ||= list.metadata.resourceVersion;
      isFirstPage = false;
    } while (next);
    this.seen(revision);
    this.reader.listed?.(revision);
  }

  /** Reads changes until the server ends the watch. */
  async watch() {
    this.connection = new AbortController();
    const signal = AbortSignal.any([this.abort.signal, this.connection.signal]);
    const parameters = {
      ...this.source.parameters,
      watch: '1',
      allowWatchBookmarks: 'true',
      resourceVersion: this.revision,
      timeoutSeconds: String(WATCH_SECONDS),
    };
    const answer = await send(`${this.source.path}?${query(parameters)}`, { accept: this.accept(), signal });
    this.counts.watches += 1;
    this.say('watching', '');
    for await (const line of lines(answer)) this.receive(JSON.parse(line));
  }

  /** @param {{ type: string, object: any }} event */
  receive(event) {
    // An error in the stream is a Status, like the answer to a refused request.
    if (event.type === 'ERROR') throw new Refusal(event.object);
    this.backoff = BACKOFF_MS_MIN;
    const items = event.object.rows ?? [event.object];
    const revision = event.object.metadata?.resourceVersion || items[0]?.object?.metadata?.resourceVersion;
    this.seen(revision);
    if (event.type === 'BOOKMARK') {
      this.counts.bookmarks += 1;
      return;
    }
    this.counts.events += 1;
    for (const item of items) this.reader.event(/** @type {any} */ (event.type), item, revision);
  }

  /** @param {unknown} failure */
  async recover(failure) {
    if (failure instanceof Refusal && (failure.code === 410 || failure.reason === 'Expired')) {
      this.revision = '';
      this.say('listing', failure.message);
      return;
    }
    const message = failure instanceof Refusal ? failure.message : 'the connection broke';
    // These do not change by asking again soon.
    const isFinal = failure instanceof Refusal && [400, 403, 404, 405, 406].includes(failure.code);
    this.say(isFinal ? 'refused' : 'waiting', message);
    await this.pause(isFinal ? BACKOFF_MS_MAX : this.backoff * (0.5 + Math.random()));
  }

  /** Waits, longer each time until an event arrives. @param {number} ms */
  pause(ms) {
    this.backoff = Math.min(this.backoff * 2, BACKOFF_MS_MAX);
    return new Promise((resolve) => {
      this.wake = () => resolve(undefined);
      setTimeout(resolve, ms);
    });
  }

  /** @param {string | undefined} revision */
  seen(revision) {
    if (!revision) return;
    this.revision = revision;
    this.reader.revision?.(revision);
  }

  /**
   * @param {State} state
   * @param {string} detail
   */
  say(state, detail) {
    this.reader.state?.(state, detail);
  }

  accept() {
    return this.source.accept ?? FORMS.plain;
  }
}

/**
 * The lines of an answer as they arrive. What is not a whole line at the end was cut off and is dropped.
 * @param {Response} answer
 */
export async function* lines(answer) {
  const reader = /** @type {ReadableStream<Uint8Array>} */ (answer.body).getReader();
  const decoder = new TextDecoder();
  let rest = '';
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const parts = (rest + decoder.decode(value, { stream: true })).split('\n');
      rest = parts.pop() ?? '';
      for (const part of parts) if (part) yield part;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
