// A plot as SVG at a given width: axes, bands, lines, marks, words at the lines' ends, and a cursor.

import { s } from "./dom.js";
import { cut, isNumber, measure } from "./words.js";
import { rangeOf, scaleOf } from "./scale.js";

const [LEFT, TOP, BOTTOM] = [46, 22, 34];
const LETTER = 6.3;
const LINE = 14;
const SHAPES = {
  triangle: "M0,-6L5.5,4H-5.5Z",
  cross: "M-7,-7L7,7M-7,7L7,-7",
  dot: "M-3,0a3,3 0 1 0 6,0a3,3 0 1 0 -6,0",
};

/** The picture of a chart's `spec` (see chart.js), and how to find places in it. */
export function plot(spec, width) {
  const { x, lines, bands = [], marks = [] } = spec;
  const at = placesOf(spec, width);
  const kinds = [...new Set(lines.map(({ kind }) => kind))];
  const together = (kind) => lines.map((line) => (line.kind === kind ? at.path(line.y) : "")).join("");
  const cursor = s("line.cursor", { y1: TOP, y2: at.bottom });
  const chosen = s("path.line.chosen");
  const spot = s("path.spot", { d: SHAPES.dot });
  const attributes = {
    viewBox: `0 0 ${width} ${spec.height}`,
    tabindex: 0,
    role: "slider",
    "data-key": spec.key,
    "aria-label": spec.label,
    "aria-valuemin": x[0] ?? 0,
    "aria-valuemax": x.at(-1) ?? 0,
    "aria-orientation": "horizontal",
  };
  const svg = s(
    "svg",
    attributes,
    axes(spec, at),
    bands.map((band) => s("path", { class: `band ${band.kind}`, d: at.area(band.low, band.high) })),
    cursor,
    kinds.map((kind) => s("path", { class: `line ${kind}`, d: together(kind) })),
    chosen,
    marks.filter(({ y }) => at.visible(y)).map((mark) => markAt(mark, at)),
    spot,
    labels(lines, at),
  );
  return { svg, ...finder(spec, at), place };

  function place(index, line) {
    const [along, y] = [isNumber(x[index]) ? at.across(x[index]) : 0, lines[line]?.y];
    cursor.setAttribute("x1", along);
    cursor.setAttribute("x2", along);
    chosen.setAttribute("d", y ? at.path(y) : "");
    const there = y && at.visible(y[index]);
    spot.setAttribute("visibility", there ? "visible" : "hidden");
    if (there) spot.setAttribute("transform", `translate(${along},${at.up(y[index])})`);
  }
}

/** The scales, the edges, and lines and areas as paths. What is missing is skipped. */
function placesOf({ x, lines, bands = [], log = false, within, height }, width) {
  const words = lines.map(({ label, y }) => (label && y.some(isNumber) ? label.length : 0));
  const longest = Math.max(0, ...words);
  const right = width - (longest ? Math.min(120, 12 + LETTER * longest) : 12);
  const bottom = height - BOTTOM;
  const ends = x.length > 1 ? [x[0], x.at(-1)] : [(x[0] ?? 0) - 1, (x[0] ?? 0) + 1];
  const across = scaleOf(ends, [LEFT, right]);
  const series = [...lines.map(({ y }) => y), ...bands.flatMap(({ low, high }) => [low, high])];
  const up = scaleOf(rangeOf(series, { log, within }), [bottom, TOP], log);
  const visible = (value) => isNumber(value) && (!log || value > 0);
  const points = (y, is) =>
    x.flatMap((round, i) => (is(i) ? `${across(round).toFixed(1)},${up(y[i]).toFixed(1)}` : []));
  const path = (y) => {
    const found = points(y, (i) => visible(y[i]));
    return found.length > 1 ? `M${found.join("L")}` : found.length ? `M${found[0]}m-7,0h14` : "";
  };
  const area = (low, high) => {
    const is = (i) => visible(low[i]) && visible(high[i]);
    const round = [...points(high, is), ...points(low, is).reverse()];
    return round.length > 2 ? `M${round.join("L")}Z` : "";
  };
  return { across, up, right, bottom, visible, path, area };
}

function axes({ x, yName, format = measure }, { across, up, right, bottom }) {
  const whole = across.ticks(Math.min(x.length - 1, right / 80)).map(Math.round);
  const rounds = 40 * x.length < right ? x : [...new Set(whole)].filter((round) => round >= x[0]);
  const text = (kind, along, y, anchor, words) =>
    s("text", { class: kind, x: along, y, "text-anchor": anchor }, words);
  return [
    up.ticks(5).map((value) => s("line.grid", { x1: LEFT, x2: right, y1: up(value), y2: up(value) })),
    up.ticks(5).map((value) => text("tick", LEFT - 6, up(value) + 4, "end", format(value))),
    rounds.map((round) => text("tick", across(round), bottom + 18, "middle", String(round))),
    text("axis", (LEFT + right) / 2, bottom + 32, "middle", "round"),
    text("axis", 0, 9, "start", yName),
  ].flat();
}

function markAt({ x, y, shape, kind, title }, { across, up }) {
  const where = `translate(${across(x)},${up(y)})`;
  return s(
    "path",
    { class: `mark ${kind}`, d: SHAPES[shape], transform: where },
    s("title", cut(title, 300)),
  );
}

/** Words at the ends of lines, pushed apart so that none covers another. */
function labels(lines, { up, right, bottom, visible }) {
  const found = lines
    .filter(({ label, y }) => label && y.some(visible))
    .map(({ label, kind, y }) => ({ label, kind, at: up(y.findLast(visible)) }))
    .sort((a, b) => a.at - b.at);
  found.forEach((one, i) => (one.at = Math.max(one.at, i ? found[i - 1].at + LINE : 0)));
  found.toReversed().forEach((one, i, all) => (one.at = Math.min(one.at, i ? all[i - 1].at - LINE : bottom)));
  return found.map(({ label, kind, at }) =>
    s("text", { class: `label ${kind}`, x: right + 8, y: at + 4 }, label),
  );
}

/** How the pointer and the keys find a round and a line. A silent line, such as the limit, is never found. */
function finder({ x, lines }, { across, up, visible }) {
  const there = (index) => lines.flatMap(({ y, silent }, i) => (!silent && visible(y[index]) ? i : []));
  const nearest = (list, distance) =>
    list.reduce((best, one) => (best === null || distance(one) < distance(best) ? one : best), null);
  return {
    nearestIndex: (along) => nearest([...x.keys()], (i) => Math.abs(across(x[i]) - along)),
    nearestLine(index, height) {
      const distance = (i) => Math.abs(up(lines[i].y[index]) - height);
      const found = nearest(there(index), distance);
      return found !== null && distance(found) < 40 ? found : null;
    },
    nextLine(index, line, step) {
      const order = there(index).sort((a, b) => lines[b].y[index] - lines[a].y[index]);
      return order.length ? order[(order.indexOf(line) + step + order.length) % order.length] : null;
    },
  };
}
