// A line chart that is read by pointer and by keys: ← → go along the rounds, ↑ ↓ from line to line.

import { fitted, h } from "./dom.js";
import { plot } from "./plot.js";

/**
 * Draw a chart.
 *
 * `x` are the rounds. `lines` are `{y, kind, label}`: `kind` is the class that styles it, `label` is written at its
 * end. `bands` are `{low, high, kind}`, `marks` are `{x, y, shape, kind, title}`. `tell(index, line)` is the sentence
 * of the read-out. `picks` lets the pointer choose among lines. `choose(index, line)` is called by a click or Enter.
 * `at` and `line` are where the cursor rests. `chart.move(index)` moves it.
 */
export function lineChart({ height = 260, ...given }) {
  const spec = { height, line: null, ...given };
  const { x, lines } = spec;
  const readout = h("p.readout");
  const host = h("div.chart");
  let [index, line, drawing] = [spec.at, spec.line, null];

  const read = () => {
    const words = x.length ? spec.tell(index, lines[line]) : "nothing yet";
    readout.textContent = words;
    drawing?.svg.setAttribute("aria-valuenow", x[index] ?? 0);
    drawing?.svg.setAttribute("aria-valuetext", words);
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
