// Objects as YAML lines, each with the path of its field, so that owners and changes can stand beside them.

/**
 * A line of an object. The path has field names, and for entries of lists `[INDEX]`.
 * @typedef {{ text: string, path: string, value?: any }} Line
 */

const PLAIN = /^[A-Za-z_./][\w ./@()+-]*$/;
const RESERVED = /^(true|false|null|yes|no|on|off|y|n|~|\.inf|\.nan)$/i;

/**
 * @param {unknown} value
 * @returns {string}
 */
export function scalar(value) {
  if (typeof value !== 'string') return value === null || value === undefined ? 'null' : String(value);
  return PLAIN.test(value) && !RESERVED.test(value) && !/[ :]$/.test(value) ? value : JSON.stringify(value);
}

/**
 * @param {any} value
 * @param {string} [path]
 * @param {number} [depth]
 * @returns {Line[]}
 */
export function yamlLines(value, path = '', depth = 0) {
  const pad = '  '.repeat(depth);
  /** @type {Line[]} */
  const lines = [];
  const isEmpty = (/** @type {any} */ one) => one !== null && typeof one === 'object' && Object.keys(one).length === 0;
  const put = (/** @type {string} */ head, /** @type {any} */ one, /** @type {string} */ at, /** @type {boolean} */ isItem) => {
    if (one === null || typeof one !== 'object' || isEmpty(one)) {
      const text = isEmpty(one) ? (Array.isArray(one) ? '[]' : '{}') : null;
      const block = typeof one === 'string' && one.includes('\n') && !/^\s|\s\n| $/.test(one);
      if (block) {
        lines.push({ text: `${pad}${head} |${one.endsWith('\n') ? '' : '-'}`, path: at, value: one });
        for (const part of one.replace(/\n$/, '').split('\n')) lines.push({ text: part && `${pad}  ${part}`, path: at });
      } else lines.push({ text: `${pad}${head} ${text ?? scalar(one)}`, path: at, value: one });
      return;
    }
    if (!isItem) {
      lines.push({ text: `${pad}${head}`, path: at });
      lines.push(...yamlLines(one, at, Array.isArray(one) ? depth : depth + 1));
      return;
    }
    const inner = yamlLines(one, at, depth + 1);
    inner[0] = { ...inner[0], text: `${pad}- ${inner[0].text.slice(pad.length + 2)}` };
    lines.push(...inner);
  };
  if (Array.isArray(value)) value.forEach((one, index) => put('-', one, `${path}[${index}]`, true));
  else for (const [name, one] of Object.entries(value)) put(`${scalar(name)}:`, one, `${path}.${name}`, false);
  return lines;
}

/** @param {any} value */
export const yaml = (value) => `${yamlLines(value).map((line) => line.text).join('\n')}\n`;

/**
 * Which lines of the new text are not in the old one.
 * @param {string[]} before
 * @param {string[]} after
 * @returns {{ type: ' ' | '+' | '-', text: string, index: number }[]} `index` is that of the new text
 */
export function lineDiff(before, after) {
  let head = 0;
  while (head < before.length && head < after.length && before[head] === after[head]) head += 1;
  let tail = 0;
  while (tail < before.length - head && tail < after.length - head && before.at(-1 - tail) === after.at(-1 - tail)) tail += 1;
  const [a, b] = [before.slice(head, before.length - tail), after.slice(head, after.length - tail)];
  /** @type {{ type: ' ' | '+' | '-', text: string, index: number }[]} */
  const out = after.slice(0, head).map((text, index) => ({ type: ' ', text, index }));
  // The longest common lines of what is left, which is short but for objects that were replaced.
  const width = b.length + 1;
  const table = new Uint16Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) {
      table[i * width + j] = a[i] === b[j] ? table[(i + 1) * width + j + 1] + 1 : Math.max(table[(i + 1) * width + j], table[i * width + j + 1]);
    }
  }
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      out.push({ type: ' ', text: b[j], index: head + j });
      i += 1;
      j += 1;
    } else if (i < a.length && (j === b.length || table[(i + 1) * width + j] >= table[i * width + j + 1])) {
      out.push({ type: '-', text: a[i], index: head + j });
      i += 1;
    } else {
      out.push({ type: '+', text: b[j], index: head + j });
      j += 1;
    }
  }
  out.push(...after.slice(after.length - tail).map((text, index) => ({ type: /** @type {' '} */ (' '), text, index: after.length - tail + index })));
  return out;
}
