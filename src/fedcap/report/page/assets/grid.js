// A comparison: a map of methods by attacks, a field a link to the runs behind it; and one of those runs, opened.

import { h, s } from "./dom.js";
import { addressOf } from "./address.js";
import { colour, css, inkOn } from "./colours.js";
import { csv, saver, standalone } from "./save.js";
import { section } from "./frame.js";
import { aboutSection } from "./details.js";
import { verdict } from "./verdict.js";
import { count, cut, isNumber, percent } from "./words.js";

/** The name of one run in the address. */
export const nameOf = (panel, row, column, seed) => [panel.title, panel.methods[row], panel.attacks[column], seed].filter(Boolean).join("/");

const keyOf = (panel, row, column) => `field ${nameOf(panel, row, column)}`;

/** The field, its panel and the run that an address names; none if there is no such run. */
export function found(map, name) {
  for (const panel of map.panels)
    for (const [row, line] of panel.fields.entries())
      for (const [column, field] of line.entries())
        for (const [i, seed] of field.seeds.entries())
          if (nameOf(panel, row, column, seed) === name) return { panel, row, column, field, name, cell: field.cells[i], key: keyOf(panel, row, column) };
  return null;
}

export function gridPage(story) {
  const { panels, failed } = story.map;
  return h("div", { class: "view" }, verdict(story),
    panels.map((panel, i) => panelSection(panel, i, panels.length)),
    failed?.length > 0 && section("failed", "Runs that failed", null, h("ul", null, failed.map(({ title, why }) => h("li", null, h("strong", null, cut(title)), ` ${cut(why, 400)}`)))),
    aboutSection({ story }).node);
}

function panelSection(panel, number, many) {
  const title = panel.title || "Methods by attacks";
  const published = panel.fields.flat().some((field) => isNumber(field.published));
  const rows = () => panel.fields.flatMap((line, row) => line.map((field, column) => [
    panel.methods[row], panel.attacks[column], field.mean, field.half_width, field.worst_client, field.dacc, field.published, field.read, field.seeds.length, field.missing, field.diverged]));
  const columns = ["method", "attack", "accuracy, %", "± 95 %", "worst client, %", "rightly judged, %", "paper, %", "ours in the paper's reading, %", "runs", "missing", "diverged"];
  return section(many > 1 ? `map-${number + 1}` : "map", many > 1 ? title : "Accuracy by method and attack",
    `Mean accuracy of the honest clients in percent${published ? ", with the paper’s figure below" : ""}; ± is half a 95 % interval over seeds. The stronger the colour, the higher. Open a field to see its runs.`,
    h("div", { class: "tools" }, saver("CSV", title, "text/csv", () => csv(columns, rows())), saver("SVG", title, "image/svg+xml", () => standaloneMap(panel))),
    h("div", { class: "sideways", tabindex: 0, role: "region", "aria-label": `${title}, a table` },
      h("table", { class: "fields" },
        h("thead", null, h("tr", null, h("th", { scope: "col" }, "method"), panel.attacks.map((attack) => h("th", { scope: "col" }, cut(attack, 40))), h("th", { scope: "col", class: "worst" }, "worst attack"))),
        h("tbody", null, panel.methods.map((method, row) => h("tr", null, h("th", { scope: "row" }, cut(method, 60)),
          panel.fields[row].map((field, column) => fieldCell(panel, row, column, field)), worstCell(panel, row)))))),
    h("p", { class: "note" }, "Framed: the attack that hurts a method most.", panel.fields.flat().some(isReadOtherwise) && " In brackets: our figure, read as the paper reads its own.",
      panel.fields.flat().some((field) => field.diverged) && " † some of its runs diverged: weights became NaN or infinite."));
}

