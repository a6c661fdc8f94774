// Elements without HTML strings: everything from a report becomes a text node or an attribute.

const HTML = "http://www.w3.org/1999/xhtml";
const SVG = "http://www.w3.org/2000/svg";

function element(space, name, parts) {
  const [tag, ...classes] = name.split(".");
  const made = document.createElementNS(space, tag);
  made.classList.add(...classes);
  const isObject = parts[0] !== null && typeof parts[0] === "object";
  const hasAttributes = isObject && !Array.isArray(parts[0]) && !(parts[0] instanceof Node);
  for (const [key, value] of Object.entries(hasAttributes ? parts[0] : {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key.startsWith("--")) made.style.setProperty(key, value);
    else if (key === "class") made.classList.add(...value.split(" ").filter(Boolean));
    else made.setAttribute(key, value === true ? "" : value);
  }
  const children = (hasAttributes ? parts.slice(1) : parts).flat(3);
  made.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

/** An HTML element: `h("p.note", {title: "…"}, "text", child)`. Attributes are optional; null and false are left out. */
export const h = (name, ...parts) => element(HTML, name, parts);

/** An SVG element, in the same way. */
export const s = (name, ...parts) => element(SVG, name, parts);

/** A button; `key` is its name, by which it keeps the focus when it is drawn again. */
export function button(text, key, action, attributes) {
  return h("button", { type: "button", "data-key": key, onclick: action, ...attributes }, text);
}

/** A section of the page, found by its id in the address. */
export function section(id, title, text, ...content) {
  const heading = h("h2", { id: `${id}-title` }, title);
  return h("section", { id, "aria-labelledby": `${id}-title` }, heading, text && h("p.intro", text), content);
}

/** A picture with its title. */
export function figure(title, picture, { tools, legend } = {}) {
  const caption = h("figcaption", h("h3", title), tools && h("div.tools", tools));
  return h("figure", caption, legend && h("p.legend", legend), picture);
}

/** Call `draw(width)` when the element's width changes, and when `fitAll` is called. */
export function fitted(element, draw) {
  let last = 0;
  element.fit = () => {
    const width = Math.round(element.clientWidth);
    if (width && width !== last) draw((last = width));
  };
  element.dataset.fitted = "";
  new ResizeObserver(element.fit).observe(element);
  return element;
}

/** Draw everything on the page at once, so that nothing moves later. */
export function fitAll(root) {
  root.querySelectorAll("[data-fitted]").forEach((element) => element.fit());
}

/**
 * Replace the content of an element. The child at the top of the window stays where it is, the focus returns to
 * the element with the same key, and opened details stay open.
 */
export function refill(root, children) {
  const seen = [...root.children].find((child) => child.getBoundingClientRect().bottom > 60);
  const [id, top] = [seen?.id, seen?.getBoundingClientRect().top];
  const focus = root.contains(document.activeElement) ? document.activeElement : null;
  const [key, start, end] = [focus?.dataset.key, focus?.selectionStart, focus?.selectionEnd];
  const title = (details) => details.firstChild.textContent;
  const all = () => [...root.querySelectorAll("details")];
  const open = new Map(all().map((details) => [title(details), details.open]));
  root.replaceChildren(...children);
  all().forEach((details) => (details.open = open.get(title(details)) ?? details.open));
  fitAll(root);
  const again = key && [...root.querySelectorAll("[data-key]")].find((one) => one.dataset.key === key);
  again?.focus({ preventScroll: true });
  if (again?.type === "search") again.setSelectionRange(start, end);
  const same = [...root.children].find((child) => child.id === id);
  if (same) scrollBy({ top: same.getBoundingClientRect().top - top, behavior: "instant" });
}

/** The position of a round among those of a picture: the last one that is not later; the newest for null. */
export function indexOf(rounds, round) {
  if (round === null) return rounds.length - 1;
  return Math.max(0, rounds.findLastIndex((one) => one <= round));
}
