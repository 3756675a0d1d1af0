// Requests of a lesson, and the bytes that come back as they come.
import { h } from '../dom.js';
import { lines } from '../stream.js';

/** Lines that stay visible. */
const LINES_MAX = 300;

export class Wire {
  /** @param {() => string} bearer */
  constructor(bearer) {
    this.bearer = bearer;
    this.element = h('div', { class: 'wire', role: 'log', 'aria-label': 'Bytes on the wire', tabindex: '0' });
    /** The last revision that was received. */
    this.revision = '';
    this.onstop = () => {};
    this.note('press a button');
  }

  /**
   * @param {string} text
   * @param {string} className
   */
  put(text, className = '') {
    const isAtEnd = this.element.scrollTop + this.element.clientHeight >= this.element.scrollHeight - 30;
    // The revision is what the lessons are about.
    const parts = text.split(/("resourceVersion":\s*"\d+")/);
    this.element.append(h('div', { class: className }, ...parts.map((part, index) => (index % 2 ? h('mark', null, part) : part))));
    while (this.element.childElementCount > LINES_MAX) this.element.firstElementChild?.remove();
    if (isAtEnd) this.element.scrollTop = this.element.scrollHeight;
  }

  /** @param {string} text */
  note(text) {
    this.put(text, 'note');
  }

  /**
   * @param {string} text
   * @param {() => Promise<any>} work
   */
  async act(text, work) {
    try {
      await work();
      this.note(text);
    } catch (failure) {
      this.note(`${text} failed: ${failure instanceof Error ? failure.message : failure}`);
    }
  }

  /** @param {string} path */
  async get(path) {
    this.put(`GET ${decodeURIComponent(path)}`, 'sent');
    try {
      const answer = await fetch(path, { headers: this.headers(), cache: 'no-store' });
      this.put(`HTTP ${answer.status}`);
      const text = (await answer.text()).trim();
      this.revision = /^\{[^[]*?"resourceVersion":\s*"(\d+)"/.exec(text)?.[1] ?? this.revision;
      this.put(text);
    } catch {
      this.note('the connection broke');
    }
  }

  /** @param {string} path */
  async watch(path) {
    this.stop();
    const abort = new AbortController();
    this.abort = abort;
    this.put(`GET ${decodeURIComponent(path)}`, 'sent');
    try {
      const answer = await fetch(path, { headers: this.headers(), cache: 'no-store', signal: abort.signal });
      this.put(`HTTP ${answer.status}`);
      for await (const line of lines(answer)) {
        this.put(line);
        this.revision = /"resourceVersion":\s*"(\d+)"/.exec(line)?.[1] ?? this.revision;
      }
      this.note('the server ended the answer');
    } catch {
      if (!abort.signal.aborted) this.note('the connection broke');
    }
  }

  stop(why = '') {
    if (this.abort && !this.abort.signal.aborted) {
      this.abort.abort();
      if (why) this.note(`${why} after revision ${this.revision}`);
    }
    this.abort = undefined;
  }

  end() {
    this.stop();
    this.onstop();
  }

  headers() {
    return { Accept: 'application/json', ...(this.bearer() ? { Authorization: this.bearer() } : {}) };
  }
}
