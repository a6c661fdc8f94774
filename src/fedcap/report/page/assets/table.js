// A table that sorts by any column and filters by words; long ones show their first rows until asked for all.

import { button, h } from "./dom.js";
import { count, cut, grouped, isNumber } from "./words.js";
import { csv, saver } from "./save.js";

/**
 * Draw a table.
 *
 * `columns` are `{label, value(row), text(row), help}`: `value` is what is sorted, filtered and saved, `text` what is
 * shown, a string or a node. `keep` is where sorting and filter are remembered: `{sort, down, filter, all}`. `first` rows are
 * shown until all are asked for.
 */
export function table({ name, columns, rows, keep, filter, first = 40, isChosen = () => false, choose }) {
  const text = (column, row) => (column.text ?? column.value)(row);
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

  const draw = () => {
    const left = shown();
    const most = keep.all ? left.length : Math.min(left.length, first);
    head.replaceChildren(
      ...columns.map((column, i) => {
        const sorted = keep.sort === i ? (keep.down ? "descending" : "ascending") : null;
        const arrow = { ascending: "↑", descending: "↓" }[sorted] ?? "";
        return h(
          "th",
          { scope: "col", class: numeric[i] && "number", "aria-sort": sorted ?? "none" },
          button(
            [column.label, h("span.arrow", { "aria-hidden": "true" }, arrow)],
            `${name} sort ${i}`,
            () => {
              const again = keep.sort === i;
              Object.assign(keep, { sort: i, down: again ? !keep.down : numeric[i] });
              const focused = document.activeElement?.dataset.key;
              draw();
              [...head.querySelectorAll("button")].find((one) => one.dataset.key === focused)?.focus();
            },
            { title: column.help },
          ),
        );
      }),
    );
    body.replaceChildren(
      ...left.slice(0, most).map((i) =>
        h(
          "tr",
          {
            class: [choose && "choice", isChosen(rows[i]) && "chosen"].filter(Boolean).join(" "),
            onclick: choose && (() => choose(rows[i])),
          },
          columns.map((column, place) =>
            h(
              place ? "td" : "th",
              { class: numeric[place] ? "number" : column.long && "long", scope: place ? null : "row" },
              shownText(text(column, rows[i])),
            ),
          ),
        ),
      ),
    );
    const hidden = left.length - most;
    note.replaceChildren(
      ...[
        filter &&
          `${left.length === rows.length ? "all" : `${grouped(left.length)} of`} ${count(rows.length, filter)}`,
        hidden > 0 &&
          button(`show ${grouped(hidden)} more`, `${name} all`, () => {
            keep.all = true;
            draw();
          }),
      ].filter(Boolean),
    );
  };

  draw();
  const all = () =>
    csv(
      columns.map((it) => it.label),
      shown().map((i) => columns.map((it) => it.value(rows[i]) ?? null)),
    );
  const search =
    filter &&
    h("input", {
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
