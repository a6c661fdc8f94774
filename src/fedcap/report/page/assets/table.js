// A table that sorts by any column and filters by words; long ones show their first rows until asked for all.

import { button, h } from "./dom.js";
import { count, cut, grouped, isNumber } from "./words.js";
import { csv, saver } from "./save.js";

const ARROWS = { none: "", ascending: "↑", descending: "↓" };

/**
 * Draw a table.
 *
 * `columns` are `{label, value(row), text(row), help}`: `value` is what is sorted, filtered and saved, `text` what is
 * shown, a string or a node. `keep` is where sorting and filter are remembered: `{sort, down, filter, all}`.
 * `unit` is what a row is. `first` rows are shown until all are asked for.
 */
export function table({ name, columns, rows, unit, keep, first = 40, isChosen = () => false, choose }) {
  const numeric = columns.map((column) => rows.some((row) => isNumber(column.value(row))));
  const words = rows.map((row) =>
    columns
      .map((column) => `${column.value(row) ?? ""} ${column.also?.(row) ?? ""}`)
      .join(" ")
      .toLowerCase(),
  );
  const body = h("tbody");
  const head = h("tr");
  const note = h("p.note", { role: "status" });

  const shown = () => {
    const wanted = (keep.filter ?? "").toLowerCase().split(/\s+/).filter(Boolean);
    const left = rows.map((_, i) => i).filter((i) => wanted.every((word) => words[i].includes(word)));
    const column = columns[keep.sort];
    if (column) {
      const side = keep.down ? -1 : 1;
      left.sort((a, b) => order(column.value(rows[a]), column.value(rows[b]), side) || a - b);
    }
    return left;
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
    const some = left.length === rows.length ? "all" : `${grouped(left.length)} of`;
    const more = () => {
      keep.all = true;
      draw();
    };
    note.replaceChildren(`${some} ${count(rows.length, unit)}`);
    if (hidden) note.append(button(`show ${grouped(hidden)} more`, `${name} all`, more));
  };

  draw();
  const all = () =>
    csv(
      columns.map((it) => it.label),
      shown().map((i) => columns.map((it) => it.value(rows[i]) ?? null)),
    );
  const search = h("input", {
    type: "search",
    "data-key": `${name} filter`,
    value: keep.filter ?? "",
    "aria-label": `filter ${name}`,
    placeholder: "filter: a name, attacker, removed …",
    oninput: (event) => {
      keep.filter = event.target.value;
      draw();
    },
  });
  return h(
    "div.table",
    h("div.tools", search, saver("CSV", name, "text/csv", all)),
    h(
      "div.sideways",
      { tabindex: 0, role: "region", "aria-label": `${name}, a table` },
      h("table", h("thead", head), body),
    ),
    note,
  );
}

const shownText = (content) =>
  isNumber(content) ? grouped(content) : typeof content === "string" ? cut(content) : (content ?? "–");

/** Numbers by size, words by name, what is missing last, whichever the side. */
function order(a, b, side) {
  const [noA, noB] = [a, b].map(
    (one) => one === null || one === undefined || one === "" || Number.isNaN(one),
  );
  if (noA || noB) return noA - noB;
  return (
    side * (isNumber(a) && isNumber(b) ? a - b : String(a).localeCompare(String(b), "en", { numeric: true }))
  );
}
