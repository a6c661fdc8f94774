// A line chart as SVG: lines, bands, marks, words at the lines' ends, and a cursor that reads values out.
// The cursor follows the pointer and the arrow keys: ← → along the rounds, ↑ ↓ from line to line.

import { fitted, h, s } from "./dom.js";
import { cut, isNumber, measure } from "./words.js";
import { rangeOf, scaleOf } from "./scale.js";

const HEIGHT = 260;
const TOP = 22;
const LETTER = 6.3;
const SHAPES = {
  triangle: "M0,-5L5,4H-5Z",
  cross: "M-4,-4L4,4M-4,4L4,-4",
  dot: "M-3,0a3,3 0 1 0 6,0a3,3 0 1 0 -6,0",
};

/**
 * Draw a chart.
 *
 * `x` are the rounds. `lines` are `{name, y, kind, label}`: `kind` is the class that styles it, `label` is written
 * at its end. `bands` are `{low, high, kind}`; `marks` are `{x, y, shape, kind, title}`. `tell(index, line)` is the
 * sentence of the read-out. `picks` lets the pointer choose among lines; `choose(index, line)` is called by a click
 * or Enter. `at` is where the cursor is at first.
 */
export function lineChart(spec) {
  const { x, lines, bands = [], marks = [], log = false, height = HEIGHT } = spec;
  const readout = h("p", { class: "readout" });
  const host = h("div", { class: "chart" });
  let [index, line, place] = [spec.at ?? x.length - 1, spec.line ?? null, null];

  const read = () => {
    const words = x.length ? spec.tell(index, line === null ? null : lines[line]) : "nothing yet";
    readout.textContent = words;
    host.firstChild?.setAttribute("aria-valuenow", x[index] ?? 0);
    host.firstChild?.setAttribute("aria-valuetext", words);
    place?.(index, line);
  };

  fitted(host, (width) => {
    const drawing = drawn(spec, width);
    place = drawing.place;
    const { svg } = drawing;
    const point = (event) => {
      const box = svg.getBoundingClientRect();
      index = drawing.nearestIndex(((event.clientX - box.left) * width) / box.width);
      if (spec.picks) line = drawing.nearestLine(index, ((event.clientY - box.top) * width) / box.width);
      read();
    };
    svg.addEventListener("pointermove", point);
    svg.addEventListener("pointerdown", point);
    svg.addEventListener("click", () => spec.choose?.(index, line === null ? null : lines[line]));
    svg.addEventListener("pointerleave", () => {
      [index, line] = [spec.at ?? x.length - 1, spec.line ?? null];
      read();
    });
    svg.addEventListener("keydown", (event) => {
      const along = { ArrowLeft: index - 1, ArrowRight: index + 1, Home: 0, End: x.length - 1 }[event.key];
      const across = { ArrowUp: -1, ArrowDown: 1 }[event.key];
      if (along !== undefined) index = Math.min(x.length - 1, Math.max(0, along));
      else if (across && spec.picks) line = drawing.nextLine(index, line, across);
      else if (event.key === "Enter") return void spec.choose?.(index, line === null ? null : lines[line]);
      else return;
      event.preventDefault();
      read();
    });
    host.replaceChildren(svg);
    read();
  });
  return {
    node: h("div", null, host, readout),
    move(to) {
      spec.at = index = to;
      read();
    },
  };
}

