// A live table of many rows: only those that are visible are drawn. Rows come from a stream of the server's own tables.
import { age, h, onceAFrame, setText } from './dom.js';

/** @typedef {import('./api.js').Metadata} Metadata */
/** @typedef {{ key: string, cells: any[], metadata: Metadata, mark: string, at: number }} Row */
/** @typedef {{ name: string, type: string, format: string, description: string, priority: number }} Column */

/** Height of a row in pixels; the style sheet says the same. */
const ROW = 28;
/** Rows drawn beyond each edge, so that scrolling shows no gaps. */
const SPARE = 6;
/** How long a changed row stays marked. */
const MARK_MS = 1600;
/** Characters at which a column stops growing. */
const WIDTH_MAX = 63;
const MARKS = { ADDED: '+', MODIFIED: '~', DELETED: '' };

export class LiveTable extends HTMLElement {
  constructor() {
    super();
    /** @type {Map<string, Row>} */
    this.rows = new Map();
    /** Rows by name, made again when one is added or removed. @type {Row[]} */
    this.order = [];
    /** Rows of a second list, while the first ones stay visible. @type {Map<string, Row> | null} */
    this.staged = null;
    /** @type {Column[]} */
    this.columns = [];
    /** Indexes of the columns shown. @type {number[]} */
    this.shown = [];
    /** @type {number[]} */
    this.widths = [];
    this.isSorted = true;
    this.selected = 0;
    this.selectedKey = '';
    /** What a click or Enter does. @type {(row: Row) => void} */
    this.onopen = () => {};
    this.onchange = () => {};
    this.wide = false;
    this.showsNamespace = false;
    /** @type {{ element: HTMLElement, cells: HTMLElement[], key: string }[]} */
    this.pool = [];
    this.redraw = onceAFrame(() => this.draw());
  }

  connectedCallback() {
    if (this.body) return;
    this.head = h('div', { class: 'row head', role: 'row', hidden: true });
    this.space = h('div', { class: 'space', role: 'presentation' });
    this.body = h('div', { class: 'body', role: 'rowgroup' }, this.space);
    this.scroller = h('div', {
      class: 'scroller', tabindex: '0', role: 'grid', 'aria-label': this.getAttribute('label') ?? 'objects',
      onscroll: () => this.redraw(),
      onkeydown: (/** @type {KeyboardEvent} */ event) => this.key(event),
    }, h('div', { role: 'rowgroup', class: 'heads' }, this.head), this.body);
    this.append(this.scroller);
    this.resize = new ResizeObserver(() => this.redraw());
    this.resize.observe(this.scroller);
    this.timer = setInterval(() => this.redraw(), 1000);
  }

  disconnectedCallback() {
    clearInterval(this.timer);
    this.resize?.disconnect();
  }

  /**
   * Part of a list. The first list appears page by page; a later one replaces the rows when it is complete.
   * @param {any[]} rows
   * @param {Column[]} columns
   * @param {boolean} isFirst
   */
  page(rows, columns, isFirst) {
    if (isFirst && this.rows.size) this.staged = new Map();
    const into = this.staged ?? this.rows;
    for (const row of rows) {
      const made = this.row(row, '');
      into.set(made.key, made);
    }
    if (isFirst) this.setColumns(columns);
    this.isSorted = false;
    this.redraw();
  }

  listed() {
    if (this.staged) this.rows = this.staged;
    this.staged = null;
    this.isSorted = false;
    this.redraw();
  }

  /**
   * @param {'ADDED' | 'MODIFIED' | 'DELETED'} type
   * @param {any} item
   */
  event(type, item) {
    const row = this.row(item, MARKS[type]);
    if (type === 'DELETED') this.rows.delete(row.key);
    else {
      if (!this.rows.has(row.key)) this.isSorted = false;
      this.rows.set(row.key, row);
    }
    if (type === 'DELETED') this.isSorted = false;
    this.redraw();
  }

  clear() {
    this.rows = new Map();
    this.staged = null;
    this.columns = [];
    this.order = [];
    this.selected = 0;
    this.redraw();
  }

  /**
   * @param {any} item
   * @param {string} mark
   * @returns {Row}
   */
  row(item, mark) {
    const metadata = item.object.metadata;
    return { key: `${metadata.namespace ?? ''}/${metadata.name}`, cells: item.cells, metadata, mark, at: mark ? performance.now() : 0 };
  }

  /** @param {Column[]} columns */
  setColumns(columns) {
    if (!columns.length) return;
    this.columns = columns;
    this.shown = columns.map((_, index) => index).filter((index) => this.wide || columns[index].priority === 0);
    const names = [...(this.showsNamespace ? ['Namespace'] : []), ...this.shown.map((index) => columns[index].name)];
    this.widths = names.map((name) => name.length + 1);
    this.template = '';
    this.grow([...this.rows.values()].slice(0, 200));
    if (this.head) this.head.hidden = false;
    this.head?.replaceChildren(
      h('span', { class: 'mark', role: 'columnheader' }, h('span', { class: 'unseen' }, 'Change')),
      ...names.map((name, index) => h('span', {
        role: 'columnheader', title: columns[this.shown[index - (this.showsNamespace ? 1 : 0)]]?.description ?? '',
      }, name)));
    this.pool.forEach(({ element }) => element.remove());
    this.pool = [];
  }

