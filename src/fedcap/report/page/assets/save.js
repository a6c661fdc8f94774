// Files out of the page: a table as CSV, a picture as SVG that stands alone.

import { button, s } from "./dom.js";

const STYLES = [
  "fill",
  "fill-opacity",
  "stroke",
  "stroke-width",
  "stroke-dasharray",
  "stroke-opacity",
  "stroke-linejoin",
  "stroke-linecap",
  "font-family",
  "font-size",
  "font-weight",
  "text-anchor",
  "opacity",
];

/** A button that hands the reader a file. */
export function saver(words, name, type, content) {
  return button(words, `save ${name}`, () => download(`${name}.${words.toLowerCase()}`, type, content()), {
    class: "save",
    "aria-label": `save ${name} as ${words}`,
    title: `save as ${words}`,
  });
}

function download(name, type, content) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([content], { type }));
  link.download = name.replace(/[^\w.-]+/g, "-");
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

/** Rows as CSV. Text that a spreadsheet would take for a formula gets an apostrophe in front. */
export function csv(columns, rows) {
  const cell = (value) => {
    if (value === null || value === undefined || typeof value === "number") return String(value ?? "");
    const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value);
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return [columns, ...rows].map((row) => row.map(cell).join(",") + "\r\n").join("");
}

/** A picture as a file of its own: styles written into it, on the page's ground, canvases as images. */
export function standalone(svg, canvas = null) {
  const copy = svg.cloneNode(true);
  const [originals, copies] = [svg, copy].map((root) => [root, ...root.querySelectorAll("*")]);
  originals.forEach((original, i) => {
    const style = getComputedStyle(original);
    for (const name of STYLES) if (style[name]) copies[i].setAttribute(name, style.getPropertyValue(name));
    for (const name of ["class", "tabindex", "role", "data-key"]) copies[i].removeAttribute(name);
  });
  const [, , width, height] = svg.getAttribute("viewBox").split(" ").map(Number);
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.setAttribute("width", width);
  copy.setAttribute("height", height);
  const ground = s("rect", { width, height, fill: getComputedStyle(document.body).backgroundColor });
  const image =
    canvas &&
    s("image", {
      ...canvas.place,
      href: canvas.node.toDataURL(),
      preserveAspectRatio: "none",
      "image-rendering": "pixelated",
    });
  copy.prepend(...[ground, image].filter(Boolean));
  return new XMLSerializer().serializeToString(copy);
}
