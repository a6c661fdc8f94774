// A square map of weights: a canvas with one pixel per cell, under an SVG with names, frames and a legend.

import { fitted, h, s } from "./dom.js";
import { cut, isNumber, percent } from "./text.js";

const RAMPS = {
  light: [[247, 249, 252], [198, 219, 239], [107, 174, 214], [33, 113, 181], [8, 48, 107]],
  dark: [[24, 29, 36], [22, 58, 95], [33, 113, 181], [107, 174, 214], [222, 235, 247]],
};
const LONGEST = 14;
const LARGEST = 560;
const LARGEST_CELL = 64;
const STEPS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

export function isDark() {
  const scheme = getComputedStyle(document.documentElement).colorScheme;
  return scheme === "dark" || (scheme !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
}

/** Red, green and blue for a share between 0 and 1: from the page's ground to a strong blue. */
export function colour(share, dark = isDark()) {
  const ramp = RAMPS[dark ? "dark" : "light"];
  const place = Math.min(1, Math.max(0, share)) * (ramp.length - 1);
  const step = Math.min(ramp.length - 2, Math.floor(place));
  return ramp[step].map((part, i) => Math.round(part + (ramp[step + 1][i] - part) * (place - step)));
}

export const css = (rgb) => `rgb(${rgb.join(" ")})`;

/** Black or white, whichever is easier to read on a colour. */
export function inkOn(rgb) {
  const [r, g, b] = rgb.map((part) => (part / 255) ** 2.2);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.2 ? "#111" : "#fff";
}

/**
 * Draw a map. `names` are those of rows and columns, `flags` is "▲" for a malicious client or empty. `top` is the
 * weight of the strongest colour. `describe(row, column)` is the text below; a click or Enter calls `choose(row)`.
 * `map.paint(weights)` shows a round; `map.frame(row)` marks a row.
 */
export function heatMap({ names, flags, top, describe, choose, label }) {
  const size = names.length;
  const canvas = h("canvas", { width: size, height: size });
  const host = h("div.map", canvas);
  const readout = h("p.readout");
  let [row, column, framed, svg, place] = [null, null, null, null, null];

  const read = () => {
    const text = describe(row, column);
    readout.textContent = text;
    svg?.setAttribute("aria-valuetext", text);
    frame(".cell", row === null ? null : [column, row, 1]);
    frame(".row", framed === null ? null : [0, framed, size]);
  };
  const frame = (which, box) => {
    const rect = svg?.querySelector(which);
    rect?.setAttribute("visibility", box ? "visible" : "hidden");
    if (!rect || !box) return;
    const [left, above, across] = box.map((cells) => (cells * place.width) / size);
    rect.setAttribute("x", place.margin + left);
    rect.setAttribute("y", place.margin + above);
    rect.setAttribute("width", across);
    rect.setAttribute("height", place.width / size);
  };
  const point = (event) => {
    const box = canvas.getBoundingClientRect();
    const at = [event.clientY - box.top, event.clientX - box.left].map((it) => Math.floor((it / box.width) * size));
    [row, column] = at.every((it) => it >= 0 && it < size) ? at : [null, null];
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
    place = { margin, width: Math.max(80, Math.min(LARGEST, LARGEST_CELL * size, width - margin - 2)) };
    canvas.style.left = canvas.style.top = `${margin}px`;
    canvas.style.width = canvas.style.height = `${place.width}px`;
    svg?.remove();
    svg = picture({ names, flags, top, label }, place);
    const heard = { pointermove: point, pointerdown: point, pointerleave: leave, keydown: press };
    for (const [name, hear] of Object.entries(heard)) svg.addEventListener(name, hear);
    svg.addEventListener("click", () => row !== null && choose(row));
    host.append(svg);
    read();
  });

  return {
    node: h("div", host, readout),
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

/** One pixel per weight; a missing one is transparent. */
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

/** The names along both sides as far as there is room, the frames, and the legend. */
function picture({ names, flags, top, label }, { margin, width }) {
  const [side, below, bar] = [width / names.length, margin + width + 14, Math.min(160, width)];
  const every = Math.ceil(11 / side);
  const size = Math.min(11, Math.max(7, side));
  const named = names.flatMap((name, i) => {
    const text = `${i % every ? "" : cut(name, LONGEST)} ${i % every && side < 5 ? "" : flags[i]}`.trim();
    const middle = margin + (i + 0.5) * side + size / 3;
    const kind = { class: flags[i] && "malicious", "--size": `${size}px` };
    return [
      s("text.name", { x: margin - 5, y: middle, "text-anchor": "end", ...kind }, text),
      s("text.name", { transform: `translate(${middle},${margin - 5})rotate(-90)`, ...kind }, text),
    ];
  });
  const stops = Array.from({ length: 9 }, (_, i) =>
    s("stop", { offset: i / 8, "stop-color": css(colour(i / 8)) }),
  );
  const [wide, high] = [margin + width + 2, margin + width + 40];
  const view = { viewBox: `0 0 ${wide} ${high}`, width: wide, height: high };
  return s(
    "svg",
    { ...view, tabindex: 0, role: "slider", "aria-label": label, "data-key": "map", "aria-valuenow": 0 },
    s("defs", s("linearGradient", { id: "ramp" }, stops)),
    named.filter((one) => one.textContent),
    s("rect.edge", { x: margin, y: margin, width, height: width }),
    s("rect.frame.row", { visibility: "hidden" }),
    s("rect.frame.cell", { visibility: "hidden" }),
    s("rect", { x: margin, y: below, width: bar, height: 8, fill: "url(#ramp)" }),
    s("text.tick", { x: margin, y: below + 22 }, "0 %"),
    s("text.tick", { x: margin + bar, y: below + 22, "text-anchor": "end" }, `${percent(100 * top)} % or more`),
  );
}
