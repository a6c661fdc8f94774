// A table that sorts by any column, filters by words and saves as CSV; a long one shows its first rows at first.

import { button, h } from "./dom.js";
import { count, cut, grouped, isNumber } from "./text.js";

const ARROWS = { none: "", ascending: "↑", descending: "↓" };
const isMissing = (value) => value === null || value === undefined || value === "" || Number.isNaN(value);

/**
 * Draw a table.
 *
 * `columns` are `{label, value(row), text(row), help}`: `value` is sorted, filtered and saved, `text` is shown (a
 * string or a node). `keep` remembers sorting and filter: `{sort, down, filter, all}`. `unit` is what a row is.
 */
export function table({ name, columns, rows, unit, keep, first = 40, isChosen = () => false, choose }) {
  const numeric = columns.map((column) => rows.some((row) => isNumber(column.value(row))));
  const content = (column, row) => `${column.value(row) ?? ""} ${column.also?.(row) ?? ""}`;
  const words = rows.map((row) => columns.map((column) => content(column, row)).join(" ").toLowerCase());
  const [body, head, note] = [h("tbody"), h("tr"), h("p.note", { role: "status" })];

  const shown = () => {
    const wanted = (keep.filter ?? "").toLowerCase().split(/\s+/);
    const left = [...rows.keys()].filter((i) => wanted.every((word) => words[i].includes(word)));
    const column = columns[keep.sort];
    const by = (a, b) => order(column.value(rows[a]), column.value(rows[b]), keep.down ? -1 : 1) || a - b;
    return column ? left.sort(by) : left;
  };
  const sortBy = (i) => {
    Object.assign(keep, { sort: i, down: keep.sort === i ? !keep.down : numeric[i] });
    draw();
    head.children[i].firstChild.focus();
  };
  const heading = ({ label, help }, i) => {
    const sorted = keep.sort !== i ? "none" : keep.down ? "descending" : "ascending";
    const arrow = h("span.arrow", { "aria-hidden": "true" }, ARROWS[sorted]);
    const press = button([label, arrow], `${name} sort ${i}`, () => sortBy(i), { title: help });
    return h("th", { scope: "col", class: numeric[i] && "number", "aria-sort": sorted }, press);
  };
  const line = (row) => {
    const cells = columns.map(({ value, text = value, long }, i) => {
      const kind = numeric[i] ? "number" : long && "long";
      return h(i ? "td" : "th", { class: kind, scope: i ? null : "row" }, shownText(text(row)));
    });
    const kind = `${choose ? "choice" : ""} ${isChosen(row) ? "chosen" : ""}`;
    return h("tr", { class: kind, onclick: choose && (() => choose(row)) }, cells);
  };
  const draw = () => {
    const left = shown();
    const hidden = keep.all ? 0 : Math.max(0, left.length - first);
    head.replaceChildren(...columns.map(heading));
    body.replaceChildren(...left.slice(0, left.length - hidden).map((i) => line(rows[i])));
    const some = left.length === rows.length ? "" : `${grouped(left.length)} of `;
    note.replaceChildren(`${some}${count(rows.length, unit)}`);
    const showAll = () => {
      keep.all = true;
      draw();
    };
    if (hidden) note.append(button(`show ${grouped(hidden)} more`, `${name} all`, showAll));
  };

  draw();
  const search = h("input", {
    type: "search",
    "data-key": `${name} filter`,
    value: keep.filter ?? "",
    "aria-label": `filter ${name}`,
    placeholder: "filter by name, role, state, …",
    oninput: (event) => {
      keep.filter = event.target.value;
      draw();
    },
  });
  const labels = columns.map(({ label }) => label);
  const save = () => csv(labels, shown().map((i) => columns.map((column) => column.value(rows[i]))));
  const region = { tabindex: 0, role: "region", "aria-label": `table of ${name}` };
  return h(
    "div.table",
    h("div.tools", search, saver("CSV", name, "text/csv", save)),
    h("div.sideways", region, h("table", h("thead", head), body)),
    note,
  );
}

const shownText = (content) =>
  isNumber(content) ? grouped(content) : typeof content === "string" ? cut(content) : (content ?? "–");

/** Numbers by size, text by name; missing values are last in both directions. */
function order(a, b, direction) {
  const missing = [a, b].map(isMissing);
  if (missing[0] || missing[1]) return missing[0] - missing[1];
  const text = () => String(a).localeCompare(String(b), "en", { numeric: true });
  return direction * (isNumber(a) && isNumber(b) ? a - b : text());
}

/** A button that saves a file. */
export function saver(label, name, type, content) {
  const save = () => {
    const link = h("a", { href: URL.createObjectURL(new Blob([content()], { type })) });
    link.download = `${name}.${label.toLowerCase()}`.replace(/[^\w.-]+/g, "-");
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  };
  const title = `save ${name} as ${label}`;
  return button(label, `save ${name}`, save, { class: "save", "aria-label": title, title });
}

/** Rows as CSV. Text that a spreadsheet would read as a formula gets an apostrophe in front. */
export function csv(columns, rows) {
  const cell = (value) => {
    if (isMissing(value) || typeof value === "number") return String(isMissing(value) ? "" : value);
    const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value);
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return [columns, ...rows].map((row) => row.map(cell).join(",") + "\r\n").join("");
}
