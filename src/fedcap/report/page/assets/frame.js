// What stands round every picture: a heading, a sentence on how to read it, choices, and a way to save it.

import { button, h } from "./dom.js";
import { saver, standalone } from "./save.js";

/** A section of the page, found by its name in the address. */
export function section(id, title, words, ...content) {
  return h(
    "section",
    { id, "aria-labelledby": `${id}-title` },
    h("h2", { id: `${id}-title` }, title),
    words && h("p.words", words),
    content,
  );
}

/** A picture with its title and tools; `canvas` is what lies under its SVG. */
export function figure(title, picture, { tools = [], canvas, legend } = {}) {
  const svg = () => picture.querySelector("svg");
  return h(
    "figure",
    h(
      "figcaption",
      h("h3", title),
      h(
        "div.tools",
        tools,
        saver("SVG", title, "image/svg+xml", () => standalone(svg(), canvas)),
      ),
    ),
    legend && h("p.legend", legend),
    picture,
  );
}

/** A row of buttons of which one is pressed. */
export function choice(label, names, chosen, choose) {
  return h(
    "div.choice-row",
    { role: "group", "aria-label": label },
    names.map((name) =>
      button(name, `${label} ${name}`, () => choose(name), { "aria-pressed": String(name === chosen) }),
    ),
  );
}

/** The place of a round among those a picture has: the last that is not after it; the very last if none is chosen. */
export function indexOf(rounds, round) {
  const found = round === null ? -1 : rounds.findLastIndex((one) => one <= round);
  return found < 0 ? (round === null ? rounds.length - 1 : 0) : found;
}
