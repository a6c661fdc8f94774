// A line chart as SVG, read by pointer or keys: ← → move along the rounds, ↑ ↓ from line to line.

import { fitted, h, s } from "./dom.js";
import { cut, isNumber, measure } from "./text.js";

const [LEFT, TOP, BOTTOM] = [46, 22, 34];
const [LETTER, LINE] = [6.3, 14];
const SHAPES = {
  triangle: "M0,-6L5.5,4H-5.5Z",
  cross: "M-7,-7L7,7M-7,7L7,-7",
  dot: "M-3,0a3,3 0 1 0 6,0a3,3 0 1 0 -6,0",
};

/**
 * Draw a chart.
 *
 * `x` are the rounds. `lines` are `{y, kind, label}`: `kind` is the CSS class, `label` is written at the end of the
 * line. `bands` are `{low, high, kind}`, `marks` are `{x, y, shape, kind, title}`. `describe(index, line)` returns the
 * text below the chart. With `picks` the pointer chooses among lines. A click or Enter calls `choose(index, line)`.
 * `at` and `line` are where the cursor is without a pointer. `chart.move(index)` moves it.
 */
export function lineChart({ height = 260, ...given }) {
  const spec = { height, line: null, ...given };
  const { x, lines } = spec;
  const readout = h("p.readout");
  const host = h("div.chart");
  let [index, line, drawing] = [spec.at, spec.line, null];

  const read = () => {
    const text = x.length ? spec.describe(index, lines[line]) : "no rounds yet";
    readout.textContent = text;
    drawing?.svg.setAttribute("aria-valuenow", x[index] ?? 0);
    drawing?.svg.setAttribute("aria-valuetext", text);
    drawing?.place(index, line);
  };
  const point = (event) => {
    const box = drawing.svg.getBoundingClientRect();
    const scale = host.clientWidth / box.width;
    index = drawing.nearestIndex((event.clientX - box.left) * scale);
    if (spec.picks) line = drawing.nearestLine(index, (event.clientY - box.top) * scale);
    read();
  };
  const leave = () => {
    [index, line] = [spec.at, spec.line];
    read();
  };
  const press = (event) => {
    const along = { ArrowLeft: index - 1, ArrowRight: index + 1, Home: 0, End: x.length - 1 }[event.key];
    const across = spec.picks && { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (event.key === "Enter") return spec.choose(index, lines[line]);
    if (along === undefined && !across) return;
    event.preventDefault();
    if (across) line = drawing.nextLine(index, line, across);
    else index = Math.min(x.length - 1, Math.max(0, along));
    read();
  };

  fitted(host, (width) => {
    drawing = plot(spec, width);
    const heard = { pointermove: point, pointerdown: point, pointerleave: leave, keydown: press };
    for (const [name, hear] of Object.entries(heard)) drawing.svg.addEventListener(name, hear);
    drawing.svg.addEventListener("click", () => spec.choose(index, lines[line]));
    host.replaceChildren(drawing.svg);
    read();
  });
  return {
    node: h("div", host, readout),
    move(to) {
      spec.at = index = to;
      read();
    },
  };
}

/** The SVG of a chart at a width, and functions that find places in it. */
function plot(spec, width) {
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
    "data-key": spec.label,
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
    const visible = y && at.visible(y[index]);
    spot.setAttribute("visibility", visible ? "visible" : "hidden");
    if (visible) spot.setAttribute("transform", `translate(${along},${at.up(y[index])})`);
  }
}

/** The scales, the edges, and lines and areas as paths. Missing values are skipped. */
function placesOf({ x, lines, bands = [], log = false, within, height }, width) {
  const longest = Math.max(0, ...lines.map(({ label, y }) => (label && y.some(isNumber) ? label.length : 0)));
  const right = width - (longest ? Math.min(120, 12 + LETTER * longest) : 12);
  const bottom = height - BOTTOM;
  const ends = x.length > 1 ? [x[0], x.at(-1)] : [(x[0] ?? 0) - 1, (x[0] ?? 0) + 1];
  const across = scaleOf(ends, [LEFT, right]);
  const series = [...lines.map(({ y }) => y), ...bands.flatMap(({ low, high }) => [low, high])];
  const up = scaleOf(rangeOf(series, log, within), [bottom, TOP], log);
  const visible = (value) => isNumber(value) && (!log || value > 0);
  const points = (y, is) =>
    x.flatMap((round, i) => (is(i) ? `${across(round).toFixed(1)},${up(y[i]).toFixed(1)}` : []));
  const path = (y) => {
    const found = points(y, (i) => visible(y[i]));
    return found.length > 1 ? `M${found.join("L")}` : found.length ? `M${found[0]}m-7,0h14` : "";
  };
  const area = (low, high) => {
    const is = (i) => visible(low[i]) && visible(high[i]);
    const outline = [...points(high, is), ...points(low, is).reverse()];
    return outline.length > 2 ? `M${outline.join("L")}Z` : "";
  };
  return { across, up, right, bottom, visible, path, area };
}