  /** Columns only grow, so that nothing jumps. @param {Row[]} rows */
  grow(rows) {
    let grew = false;
    for (const row of rows) {
      this.texts(row).forEach((text, index) => {
        const width = Math.min(WIDTH_MAX, text.length + 1);
        if (width > (this.widths[index] ?? 0)) {
          this.widths[index] = width;
          grew = true;
        }
      });
    }
    if (grew || !this.template) {
      this.template = `2ch ${this.widths.map((width) => `${width + 1}ch`).join(' ')}`;
      const total = this.widths.reduce((sum, width) => sum + width + 1, 4);
      this.style.setProperty('--columns', this.template);
      this.style.setProperty('--total', `${total}ch`);
    }
  }

  /** @param {Row} row */
  texts(row) {
    const texts = this.shown.map((index) => {
      const value = row.cells[index];
      // The server computes an age once; the page goes on counting.
      if (this.columns[index].name === 'Age') return age(row.metadata.creationTimestamp);
      return value === null || value === undefined ? '' : String(value);
    });
    return this.showsNamespace ? [row.metadata.namespace ?? '', ...texts] : texts;
  }

  sort() {
    if (this.isSorted) return;
    this.isSorted = true;
    this.order = [...this.rows.values()].sort((a, b) => (a.key < b.key ? -1 : a.key > b.key ? 1 : 0));
    const index = this.order.findIndex((row) => row.key === this.selectedKey);
    if (index >= 0) this.selected = index;
    this.onchange();
  }

  draw() {
    if (!this.scroller || !this.space) return;
    this.sort();
    this.selected = Math.max(0, Math.min(this.selected, this.order.length - 1));
    this.space.style.height = `${this.order.length * ROW}px`;
    this.scroller.setAttribute('aria-rowcount', String(this.order.length + 1));
    const first = Math.max(0, Math.floor(this.scroller.scrollTop / ROW) - SPARE);
    const last = Math.min(this.order.length, Math.ceil((this.scroller.scrollTop + this.scroller.clientHeight) / ROW) + SPARE);
    /** @type {Row[]} */
    const visible = [];
    for (let index = first; index < last; index += 1) {
      const { key } = this.order[index];
      visible.push(this.rows.get(key) ?? this.order[index]);
    }
    this.grow(visible);
    while (this.pool.length < visible.length) this.pool.push(this.line());
    const now = performance.now();
    this.pool.forEach((line, place) => {
      const row = visible[place];
      line.element.hidden = !row;
      if (row) this.put(line, row, first + place, now);
    });
  }

  line() {
    const cells = this.widths.map(() => h('span', { role: 'gridcell' }));
    const mark = h('span', { class: 'mark', role: 'gridcell' });
    const element = h('div', { class: 'row', role: 'row' }, mark, ...cells);
    const line = { element, cells: [mark, ...cells], key: '' };
    element.addEventListener('click', () => {
      const row = this.rows.get(line.key);
      if (row) this.onopen(row);
    });
    this.space?.append(element);
    return line;
  }

  /**
   * @param {{ element: HTMLElement, cells: HTMLElement[], key: string }} line
   * @param {Row} row
   * @param {number} index
   * @param {number} now
   */
  put(line, row, index, now) {
    const { element, cells } = line;
    element.style.transform = `translateY(${index * ROW}px)`;
    element.setAttribute('aria-rowindex', String(index + 2));
    line.key = row.key;
    const isMarked = row.at > 0 && now - row.at < MARK_MS;
    setText(cells[0], isMarked ? row.mark : '');
    element.classList.toggle('changed', isMarked);
    element.classList.toggle('leaving', Boolean(row.metadata.deletionTimestamp));
    const isSelected = index === this.selected;
    element.classList.toggle('selected', isSelected);
    element.setAttribute('aria-selected', String(isSelected));
    this.texts(row).forEach((text, column) => {
      const cell = cells[column + 1];
      if (cell.textContent === text) return;
      cell.textContent = text;
      cell.title = text.length > 20 ? text : '';
    });
  }

  /** @param {number} by */
  move(by) {
    this.selected = Math.max(0, Math.min(this.order.length - 1, this.selected + by));
    this.selectedKey = this.order[this.selected]?.key ?? '';
    const top = this.selected * ROW;
    const box = /** @type {HTMLElement} */ (this.scroller);
    if (top < box.scrollTop) box.scrollTop = top;
    else if (top + ROW * 2 > box.scrollTop + box.clientHeight) box.scrollTop = top + ROW * 2 - box.clientHeight;
    this.redraw();
  }

  openSelected() {
    const row = this.order[this.selected];
    if (row) this.onopen(row);
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const page = Math.floor((this.scroller?.clientHeight ?? 0) / ROW) - 2;
    const steps = /** @type {Record<string, number>} */ ({ ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -1e9, End: 1e9 });
    if (event.key in steps) this.move(steps[event.key]);
    else if (event.key === 'Enter') this.openSelected();
    else return;
    event.preventDefault();
  }
}

customElements.define('live-table', LiveTable);
