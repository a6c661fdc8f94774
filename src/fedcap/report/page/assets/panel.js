// One map of a grid, methods by attacks: a table for everybody to read, each field a link to the runs behind it.

import { h, s } from "./dom.js";
import { addressOf } from "./address.js";
import { colour, css, inkOn } from "./colours.js";
import { csv, saver, standalone } from "./save.js";
import { section } from "./frame.js";
import { count, cut, isNumber, percent } from "./words.js";

const [CELL_WIDTH, CELL_HEIGHT] = [116, 40];
const SAVED = {
  "accuracy, %": "mean",
  "± 95 %": "half_width",
  "worst client, %": "worst_client",
  "rightly judged, %": "dacc",
  "paper, %": "published",
  "ours in the paper's reading, %": "read",
  missing: "missing",
  diverged: "diverged",
};

/** The name of a run in the address; without a seed, of its field. */
export const nameOf = (panel, row, column, seed) =>
  [panel.title, panel.methods[row], panel.attacks[column], seed].filter(Boolean).join("/");

const keyOf = (panel, row, column) => `field ${nameOf(panel, row, column)}`;

/** The field, its panel and the run that an address names; none if there is no such run. */
export function found(map, name) {
  for (const panel of map.panels)
    for (const [row, line] of panel.fields.entries())
      for (const [column, field] of line.entries())
        for (const [i, seed] of field.seeds.entries())
          if (nameOf(panel, row, column, seed) === name)
            return { panel, row, column, field, name, cell: field.cells[i], key: keyOf(panel, row, column) };
  return null;
}

export function panelSection(panel, number) {
  const title = panel.title || "methods by attacks";
  const fields = panel.fields.flat();
  const published = fields.some((field) => isNumber(field.published))
    ? ", with the paper’s figure below"
    : "";
  const heads = ["method", ...panel.attacks, "worst attack"].map((words) =>
    h("th", { scope: "col" }, cut(words, 40)),
  );
  const body = panel.methods.map((method, row) =>
    h(
      "tr",
      h("th", { scope: "row" }, cut(method, 60)),
      panel.attacks.map((_, column) => fieldCell(panel, row, column)),
      worstCell(panel, row),
    ),
  );
  return section(
    number ? `map-${number}` : "map",
    number ? title : "Accuracy by method and attack",
    number > 1
      ? null
      : `Mean accuracy of the honest clients in percent${published}; ± is half a 95 % interval over seeds. ` +
          "The stronger the colour, the higher. Open a field to see its runs.",
    h(
      "div.tools",
      saver("CSV", title, "text/csv", () => csvOf(panel)),
      saver("SVG", title, "image/svg+xml", () => pictureOf(panel)),
    ),
    h(
      "div.sideways",
      { tabindex: 0, role: "region", "aria-label": `${title}, a table` },
      h("table.fields", h("thead", h("tr", heads)), h("tbody", body)),
    ),
    h(
      "p.note",
      "Framed: the attack that hurts a method most.",
      fields.some(isReadOtherwise) && " In brackets: our figure, read as the paper reads its own.",
      fields.some((field) => field.diverged) &&
        " † some of its runs diverged: weights became NaN or infinite.",
    ),
  );
}

/** Whether the paper prints another reading than our mean is of. */
const isReadOtherwise = ({ mean, read }) => isNumber(read) && Math.abs(read - mean) >= 0.05;

const shadeOf = (field) => (isNumber(field?.mean) ? colour((field.mean / 100) ** 2) : null);
const halfOf = (field) => (isNumber(field?.half_width) ? `± ${percent(field.half_width)}` : "");

function fieldCell(panel, row, column) {
  const field = panel.fields[row][column];
  if (!field.cells.length) return h("td.empty", field.missing ? "not yet" : "–");
  const shade = shadeOf(field);
  const said = `${panel.methods[row]}, ${panel.attacks[column]}: ${percent(field.mean)} % ${halfOf(field)}; open`;
  const paper = `paper ${percent(field.published)}${isReadOtherwise(field) ? ` (${percent(field.read)})` : ""}`;
  const href = addressOf({ cell: nameOf(panel, row, column, field.seeds[0]) }, {});
  const link = h(
    "a",
    { href, "aria-label": said, "data-key": keyOf(panel, row, column) },
    h("span.mean", percent(field.mean) + (field.diverged ? " †" : "")),
    halfOf(field) && h("span.half", halfOf(field)),
    isNumber(field.published) && h("span.half", { title: cut(field.source, 200) }, paper),
    field.missing > 0 && h("span.half", `${count(field.missing, "run")} to come`),
  );
  const colours = { "--shade": shade ? css(shade) : "transparent", "--on": shade ? inkOn(shade) : "inherit" };
  return h("td", { class: panel.worst[row] === column ? "is-worst" : "", ...colours }, link);
}

function worstCell(panel, row) {
  const column = panel.worst[row];
  if (!isNumber(column)) return h("td.worst", "–");
  return h(
    "td.worst",
    h("span.mean", percent(panel.fields[row][column].mean)),
    h("span.half", cut(panel.attacks[column], 30)),
  );
}

function csvOf({ methods, attacks, fields }) {
  const row = (field, i, j) => [
    methods[i],
    attacks[j],
    ...Object.values(SAVED).map((part) => field[part]),
    field.cells.length,
  ];
  return csv(
    ["method", "attack", ...Object.keys(SAVED), "runs"],
    fields.flatMap((line, i) => line.map((field, j) => row(field, i, j))),
  );
}

/** The map as a picture, for saving alone. */
function pictureOf(panel) {
  const { methods, attacks, fields, worst } = panel;
  const left = 16 + 7 * Math.max(...methods.map((name) => Math.min(80, name.length)));
  const text = (x, y, anchor, words, fill) =>
    s("text", { x, y, "text-anchor": anchor, "--fill": fill }, cut(words, 80));
  const cell = (field, shade, below, row, column) => {
    const [x, y, ink] = [left + column * CELL_WIDTH, 30 + row * CELL_HEIGHT, shade ? inkOn(shade) : null];
    return [
      s("rect", { x, y, width: CELL_WIDTH - 2, height: CELL_HEIGHT - 2, fill: shade ? css(shade) : "none" }),
      text(x + CELL_WIDTH / 2, y + 17, "middle", percent(field?.mean), ink),
      text(x + CELL_WIDTH / 2, y + 32, "middle", cut(below, 18), ink),
    ];
  };
  const lines = methods.flatMap((method, row) => [
    text(left - 8, 54 + row * CELL_HEIGHT, "end", method),
    fields[row].map((field, column) => cell(field, shadeOf(field), halfOf(field), row, column)),
    cell(fields[row][worst[row]], null, attacks[worst[row]], row, attacks.length),
  ]);
  const heads = [...attacks, "worst attack"].map((name, column) =>
    text(left + (column + 0.5) * CELL_WIDTH, 20, "middle", cut(name, 18)),
  );
  const [width, height] = [left + (attacks.length + 1) * CELL_WIDTH, 34 + CELL_HEIGHT * methods.length];
  const svg = s("svg.written", { viewBox: `0 0 ${width} ${height}` }, heads, lines);
  document.body.append(svg);
  const made = standalone(svg);
  svg.remove();
  return made;
}