function fieldCell(panel, row, column, field) {
  if (!field.cells.length) return h("td", { class: "empty" }, field.missing ? "not yet" : "–");
  const shade = isNumber(field.mean) && colour(shareOf(field.mean));
  const words = `${panel.methods[row]}, ${panel.attacks[column]}: ${percent(field.mean)} %${isNumber(field.half_width) ? ` ± ${percent(field.half_width)}` : ""}`;
  return h("td", { "--shade": shade ? css(shade) : "transparent", "--on": shade ? inkOn(shade) : "inherit", class: panel.worst[row] === column && "is-worst" },
    h("a", { href: addressOf({ cell: nameOf(panel, row, column, field.seeds[0]) }, {}), "aria-label": `${words}; open`, "data-key": keyOf(panel, row, column) },
      h("span", { class: "mean" }, percent(field.mean) + (field.diverged ? " †" : "")),
      isNumber(field.half_width) && h("span", { class: "half" }, `± ${percent(field.half_width)}`),
      isNumber(field.published) && h("span", { class: "paper", title: cut(field.source, 200) }, `paper ${percent(field.published)}${isReadOtherwise(field) ? ` (${percent(field.read)})` : ""}`),
      field.missing > 0 && h("span", { class: "half" }, `${count(field.missing, "run")} to come`)));
}

/** Whether the paper prints another reading than our mean is of. */
const isReadOtherwise = ({ mean, read }) => isNumber(read) && Math.abs(read - mean) >= 0.05;

function worstCell(panel, row) {
  const column = panel.worst[row];
  if (column === null || column === undefined) return h("td", { class: "worst" }, "–");
  return h("td", { class: "worst" }, h("span", { class: "mean" }, percent(panel.fields[row][column].mean)), h("span", { class: "half" }, cut(panel.attacks[column], 30)));
}

const shareOf = (mean) => (mean / 100) ** 2;

/** The map as a picture, for saving: it is a table on the page, so that everybody can read it. */
function standaloneMap(panel) {
  const [left, wide, high] = [16 + 7 * Math.max(...panel.methods.map((name) => Math.min(40, name.length))), 92, 40];
  const attacks = [...panel.attacks, "worst attack"];
  const lines = panel.methods.flatMap((method, row) => [
    s("text", { x: left - 8, y: 54 + row * high, "text-anchor": "end" }, cut(method, 40)),
    ...attacks.flatMap((attack, column) => {
      const worst = column === panel.attacks.length;
      const field = panel.fields[row][worst ? panel.worst[row] : column];
      const shade = isNumber(field?.mean) ? colour(shareOf(field.mean)) : null;
      const below = worst ? panel.attacks[panel.worst[row]] : isNumber(field?.half_width) ? `± ${percent(field.half_width)}` : "";
      const middle = left + (column + 0.5) * wide;
      return [
        s("rect", { x: left + column * wide, y: 30 + row * high, width: wide - 2, height: high - 2, fill: shade && !worst ? css(shade) : "none" }),
        s("text", { x: middle, y: 48 + row * high, "text-anchor": "middle", fill: shade && !worst ? inkOn(shade) : "currentColor" }, percent(field?.mean)),
        s("text", { x: middle, y: 61 + row * high, "text-anchor": "middle", "font-size": 10, fill: shade && !worst ? inkOn(shade) : "currentColor" }, cut(below, 16)),
      ];
    }),
  ]);
  const heads = attacks.map((attack, column) => s("text", { x: left + (column + 0.5) * wide, y: 20, "text-anchor": "middle" }, cut(attack, 14)));
  const svg = s("svg", { class: "written", viewBox: `0 0 ${left + attacks.length * wide} ${34 + high * panel.methods.length}` }, heads, lines);
  document.body.append(svg);
  const text = standalone(svg);
  svg.remove();
  return text;
}

/** What stands above a run of a grid: the way back, and its seeds. */
export function cellBar({ panel, row, column, field, cell }) {
  return h("div", { class: "cell-bar" }, h("a", { href: "#", class: "back", "data-key": "back" }, "← all methods and attacks"),
    field.cells.length > 1 && h("span", { class: "choice-row", role: "group", "aria-label": "seed" }, "seed ", field.seeds.map((seed, i) =>
      h("a", { href: addressOf({ cell: nameOf(panel, row, column, seed) }, {}), "aria-current": field.cells[i] === cell ? "true" : null }, seed))));
}
