// A comparison: maps of methods by attacks, and what stands above a run of it that was opened.

import { h } from "./dom.js";
import { addressOf } from "./address.js";
import { section } from "./frame.js";
import { aboutSection } from "./about.js";
import { nameOf, panelSection } from "./panel.js";
import { verdict } from "./verdict.js";
import { cut } from "./words.js";

export function gridPage(story) {
  const { panels, failed } = story.map;
  const failures = failed.map(({ title, why }) => h("li", h("strong", cut(title)), ` ${cut(why, 400)}`));
  return h(
    "div.view",
    verdict(story),
    panels.map((panel, i) => panelSection(panel, panels.length > 1 ? i + 1 : null)),
    failed.length > 0 && section("failed", "Runs that failed", null, h("ul", failures)),
    aboutSection({ story }).node,
  );
}

/** Links to a grid's maps, if there are several. */
export function gridNav({ map: { panels } }) {
  const goTo = (event, i) => {
    event.preventDefault();
    document.getElementById(`map-${i + 1}`).scrollIntoView();
  };
  const link = ({ title }, i) => h("a", { href: "#", onclick: (event) => goTo(event, i) }, cut(title, 30));
  return h("nav", { "aria-label": "maps" }, panels.length > 1 ? panels.map(link) : []);
}

/** What stands above a run of a grid: the way back, and its seeds. */
export function cellBar({ panel, row, column, field, cell }) {
  const seeds = field.seeds.map((seed, i) => {
    const href = addressOf({ cell: nameOf(panel, row, column, seed) }, {});
    return h("a", { href, "aria-current": field.cells[i] === cell ? "true" : null }, seed);
  });
  return h(
    "div.cell-bar",
    h("a.back", { href: "#", "data-key": "back" }, "← all methods and attacks"),
    seeds.length > 1 && h("span.choice-row", { role: "group", "aria-label": "seed" }, "seed ", seeds),
  );
}
