// The verdict, before any picture: what ran, the figures that matter with a sentence each, and the checks.

import { h } from "./dom.js";
import { count, cut } from "./words.js";

const MARKS = {
  ok: ["✓", "fine"],
  warn: ["!", "look at this"],
  bad: ["✕", "bad"],
  none: ["–", "nothing to check"],
};
const KINDS = { run: "run", grid: "comparison", federation: "federation" };

export function verdict(story) {
  return h(
    "header.verdict",
    { id: "verdict" },
    h("p.kind", `A ${KINDS[story.kind] ?? story.kind}`),
    h("h1", cut(story.title, 200)),
    h("p.lead", cut(story.sentence, 800)),
    story.planned > 0 && story.state !== "finished" && progress(story),
    story.headlines.length > 0 && h("dl.headlines", story.headlines.map(headline)),
    story.checks.length > 0 && h("ul.checks", story.checks.map(check)),
    story.troubles.length > 0 && troubles(story.troubles),
  );
}

function progress({ kind, state, played, planned }) {
  const unit = kind === "grid" ? "run" : "round";
  const bar = h("progress", { value: played, max: Math.max(planned, played), "aria-label": "progress" });
  const stopped = `stopped after ${count(played, unit)} of ${planned}`;
  return h("p.state", bar, state === "stopped" ? stopped : `${played} of ${count(planned, unit)} so far`);
}

function headline({ value, label, sentence }) {
  return h("div", h("dt", label), h("dd.value", value), h("dd.sentence", cut(sentence, 300)));
}

function check({ mark, name, words }) {
  const [sign, meaning] = MARKS[mark] ?? MARKS.none;
  const circle = h("span.sign", { role: "img", "aria-label": meaning }, sign);
  return h("li", { class: mark }, circle, h("strong", name), h("span", cut(words, 400)));
}

function troubles(list) {
  const lines = list.map((words) => h("li", cut(words, 500)));
  return h("div.troubles", { role: "note" }, h("strong", "What could not be read"), h("ul", lines));
}
