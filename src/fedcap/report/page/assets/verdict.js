// The verdict, before any picture: what ran, the figures that matter with a sentence each, and the checks.

import { h } from "./dom.js";
import { count, cut } from "./words.js";

const MARKS = { ok: ["✓", "fine"], warn: ["!", "look at this"], bad: ["✕", "bad"], none: ["–", "nothing to check"] };
const KINDS = { run: "run", grid: "comparison", federation: "federation" };

export function verdict(story) {
  const { kind, state, played, planned } = story;
  const unit = kind === "grid" ? "run" : "round";
  const progress = planned > 0 && state !== "finished" && h("p", { class: "state" },
    h("progress", { value: played, max: Math.max(planned, played, 1), "aria-label": "progress" }),
    state === "stopped" ? `stopped after ${count(played, unit)} of ${planned}` : `${played} of ${count(planned, unit)} so far`);
  return h("header", { class: "verdict", id: "verdict" },
    h("p", { class: "kind" }, `A ${KINDS[kind] ?? kind}`),
    h("h1", null, cut(story.title, 200)),
    h("p", { class: "lead" }, cut(story.sentence, 800)),
    progress,
    story.headlines?.length > 0 && h("dl", { class: "headlines" }, story.headlines.map(({ value, label, sentence }) =>
      h("div", null, h("dt", null, label), h("dd", { class: "value" }, value), h("dd", { class: "sentence" }, cut(sentence, 300))))),
    story.checks?.length > 0 && h("ul", { class: "checks" }, story.checks.map(({ mark, name, words }) => {
      const [sign, meaning] = MARKS[mark] ?? MARKS.none;
      return h("li", { class: mark }, h("span", { class: "sign", role: "img", "aria-label": meaning }, sign), h("strong", null, name), h("span", null, cut(words, 400)));
    })),
    story.troubles?.length > 0 && h("div", { class: "troubles", role: "note" }, h("strong", null, "What could not be read"),
      h("ul", null, story.troubles.map((words) => h("li", null, cut(words, 500))))));
}
