// Elements, made without HTML strings: whatever comes from a story becomes a text node or an attribute.

const SVG = "http://www.w3.org/2000/svg";

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name.startsWith("--")) element.style.setProperty(name, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** An HTML element: `h("p", {class: "note"}, "text", child)`; what is null or false is left out. */
export function h(tag, attributes, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** An SVG element, in the same way. */
export function s(tag, attributes, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

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

/** Replace an element; who had the focus in it has it again, found by its key. */
export function replaced(old, fresh) {
  const focus = old.contains(document.activeElement) ? document.activeElement : null;
  const [key, start, end] = [focus?.dataset.key, focus?.selectionStart, focus?.selectionEnd];
  old.replaceWith(fresh);
  fit(fresh);
  if (key) {
    const heir = [...fresh.querySelectorAll("[data-key]")].find((one) => one.dataset.key === key);
    heir?.focus({ preventScroll: true });
    if (heir?.type === "search") heir.setSelectionRange(start, end);
  }
  return fresh;
}
