// Elements, made without HTML strings: whatever comes from a story becomes a text node or an attribute.

const HTML = "http://www.w3.org/1999/xhtml";
const SVG = "http://www.w3.org/2000/svg";

function filled(made, parts) {
  const [first, ...rest] = parts;
  const isTable =
    first !== null && typeof first === "object" && !Array.isArray(first) && !(first instanceof Node);
  for (const [name, value] of Object.entries(isTable ? first : {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name.startsWith("--")) made.style.setProperty(name, value);
    else if (name === "class") made.classList.add(...value.split(" ").filter(Boolean));
    else made.setAttribute(name, value === true ? "" : value);
  }
  const children = (isTable ? rest : parts).flat(3);
  made.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

function element(space, name) {
  const [tag, ...classes] = name.split(".");
  const made = document.createElementNS(space, tag);
  made.classList.add(...classes);
  return made;
}

/** An HTML element: `h("p.note", {title: "…"}, "text", child)`. The table may be left out; null and false are. */
export const h = (name, ...parts) => filled(element(HTML, name), parts);

/** An SVG element, in the same way. */
export const s = (name, ...parts) => filled(element(SVG, name), parts);

/** A button that does something; `key` names it, so that it keeps the focus when it is drawn again. */
export function button(words, key, action, attributes) {
  return h("button", { type: "button", "data-key": key, onclick: action, ...attributes }, words);
}

/** Have something drawn whenever the element's width changes, and when `fit` says that it has a place. */
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

/** Draw what was just put on the page at once, so that nothing below it moves later. */
export function fit(root) {
  root.querySelectorAll("[data-fitted]").forEach((element) => element.fit());
}

/** Change the page while what its reader looks at, of the children of `root`, stays where it is. */
export function inPlace(root, change) {
  const seen = [...root.children].find((child) => child.getBoundingClientRect().bottom > 60);
  const [id, top] = [seen?.id, seen?.getBoundingClientRect().top];
  change();
  const heir = [...root.children].find((child) => child.id === id);
  if (heir) scrollBy({ top: heir.getBoundingClientRect().top - top, behavior: "instant" });
}

/** Replace an element; who had the focus in it has it again, found by its key, and what was open stays open. */
export function replaced(old, fresh) {
  const focus = old.contains(document.activeElement) ? document.activeElement : null;
  const [key, start, end] = [focus?.dataset.key, focus?.selectionStart, focus?.selectionEnd];
  const named = (one) => one.firstChild.textContent;
  const open = new Map([...old.querySelectorAll("details")].map((one) => [named(one), one.open]));
  fresh.querySelectorAll("details").forEach((one) => (one.open = open.get(named(one)) ?? one.open));
  old.replaceWith(fresh);
  fit(fresh);
  if (key) {
    const heir = [...fresh.querySelectorAll("[data-key]")].find((one) => one.dataset.key === key);
    heir?.focus({ preventScroll: true });
    if (heir?.type === "search") heir.setSelectionRange(start, end);
  }
  return fresh;
}
