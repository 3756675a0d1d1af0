// The rail of revisions above every part: live, or the cluster as of one revision, read exactly as it was.
import { h, setText } from './dom.js';
import { oldestRevision } from './history.js';

export class Rail {
  constructor() {
    /** The revision shown; none is live. @type {number | null} */
    this.revision = null;
    /** The newest revision seen. */
    this.newest = 0;
    this.oldest = 0;
    this.onchange = () => {};
    this.range = /** @type {HTMLInputElement} */ (h('input', {
      type: 'range', min: '1', max: '1', 'aria-label': 'Revision shown',
      oninput: () => this.pick(Number(this.range.value)),
    }));
    this.number = h('output', { class: 'number' });
    this.state = h('span', { class: 'live', role: 'status' });
    this.back = h('button', { class: 'small', onclick: () => this.live(), hidden: true }, 'Back to live');
    this.start = h('span', { class: 'edge' });
    this.note = h('span', { class: 'note' });
    this.element = h('header', { class: 'rail', 'aria-label': 'Revisions' }, this.state, this.number, this.start, this.range, this.back, this.note);
    this.draw();
  }

  /** Where the rail says nothing about what is shown, it stays and cannot be moved. @param {boolean} isUsed */
  setUse(isUsed) {
    this.range.disabled = !isUsed;
    this.isUsed = isUsed;
    if (!isUsed && this.revision !== null) {
      this.revision = null;
      this.draw();
    }
  }

  /** @param {number} revision */
  seen(revision) {
    if (!(revision > this.newest)) return;
    const isFirst = this.newest === 0;
    this.newest = revision;
    this.draw();
    if (isFirst) this.findOldest();
  }

  async findOldest() {
    this.oldest = await oldestRevision('/api/v1/namespaces', this.newest);
    this.draw();
  }

  /** @param {number} revision */
  pick(revision) {
    this.revision = revision >= this.newest ? null : revision;
    this.draw();
    clearTimeout(this.timer);
    // While the scrubber is dragged, only the place where it rests is read.
    this.timer = setTimeout(() => this.onchange(), 120);
  }

  /** @param {number} by */
  step(by) {
    if (this.isUsed) this.pick(Math.max(this.oldest, (this.revision ?? this.newest) + by));
  }

  live() {
    if (this.revision !== null) this.pick(this.newest);
  }

  draw() {
    const { revision, newest } = this;
    this.range.min = String(this.oldest || 1);
    this.range.max = String(newest || 1);
    this.range.value = String(revision ?? newest);
    this.range.setAttribute('aria-valuetext', revision === null ? `live, revision ${newest}` : `revision ${revision}`);
    setText(this.number, revision ?? (newest || '…'));
    setText(this.state, revision === null ? 'Live' : 'As of');
    setText(this.start, this.oldest > 1 ? `history from ${this.oldest}` : '');
    this.back.hidden = revision === null;
    this.element.classList.toggle('past', revision !== null);
    document.documentElement.classList.toggle('past', revision !== null);
  }
}
