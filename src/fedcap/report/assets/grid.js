// A comparison: a table of methods by attacks for each data set. A cell is a link to the views of its runs.

import { addressOf } from "./address.js";
import { h, section } from "./dom.js";
import { colour, css, inkOn } from "./heatmap.js";
import { csv, saver } from "./table.js";
import { count, cut, isNumber, percent } from "./text.js";
import { about, overview } from "./view.js";

const SAVED = {
  "accuracy, %": "mean",
  "± 95 %": "half_width",
  "worst client, %": "worst_client",
  "rightly judged, %": "dacc",
  missing: "missing",
  diverged: "diverged",
};

/** The children of the page of a grid. */
export function gridPage(report) {
  const { tables, failed } = report.grid;
  const failures = failed.map(({ name, value }) => h("li", h("strong", cut(name)), ` ${cut(value, 400)}`));
  return [
    overview(report),
    ...tables.map((table, i) => tableSection(table, tables.length > 1 ? i + 1 : null)),
    ...(failures.length ? [section("failed", "Failed runs", null, h("ul", failures))] : []),
    about(report),
  ];
}

/** Links to the tables of a grid, if there are several. */
export function gridNav({ grid: { tables } }) {
  const link = ({ title }, i) => {
    const go = (event) => {
      event.preventDefault();
      document.getElementById(`table-${i + 1}`).scrollIntoView();
    };
    return h("a", { href: "#", onclick: go }, cut(title, 30));
  };
  return h("nav", { "aria-label": "tables" }, tables.length > 1 ? tables.map(link) : []);
}

/** Above a run of a grid: the way back, and the other seeds. */
export function runBar({ table, row, column, cell, run }) {
  const seeds = cell.seeds.map((seed, i) => {
    const href = addressOf({ cell: nameOf(table, row, column, seed) }, {});
    return h("a", { href, "aria-current": cell.runs[i] === run ? "true" : null }, seed);
  });
  return h(
    "div.run-bar",
    h("a.back", { href: "#", "data-key": "back" }, "← all methods and attacks"),
    seeds.length > 1 && h("span.choices", { role: "group", "aria-label": "seed" }, "seed ", seeds),
  );
}

/** The name of a run in the address; without a seed, that of its cell. */
const nameOf = (table, row, column, seed) =>
  [table.title, table.methods[row], table.attacks[column], seed].filter(Boolean).join("/");

const keyOf = (table, row, column) => `cell ${nameOf(table, row, column)}`;

/** The table, the cell and the run that a name in the address means; null if there is none. */
export function findRun({ tables }, name) {
  for (const table of tables)
    for (const [row, line] of table.cells.entries())
      for (const [column, cell] of line.entries())
        for (const [i, seed] of cell.seeds.entries())
          if (nameOf(table, row, column, seed) === name)
            return { table, row, column, cell, name, run: cell.runs[i], key: keyOf(table, row, column) };
  return null;
}

function tableSection(table, number) {
  const { title, methods, attacks, cells, worst } = table;
  const heads = ["method", ...attacks, "worst attack"].map((name) => h("th", { scope: "col" }, cut(name, 40)));
  const body = methods.map((method, row) =>
    h(
      "tr",
      h("th", { scope: "row" }, cut(method, 60)),
      attacks.map((_, column) => cellOf(table, row, column)),
      worstCell(cells[row][worst[row]], attacks[worst[row]]),
    ),
  );
  const all = cells.flat();
  const interval = all.some(({ half_width: half }) => isNumber(half)) ? "; ± is half the 95 % interval over seeds" : "";
  return section(
    number ? `table-${number}` : "table",
    number ? title : "Accuracy by method and attack",
    number > 1 ? null : `Mean accuracy of the honest clients in percent${interval}. Open a cell to see its runs.`,
    h("div.tools", saver("CSV", title, "text/csv", () => csvOf(table))),
    h(
      "div.sideways",
      { tabindex: 0, role: "region", "aria-label": `table of ${title}` },
      h("table.cells", h("thead", h("tr", heads)), h("tbody", body)),
    ),
    h(
      "p.note",
      "Framed: the worst attack on a method.",
      all.some(({ diverged }) => diverged) && " † Weights became NaN or infinite in some of its runs.",
    ),
  );
}

function cellOf(table, row, column) {
  const cell = table.cells[row][column];
  if (!cell.runs.length) return h("td.empty", cell.missing ? "not yet" : "–");
  const { mean, half_width: half, missing, diverged, seeds } = cell;
  const shade = isNumber(mean) ? colour((mean / 100) ** 2) : null;
  const interval = isNumber(half) ? `± ${percent(half)}` : "";
  const label = `${table.methods[row]}, ${table.attacks[column]}: ${percent(mean)} % ${interval}; open`;
  const link = h(
    "a",
    {
      href: addressOf({ cell: nameOf(table, row, column, seeds[0]) }, {}),
      "aria-label": label,
      "data-key": keyOf(table, row, column),
    },
    h("span.mean", percent(mean) + (diverged ? " †" : "")),
    interval && h("span.half", interval),
    missing > 0 && h("span.half", `${count(missing, "run")} missing`),
  );
  const colours = { "--shade": shade ? css(shade) : "transparent", "--on": shade ? inkOn(shade) : "inherit" };
  return h("td", { class: table.worst[row] === column ? "is-worst" : "", ...colours }, link);
}

function worstCell(cell, attack) {
  if (!cell) return h("td.worst", "–");
  return h("td.worst", h("span.mean", percent(cell.mean)), h("span.half", cut(attack, 30)));
}

function csvOf({ methods, attacks, cells }) {
  const row = (cell, i, j) => [methods[i], attacks[j], ...Object.values(SAVED).map((part) => cell[part]), cell.runs.length];
  const rows = cells.flatMap((line, i) => line.map((cell, j) => row(cell, i, j)));
  return csv(["method", "attack", ...Object.keys(SAVED), "runs"], rows);
}
