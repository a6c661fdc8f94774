// What the rounds cost by part, and accuracy by class: both as bars.

import { fitted, h, s } from "./dom.js";
import { figure, section } from "./frame.js";
import { bytes, cut, isNumber, percent, seconds } from "./words.js";

const LETTER_WIDTH = 6.6;
const LONG = 28;
const ROW = 26;

const total = (values) =>
  Array.from(values)
    .filter(isNumber)
    .reduce((sum, value) => sum + value, 0);

export function costSection({ course }) {
  const costs = course.costs;
  if (!costs?.rounds.length) return null;
  const all = total(costs.total);
  const names = { train: "training", evaluate: "testing", attack: "the attack", server: "the server" };
  const parts = Object.entries(names).map(([part, words]) => [words, total(costs[part])]);
  const rest = all - parts.reduce((sum, [, value]) => sum + value, 0);
  const rows = [...parts, ["all else", rest]].filter(([, value]) => value > all * 0.0005);
  const many = costs.rounds.length;
  const sent = total(costs.bytes) / many;
  const write = (value) => `${seconds(value)}, ${percent((100 * value) / all)} %`;
  const node = section(
    "cost",
    "What it cost",
    `${seconds(all)} in all, ${seconds(all / many)} a round; ${bytes(sent)} sent to and by the clients in each.`,
    figure("Seconds by part", bars(rows, write)),
  );
  return { node, show: () => {} };
}

export function classesSection({ course }) {
  if (!course.classes?.length) return null;
  const rows = course.classes.map(({ name, value }) => [name, Number.parseFloat(value)]);
  const node = section(
    "classes",
    "Accuracy by class",
    "In the last round, over all honest clients’ test samples, in percent.",
    figure("By class", bars(rows, percent, 100)),
  );
  return { node, show: () => {} };
}

/** Bars with a name and a value each, as SVG. */
function bars(rows, write, most = Math.max(...rows.map(([, value]) => value))) {
  const host = h("div.chart");
  const label = rows.map(([name, value]) => `${name}: ${write(value)}`).join("; ");
  return fitted(host, (width) => {
    const left = 14 + LETTER_WIDTH * Math.max(...rows.map(([name]) => Math.min(LONG, name.length)));
    const right = 12 + LETTER_WIDTH * Math.max(...rows.map(([, value]) => write(value).length));
    const room = Math.max(20, Math.min(520, width - left - right));
    const lines = rows.map(([name, value], i) => {
      const [y, long] = [i * ROW, Math.max(1, (room * (value || 0)) / most)];
      return [
        s("text.label", { x: left - 8, y: y + 19, "text-anchor": "end" }, cut(name, LONG)),
        s("rect.bar", { x: left, y: y + 6, width: long, height: 18 }),
        s("text.tick", { x: left + long + 6, y: y + 19 }, write(value)),
      ];
    });
    const viewBox = `0 0 ${width} ${rows.length * ROW + 4}`;
    host.replaceChildren(s("svg", { viewBox, role: "img", "aria-label": label }, lines));
  });
}