/** A linear or logarithmic scale from [low, high] to [from, to]; `scale.ticks(count)` are round values. */
function scaleOf([low, high], [from, to], log = false) {
  const way = log ? Math.log10 : (value) => value;
  const [start, end] = [way(low), way(high)];
  const scale = (value) => from + ((way(value) - start) / (end - start || 1)) * (to - from);
  scale.ticks = (most) => (log ? decades(low, high, most) : steps(low, high, most));
  return scale;
}

function steps(low, high, most) {
  const rough = (high - low) / Math.max(1, most) || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((one) => one >= rough * 0.999);
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high + step * 1e-9; at++) found.push(at * step);
  return found.map((value) => Number(value.toPrecision(12)));
}

function decades(low, high, most) {
  const [first, last] = [Math.floor(Math.log10(low)), Math.ceil(Math.log10(high))];
  const every = Math.max(1, Math.ceil((last - first) / Math.max(1, most)));
  const parts = last - first <= 2 ? [1, 2, 5] : [1];
  const found = [];
  for (let power = first; power <= last; power += every) found.push(...parts.map((part) => part * 10 ** power));
  return found.filter((value) => value >= low * 0.999 && value <= high * 1.001);
}

/** The lowest and highest of all values and of `within`, with a margin where a value, not `within`, is the end. */
function rangeOf(lists, log, within) {
  const all = [...lists, within].flatMap((list) => Array.from(list)).filter((it) => isNumber(it) && (!log || it > 0));
  if (!all.length) return log ? [0.1, 1] : [0, 1];
  const [low, high] = [all.reduce((a, b) => Math.min(a, b)), all.reduce((a, b) => Math.max(a, b))];
  if (log) return low === high ? [low / 2, high * 2] : [low / 1.15, high * 1.15];
  const margin = (high - low) * 0.04 || Math.abs(high) * 0.1 || 1;
  const from = within.includes(low) ? low : low - margin;
  return [from, Math.max(within.includes(high) ? high : high + margin, from + margin)];
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
  return s("path", { class: `mark ${kind}`, d: SHAPES[shape], transform: where }, s("title", cut(title, 300)));
}

/** Labels at the ends of lines, moved apart so that they do not overlap. */
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
  const present = (index) => lines.flatMap(({ y, silent }, i) => (!silent && visible(y[index]) ? i : []));
  const nearest = (list, distance) =>
    list.reduce((best, one) => (best === null || distance(one) < distance(best) ? one : best), null);
  return {
    nearestIndex: (along) => nearest([...x.keys()], (i) => Math.abs(across(x[i]) - along)),
    nearestLine(index, height) {
      const distance = (i) => Math.abs(up(lines[i].y[index]) - height);
      const found = nearest(present(index), distance);
      return found !== null && distance(found) < 40 ? found : null;
    },
    nextLine(index, line, step) {
      const order = present(index).sort((a, b) => lines[b].y[index] - lines[a].y[index]);
      return order.length ? order[(order.indexOf(line) + step + order.length) % order.length] : null;
    },
  };
}

const ROW = 26;
const LONGEST_NAME = 28;

/** Horizontal bars with a name and a value each; `rows` are [name, value]. */
export function barChart(rows, write, most = Math.max(...rows.map(([, value]) => value))) {
  const host = h("div.chart");
  const label = rows.map(([name, value]) => `${name}: ${write(value)}`).join("; ");
  return fitted(host, (width) => {
    const left = 14 + LETTER * Math.max(...rows.map(([name]) => Math.min(LONGEST_NAME, name.length)));
    const right = 12 + LETTER * Math.max(...rows.map(([, value]) => write(value).length));
    const room = Math.max(20, Math.min(520, width - left - right));
    const bars = rows.map(([name, value], i) => {
      const [y, long] = [i * ROW, Math.max(1, (room * (value || 0)) / most)];
      return [
        s("text.label", { x: left - 8, y: y + 19, "text-anchor": "end" }, cut(name, LONGEST_NAME)),
        s("rect.bar", { x: left, y: y + 6, width: long, height: 18 }),
        s("text.tick", { x: left + long + 6, y: y + 19 }, write(value)),
      ];
    });
    const viewBox = `0 0 ${width} ${rows.length * ROW + 4}`;
    host.replaceChildren(s("svg", { viewBox, role: "img", "aria-label": label }, bars));
  });
}
