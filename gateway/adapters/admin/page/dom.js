/**
 * Elements without markup: whatever is shown comes in as text, so that no topic, property or principal can be anything else.
 *
 * @module
 */

const SVG = "http://www.w3.org/2000/svg";

/** @typedef {Node | string | number | null | undefined | false} Child */

/**
 * Set what is said about an element: `class`, `on…` listeners, `data-…`, `aria-…`, and other attributes.
 *
 * @param {Element} element
 * @param {Record<string, unknown>} attributes
 */
function describe(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), /** @type {EventListener} */ (value));
    else element.setAttribute(name, value === true ? "" : String(value));
  }
}

/**
 * Make an element.
 *
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {Record<string, unknown>} [attributes]
 * @param {...Child} children - Text becomes text nodes.
 * @returns {HTMLElementTagNameMap[K]}
 */
export function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  describe(element, attributes);
  append(element, children);
  return element;
}

/**
 * Make an element of a drawing.
 *
 * @template {keyof SVGElementTagNameMap} K
 * @param {K} tag
 * @param {Record<string, unknown>} [attributes]
 * @param {...Child} children
 * @returns {SVGElementTagNameMap[K]}
 */
export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  describe(element, attributes);
  append(element, children);
  return element;
}

/**
 * @param {Element} element
 * @param {Child[]} children
 */
function append(element, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
}

/**
 * Set the text of an element, touching the page only if it changes.
 *
 * @param {Element} element
 * @param {string | number} text
 */
export function say(element, text) {
  const next = String(text);
  if (element.textContent !== next) element.textContent = next;
}

/**
 * Find an element that the page has.
 *
 * @param {string} id
 * @returns {HTMLElement}
 */
export function byId(id) {
  const element = document.getElementById(id);
  if (element === null) throw new Error(`the page has no #${id}`);
  return element;
}

/**
 * Make a badge: a word with a colour, which never says more than the word.
 *
 * @param {string} word
 * @param {"good" | "warn" | "bad" | "quiet" | "info"} kind
 */
export function badge(word, kind) {
  return el("span", { class: `badge ${kind}` }, word);
}

/**
 * Make the content of a list of facts.
 *
 * @param {string[][]} facts - Of each, its name and what is said of it.
 */
export function factRows(facts) {
  return facts.map(([name, text]) => el("div", {}, el("dt", {}, name), el("dd", {}, text)));
}

/**
 * Make a panel about what was chosen in a list beside it. A button closes it, and so does Escape.
 *
 * @param {{title: HTMLElement, close: () => void}} head - The title has the id `panel-title`.
 * @param {...Child} content
 */
export function panel({ title, close }, ...content) {
  return el(
    "section",
    {
      class: "card panel",
      "aria-labelledby": "panel-title",
      onkeydown: (/** @type {KeyboardEvent} */ event) => {
        if (event.key === "Escape") close();
      },
    },
    el(
      "div",
      { class: "panel-head" },
      title,
      el("button", { type: "button", class: "icon-button", "aria-label": "Close this panel", title: "Close this panel (Esc)", onclick: close }, "×"),
    ),
    ...content,
  );
}

/** Milliseconds for which a good word stays, and one that people have to read to its end. */
const GLANCE = 5000;
const READ = 9000;

/**
 * Tell the user something for a moment.
 *
 * @param {string} text
 * @param {"good" | "warn" | "bad"} [kind]
 */
export function toast(text, kind = "good") {
  const box = el("div", { class: `toast ${kind}` }, text);
  byId("toasts").append(box);
  setTimeout(() => box.remove(), kind === "good" ? GLANCE : READ);
}