/** The picture at a width, and how to find places in it. */
function drawn({ x, lines, bands = [], marks = [], log = false, height = HEIGHT, ...spec }, width) {
  const labelled = lines.filter((one) => one.label && one.y.some(isNumber));
  const right = labelled.length ? Math.min(120, 12 + LETTER * Math.max(...labelled.map((it) => it.label.length))) : 12;
  const yRange = rangeOf([...lines.map((it) => it.y), ...bands.flatMap((it) => [it.low, it.high])], { log, within: spec.within });
  const across = scaleOf(x.length > 1 ? [x[0], x.at(-1)] : [(x[0] ?? 0) - 1, (x[0] ?? 0) + 1], [46, width - right]);
  const up = scaleOf(yRange, [height - 34, TOP], log);
  const visible = (value) => isNumber(value) && (!log || value > 0);
  const path = (y) => {
    const places = [];
    x.forEach((at, i) => visible(y[i]) && places.push(`${across(at).toFixed(1)},${up(y[i]).toFixed(1)}`));
    return !places.length ? "" : places.length > 1 ? `M${places.join("L")}` : `M${places[0]}m-7,0h14`;
  };

  const kinds = [...new Set(lines.map((it) => it.kind))];
  const cursor = s("line", { class: "cursor", y1: TOP, y2: height - 34 });
  const chosen = s("path", { class: "line chosen" });
  const spot = s("path", { class: "spot", d: SHAPES.dot });
  const svg = s(
    "svg",
    {
      viewBox: `0 0 ${width} ${height}`, tabindex: 0, role: "slider", "data-key": spec.key, "aria-label": spec.label,
      "aria-valuemin": x[0] ?? 0, "aria-valuemax": x.at(-1) ?? 0, "aria-orientation": "horizontal",
    },
    axes(across, up, width, height, right, { ...spec, x }),
    bands.map((band) => s("path", { class: `band ${band.kind}`, d: area(x, band, across, up, visible) })),
    cursor,
    kinds.map((kind) => s("path", { class: `line ${kind}`, d: lines.filter((it) => it.kind === kind).map((it) => path(it.y)).join("") })),
    chosen,
    marks.filter((mark) => visible(mark.y)).map((mark) =>
      s("path", { class: `mark ${mark.kind}`, d: SHAPES[mark.shape], transform: `translate(${across(mark.x)},${up(mark.y)})` },
        mark.title && s("title", null, cut(mark.title, 300)))),
    spot,
    apart(labelled.map((one) => ({ ...one, at: up(one.y.findLast(visible) ?? yRange[0]) })), height - 34)
      .map((one) => s("text", { class: `label ${one.kind}`, x: width - right + 8, y: one.at + 4 }, one.label)),
  );

  return {
    svg,
    place(index, line) {
      const at = isNumber(x[index]) ? across(x[index]) : 0;
      cursor.setAttribute("x1", at);
      cursor.setAttribute("x2", at);
      const y = line === null ? null : lines[line]?.y;
      chosen.setAttribute("d", y ? path(y) : "");
      const there = y && visible(y[index]);
      spot.setAttribute("visibility", there ? "visible" : "hidden");
      if (there) spot.setAttribute("transform", `translate(${at},${up(y[index])})`);
    },
    nearestIndex: (px) => x.reduce((best, at, i) => (Math.abs(across(at) - px) < Math.abs(across(x[best]) - px) ? i : best), 0),
    nearestLine(index, py) {
      const away = lines.map((it) => (visible(it.y[index]) && !it.silent ? Math.abs(up(it.y[index]) - py) : Infinity));
      const least = away.indexOf(Math.min(...away));
      return away[least] < 40 ? least : null;
    },
    nextLine(index, line, step) {
      const order = lines.map((_, i) => i).filter((i) => visible(lines[i].y[index]) && !lines[i].silent);
      order.sort((a, b) => lines[b].y[index] - lines[a].y[index]);
      return order.length ? order[(order.indexOf(line) + step + order.length) % order.length] : null;
    },
  };
}

function axes(across, up, width, height, right, { x, xName = "round", yName, format = measure }) {
  const rounds = [...new Set(across.ticks(Math.min(x.length - 1, width / 80)).map(Math.round))].filter((at) => at >= x[0]);
  return [
    up.ticks(5).map((value) => [
      s("line", { class: "grid", x1: 46, x2: width - right, y1: up(value), y2: up(value) }),
      s("text", { class: "tick", x: 40, y: up(value) + 4, "text-anchor": "end" }, format(value)),
    ]),
    (x.length === 1 ? x : rounds).map((at) => s("text", { class: "tick", x: across(at), y: height - 16, "text-anchor": "middle" }, String(at))),
    s("text", { class: "axis", x: (46 + width - right) / 2, y: height - 2, "text-anchor": "middle" }, xName),
    yName && s("text", { class: "axis", x: 0, y: 9 }, yName),
  ].flat(2);
}

function area(x, { low, high }, across, up, visible) {
  const there = x.map((_, i) => i).filter((i) => visible(low[i]) && visible(high[i]));
  const along = (ids, y) => ids.map((i) => `${across(x[i]).toFixed(1)},${up(y[i]).toFixed(1)}`).join("L");
  return there.length > 1 ? `M${along(there, high)}L${along(there.toReversed(), low)}Z` : "";
}

/** Push labels apart so that none covers another. */
function apart(labels, bottom) {
  labels.sort((a, b) => a.at - b.at);
  labels.forEach((one, i) => (one.at = Math.max(one.at, (labels[i - 1]?.at ?? -Infinity) + 14)));
  let floor = bottom;
  for (const one of labels.toReversed()) [one.at, floor] = [Math.min(one.at, floor), Math.min(one.at, floor) - 14];
  return labels;
}
