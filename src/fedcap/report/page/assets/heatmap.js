// A square map of weights: a canvas with a pixel per cell, stretched, under an SVG with names, frames and legend.

import { fitted, h, s } from "./dom.js";
import { colour, css } from "./colours.js";
import { cut, isNumber, percent } from "./words.js";

const NAME = 14;

/**
 * Draw a map. `names` are those of rows and columns, `flags` a sign for each ("▲" for an attacker, or nothing).
 * `top` is the weight at which the colours end. `tell(row, column)` is the read-out, `choose(row)` is called by a
 * click or Enter. `map.paint(weights)` shows a round; `map.frame(row)` marks a row.
 */
export function heatMap({ names, flags, top, tell, choose, label }) {
  const size = names.length;
  const canvas = h("canvas", { width: size, height: size });
  const over = h("div", { class: "over" });
  const readout = h("p", { class: "readout" });
  const host = h("div", { class: "map" }, canvas, over);
  let [row, column, framed, place, svg] = [null, null, null, null, null];

  const read = () => {
    const words = tell(row, column);
    readout.textContent = words;
    svg?.setAttribute("aria-valuetext", words);
    if (!place) return;
    frame(svg.querySelector(".cell"), row === null ? null : [column, row, 1, 1]);
    frame(svg.querySelector(".row"), framed === null ? null : [0, framed, size, 1]);
  };
  const frame = (rect, box) => {
    const [x, y, width, height] = box ?? [0, 0, 0, 0];
    const side = place.width / size;
    for (const [name, value] of Object.entries({ x: place.x + x * side, y: place.y + y * side, width: width * side, height: height * side })) rect.setAttribute(name, value);
    rect.setAttribute("visibility", box ? "visible" : "hidden");
  };

  fitted(host, (width) => {
    const longest = Math.max(...names.map((name) => Math.min(NAME, name.length))) * 6 + 22;
    const side = Math.max(80, Math.min(560, width - longest - 2));
    place = { x: longest, y: longest, width: side, height: side };
    canvas.style.left = canvas.style.top = `${longest}px`;
    canvas.style.width = canvas.style.height = `${side}px`;
    svg = picture(names, flags, top, place, label);
    const point = (event) => {
      const box = svg.getBoundingClientRect();
      const [x, y] = [event.clientX - box.left - longest, event.clientY - box.top - longest].map((at) => Math.floor((at / side) * size));
      if (x >= 0 && y >= 0 && x < size && y < size) [row, column] = [y, x];
      else row = column = null;
      read();
    };
    svg.addEventListener("pointermove", point);
    svg.addEventListener("pointerdown", point);
    svg.addEventListener("pointerleave", () => { row = column = null; read(); });
    svg.addEventListener("click", () => row !== null && choose(row));
    svg.addEventListener("keydown", (event) => {
      const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
      if (event.key === "Enter" && row !== null) return choose(row);
      if (!step) return;
      event.preventDefault();
      [row, column] = row === null ? [0, 0] : [row + step[0], column + step[1]].map((at) => Math.min(size - 1, Math.max(0, at)));
      read();
    });
    over.replaceChildren(svg);
    host.style.height = `${longest + side + 40}px`;
    read();
  });

  return {
    node: h("div", null, host, readout),
    canvas: { node: canvas, get place() { return place; } },
    get svg() { return svg; },
    paint(fresh) {
      const image = new ImageData(size, size);
      const shades = Array.from({ length: 256 }, (_, i) => [...colour(i / 255), 255]);
      fresh.forEach((line, y) => line.forEach((weight, x) => {
        if (isNumber(weight)) image.data.set(shades[Math.min(255, Math.round((255 * weight) / top))], 4 * (y * size + x));
      }));
      canvas.getContext("2d").putImageData(image, 0, 0);
      read();
    },
    frame(fresh) {
      framed = fresh;
      read();
    },
  };
}

/** Names along both sides as far as there is room, signs of all, frames, and the legend. */
function picture(names, flags, top, { x, y, width }, label) {
  const side = width / names.length;
  const every = Math.ceil(11 / side);
  const labels = names.flatMap((name, i) => {
    const named = i % every === 0;
    const text = `${named ? cut(name, NAME) : ""} ${named || side >= 5 ? flags[i] : ""}`.trim();
    const at = (i + 0.5) * side;
    const size = Math.min(11, Math.max(7, side));
    return !text ? [] : [
      s("text", { class: `name ${flags[i] && "attacker"}`, x: x - 5, y: y + at + size / 3, "text-anchor": "end", "font-size": size }, text),
      s("text", { class: `name ${flags[i] && "attacker"}`, transform: `translate(${x + at + size / 3},${y - 5})rotate(-90)`, "font-size": size }, text),
    ];
  });
  const stops = Array.from({ length: 9 }, (_, i) => s("stop", { offset: i / 8, "stop-color": css(colour(i / 8)) }));
  const below = y + width + 14;
  return s("svg",
    {
      viewBox: `0 0 ${x + width + 2} ${y + width + 40}`, width: x + width + 2, height: y + width + 40,
      tabindex: 0, role: "slider", "aria-label": label, "data-key": "map", "aria-valuenow": 0,
    },
    s("defs", null, s("linearGradient", { id: "ramp" }, stops)),
    labels,
    s("rect", { class: "edge", x, y, width, height: width }),
    s("rect", { class: "frame row", visibility: "hidden" }),
    s("rect", { class: "frame cell", visibility: "hidden" }),
    s("rect", { x, y: below, width: Math.min(160, width), height: 8, fill: "url(#ramp)", class: "legend" }),
    s("text", { class: "tick", x, y: below + 22 }, "0 %"),
    s("text", { class: "tick", x: x + Math.min(160, width), y: below + 22, "text-anchor": "end" }, `${percent(100 * top)} % and more`),
  );
}
