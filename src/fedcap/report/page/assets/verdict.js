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
  const { kind, state, played, planned } = story;
  const unit = kind === "grid" ? "run" : "round";
  const progress =
    planned > 0 &&
    state !== "finished" &&
    h(
      "p.state",
      h("progress", { value: played, max: Math.max(planned, played, 1), "aria-label": "progress" }),
      state === "stopped"
        ? `stopped after ${count(played, unit)} of ${planned}`
        : `${played} of ${count(planned, unit)} so far`,
    );
  return h(
    "header.verdict",
    { id: "verdict" },
    h("p.kind", `A ${KINDS[kind] ?? kind}`),
    h("h1", cut(story.title, 200)),
    h("p.lead", cut(story.sentence, 800)),
    progress,
    story.headlines?.length > 0 &&
      h(
        "dl.headlines",
        story.headlines.map(({ value, label, sentence }) =>
          h("div", h("dt", label), h("dd.value", value), h("dd.sentence", cut(sentence, 300))),
        ),
      ),
    story.checks?.length > 0 &&
      h(
        "ul.checks",
        story.checks.map(({ mark, name, words }) => {
          const [sign, meaning] = MARKS[mark] ?? MARKS.none;
          return h(
            "li",
            { class: mark },
            h("span.sign", { role: "img", "aria-label": meaning }, sign),
            h("strong", name),
            h("span", cut(words, 400)),
          );
        }),
      ),
    story.troubles?.length > 0 &&
      h(
        "div.troubles",
        { role: "note" },
        h("strong", "What could not be read"),
        h(
          "ul",
          story.troubles.map((words) => h("li", cut(words, 500))),
        ),
      ),
  );
}
