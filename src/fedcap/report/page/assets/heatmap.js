// A square map of weights: a canvas with a pixel per cell, stretched, under an SVG with names, frames and legend.

import { fitted, h, s } from "./dom.js";
import { colour, css } from "./colours.js";
import { cut, isNumber, percent } from "./words.js";

const LONGEST = 14;
const LARGEST = 560;
const LARGEST_CELL = 64;
const STEPS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

/**
 * Draw a map. `names` are those of rows and columns, `flags` a sign for each ("▲" for an attacker, or nothing).
 * `top` is the weight at which the colours end. `tell(row, column)` is the read-out, `choose(row)` is called by a
 * click or Enter. `map.paint(weights)` shows a round; `map.frame(row)` marks a row.
 */
export function heatMap({ names, flags, top, tell, choose, label }) {
  const size = names.length;
  const canvas = h("canvas", { width: size, height: size });
  const host = h("div.map", canvas);
  const readout = h("p.readout");
  const under = { node: canvas, place: null };
  let [row, column, framed, svg] = [null, null, null, null];

  const read = () => {
    const words = tell(row, column);
    readout.textContent = words;
    svg?.setAttribute("aria-valuetext", words);
    frame(".cell", row === null ? null : [column, row, 1]);
    frame(".row", framed === null ? null : [0, framed, size]);
  };
  const frame = (which, box) => {
    const rect = svg?.querySelector(which);
    rect?.setAttribute("visibility", box ? "visible" : "hidden");
    if (!rect || !box) return;
    const { x, y, width } = under.place;
    const [left, above, across] = box.map((cells) => (cells * width) / size);
    rect.setAttribute("x", x + left);
    rect.setAttribute("y", y + above);
    rect.setAttribute("width", across);
    rect.setAttribute("height", width / size);
  };
  const point = (event) => {
    const box = canvas.getBoundingClientRect();
    const [across, down] = [event.clientX - box.left, event.clientY - box.top].map((at) =>
      Math.floor((at / box.width) * size),
    );
    const inside = [across, down].every((at) => at >= 0 && at < size);
    [row, column] = inside ? [down, across] : [null, null];
    read();
  };
  const leave = () => {
    row = column = null;
    read();
  };
  const press = (event) => {
    if (event.key === "Enter" && row !== null) return choose(row);
    const step = STEPS[event.key];
    if (!step) return;
    event.preventDefault();
    const within = (at) => Math.min(size - 1, Math.max(0, at));
    [row, column] = row === null ? [0, 0] : [within(row + step[0]), within(column + step[1])];
    read();
  };

  fitted(host, (width) => {
    const margin = Math.max(...names.map((name) => Math.min(LONGEST, name.length))) * 6 + 22;
    const side = Math.max(80, Math.min(LARGEST, LARGEST_CELL * size, width - margin - 2));
    under.place = { x: margin, y: margin, width: side, height: side };
    canvas.style.left = canvas.style.top = `${margin}px`;
    canvas.style.width = canvas.style.height = `${side}px`;
    svg?.remove();
    svg = picture({ names, flags, top, label }, under.place);
    const heard = { pointermove: point, pointerdown: point, pointerleave: leave, keydown: press };
    for (const [name, hear] of Object.entries(heard)) svg.addEventListener(name, hear);
    svg.addEventListener("click", () => row !== null && choose(row));
    host.append(svg);
    read();
  });

  return {
    node: h("div", host, readout),
    canvas: under,
    paint(weights) {
      canvas.getContext("2d").putImageData(image(weights, top), 0, 0);
      read();
    },
    frame(fresh) {
      framed = fresh;
      read();
    },
  };
}

/** A pixel per weight; what is missing stays clear. */
function image(weights, top) {
  const made = new ImageData(weights.length, weights.length);
  const shades = Array.from({ length: 256 }, (_, i) => [...colour(i / 255), 255]);
  weights.forEach((line, y) =>
    line.forEach((weight, x) => {
      const shade = Math.min(255, Math.round((255 * weight) / top));
      if (isNumber(weight)) made.data.set(shades[shade], 4 * (y * weights.length + x));
    }),
  );
  return made;
}

/** Names along both sides as far as there is room, signs of attackers, frames, and the legend. */
function picture({ names, flags, top, label }, { x, y, width }) {
  const [side, below, bar] = [width / names.length, y + width + 14, Math.min(160, width)];
  const every = Math.ceil(11 / side);
  const size = Math.min(11, Math.max(7, side));
  const named = names.flatMap((name, i) => {
    const text = `${i % every ? "" : cut(name, LONGEST)} ${i % every && side < 5 ? "" : flags[i]}`.trim();
    const middle = (i + 0.5) * side + size / 3;
    const kind = { class: flags[i] && "attacker", "--size": `${size}px` };
    return [
      s("text.name", { x: x - 5, y: y + middle, "text-anchor": "end", ...kind }, text),
      s("text.name", { transform: `translate(${x + middle},${y - 5})rotate(-90)`, ...kind }, text),
    ];
  });
  const stops = Array.from({ length: 9 }, (_, i) =>
    s("stop", { offset: i / 8, "stop-color": css(colour(i / 8)) }),
  );
  const [wide, high] = [x + width + 2, y + width + 40];
  return s(
    "svg",
    {
      viewBox: `0 0 ${wide} ${high}`,
      width: wide,
      height: high,
      tabindex: 0,
      role: "slider",
      "aria-label": label,
      "data-key": "map",
      "aria-valuenow": 0,
    },
    s("defs", s("linearGradient", { id: "ramp" }, stops)),
    named.filter((one) => one.textContent),
    s("rect.edge", { x, y, width, height: width }),
    s("rect.frame.row", { visibility: "hidden" }),
    s("rect.frame.cell", { visibility: "hidden" }),
    s("rect", { x, y: below, width: bar, height: 8, fill: "url(#ramp)" }),
    s("text.tick", { x, y: below + 22 }, "0 %"),
    s("text.tick", { x: x + bar, y: below + 22, "text-anchor": "end" }, `${percent(100 * top)} % and more`),
  );
}
