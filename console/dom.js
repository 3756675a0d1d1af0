// Makes elements. Text is always text: nothing here parses markup.

/** @typedef {Node | string | number | null | undefined | false} Child */

/**
 * Makes an element. Properties that begin with `on` are listeners, `true` and `false` set and omit an attribute.
 * @param {string} tag
 * @param {Record<string, any> | null} [properties]
 * @param {...(Child | Child[])} children
 * @returns {HTMLElement}
 */
export function h(tag, properties, ...children) {
  return /** @type {HTMLElement} */ (fill(document.createElement(tag), properties, children));
}

/**
 * Makes an element of a drawing.
 * @param {string} tag
 * @param {Record<string, any> | null} [properties]
 * @param {...(Child | Child[])} children
 * @returns {SVGElement}
 */
export function s(tag, properties, ...children) {
  return /** @type {SVGElement} */ (fill(document.createElementNS('http://www.w3.org/2000/svg', tag), properties, children));
}

/**
 * @param {Element} element
 * @param {Record<string, any> | null | undefined} properties
 * @param {(Child | Child[])[]} children
 */
function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (name === 'value') /** @type {any} */ (element).value = value;
    else if (value === true) element.setAttribute(name, '');
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, String(value));
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false).map((child) =>
    child instanceof Node ? child : String(child)));
  return element;
}

/**
 * Replaces the text of an element only if it differs, so that nothing is laid out again without need.
 * @param {Element} element
 * @param {string | number} text
 */
export function setText(element, text) {
  const wanted = String(text);
  if (element.textContent !== wanted) element.textContent = wanted;
}

/**
 * Calls a function at most once a frame.
 * @param {() => void} draw
 * @returns {() => void}
 */
export function onceAFrame(draw) {
  let waits = false;
  return () => {
    if (waits) return;
    waits = true;
    requestAnimationFrame(() => {
      waits = false;
      draw();
    });
  };
}

/**
 * The time since a moment, as kubectl prints it.
 * @param {string | undefined} since
 * @param {number} [now]
 */
export function age(since, now = Date.now()) {
  if (!since) return '';
  const seconds = Math.max(0, Math.floor((now - Date.parse(since)) / 1000));
  if (seconds < 120) return `${seconds}s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 10) return seconds % 60 ? `${minutes}m${seconds % 60}s` : `${minutes}m`;
  if (minutes < 180) return `${minutes}m`;
  const hours = Math.floor(minutes / 60);
  if (hours < 8) return minutes % 60 ? `${hours}h${minutes % 60}m` : `${hours}h`;
  if (hours < 48) return `${hours}h`;
  const days = Math.floor(hours / 24);
  return days < 8 && hours % 24 ? `${days}d${hours % 24}h` : `${days}d`;
}
