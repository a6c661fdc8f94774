// How a run is repeated: the command, provenance, settings, and what the page leaves out.

import { button, h } from "./dom.js";
import { section } from "./frame.js";
import { cut } from "./words.js";
import { csv, saver } from "./save.js";

export function aboutSection({ story }) {
  const node = section(
    "about",
    "How it was made",
    null,
    story.command && command(story),
    facts("Provenance", story.provenance, true),
    facts("Settings", story.settings, false),
    story.thinned.length > 0 && h("h3", "What this page leaves out"),
    story.thinned.length > 0 &&
      h(
        "ul",
        story.thinned.map((words) => h("li", cut(words, 500))),
      ),
  );
  return { node, show: () => {} };
}

function command({ kind, command: words, config }) {
  const code = h("code", words);
  const copy = (event) =>
    navigator.clipboard?.writeText(words).then(
      () => (event.target.textContent = "copied"),
      () => getSelection().selectAllChildren(code),
    );
  const save = config && saver("TOML", "config", "application/toml", () => config);
  const tools = h("div.tools", button("copy", "copy", copy), save);
  return h(
    "div.command",
    h("p", kind === "federation" ? "This runs it:" : "This repeats it:"),
    h("pre", { tabindex: 0 }, code),
    tools,
  );
}

function facts(title, list, open) {
  if (!list.length) return null;
  const rows = list.map(({ name, value }) => [name, value]);
  const save = saver("CSV", title.toLowerCase(), "text/csv", () => csv(["name", "value"], rows));
  const lines = rows.map(([name, value]) => h("div", h("dt", cut(name, 80)), h("dd", cut(value, 600))));
  return h("details", { open }, h("summary", title), h("div.tools", save), h("dl", lines));
}
