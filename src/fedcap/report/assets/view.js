// The view of a run or a federation: the overview, then the sections. It keeps the reader's choices.

import { addressOf, note } from "./address.js";
import { button, fitAll, h, refill, section } from "./dom.js";
import { mixingSection } from "./mixing.js";
import {
  accuracySection,
  attackSection,
  classesSection,
  clientsSection,
  costSection,
  detectionSection,
} from "./sections.js";
import { csv, saver } from "./table.js";
import { called, count, cut } from "./text.js";
import { unpack } from "./unpack.js";

const MARKS = {
  ok: ["✓", "fine"],
  warn: ["!", "look at this"],
  bad: ["✕", "bad"],
  none: ["–", "nothing to check"],
};
const KINDS = { run: "Run", grid: "Comparison", federation: "Federation" };

/** The top of every page: what ran, the key figures, the checks, links to sections, and what could not be read. */
export function overview({ kind, title, summary, state, done, planned, figures, checks, problems }, links = []) {
  const unit = kind === "grid" ? "run" : "round";
  const bar = () => h("progress", { value: done, max: Math.max(planned, done), "aria-label": "progress" });
  const progress = state === "stopped" ? `stopped after ${count(done, unit)} of ${planned}` : `${done} of ${count(planned, unit)} so far`;
  const figureOf = ({ value, label, sentence }) =>
    h("div", h("dt", label), h("dd.value", value), h("dd.sentence", cut(sentence, 300)));
  const checkOf = ({ mark, name, text }) => {
    const [sign, meaning] = MARKS[mark] ?? MARKS.none;
    const circle = h("span.sign", { role: "img", "aria-label": meaning }, sign);
    return h("li", { class: mark }, circle, h("strong", name), h("span", cut(text, 400)));
  };
  const list = problems.map((text) => h("li", cut(text, 500)));
  return h(
    "header.overview",
    { id: "overview" },
    h("p.kind", KINDS[kind]),
    h("h1", cut(title, 200)),
    h("p.lead", cut(summary, 800)),
    planned > 0 && state !== "finished" && h("p.state", bar(), progress),
    figures.length > 0 && h("dl.figures", figures.map(figureOf)),
    checks.length > 0 && h("ul.checks", checks.map(checkOf)),
    links.length > 0 && h("div.next", h("strong", "Look next at"), h("ul", links.map((link) => h("li", link)))),
    problems.length > 0 && h("div.problems", { role: "note" }, h("strong", "Could not be read"), h("ul", list)),
  );
}

/** The last section: the command that repeats the run, its provenance and settings, and what the page leaves out. */
export function about({ kind, command, config, provenance, settings, omitted }) {
  const code = h("code", command);
  const copy = (event) =>
    navigator.clipboard?.writeText(command).then(
      () => (event.target.textContent = "copied"),
      () => getSelection().selectAllChildren(code),
    );
  const tools = () => [button("copy", "copy", copy), config && saver("TOML", "config", "application/toml", () => config)];
  return section(
    "about",
    "About",
    null,
    command &&
      h(
        "div.command",
        h("p", kind === "federation" ? "Command that runs it:" : "Command that repeats it:"),
        h("pre", { tabindex: 0 }, code),
        h("div.tools", tools()),
      ),
    facts("Provenance", provenance, true),
    facts("Settings", settings, false),
    omitted.length > 0 && [h("h3", "Left out or rounded"), h("ul", omitted.map((text) => h("li", cut(text, 500))))],
  );
}

function facts(title, list, open) {
  if (!list.length) return null;
  const rows = list.map(({ name, value }) => [name, value]);
  const save = saver("CSV", title.toLowerCase(), "text/csv", () => csv(["name", "value"], rows));
  const lines = rows.map(([name, value]) => h("div", h("dt", cut(name, 80)), h("dd", cut(value, 600))));
  return h("details", { open }, h("summary", title), h("div.tools", save), h("dl", lines));
}

/** For each section: its id, its name in the navigation, and the function that draws it. */
const SECTIONS = [
  ["accuracy", "Accuracy", accuracySection],
  ["detection", "Detection", detectionSection],
  ["mixing", "Mixing", mixingSection],
  ["attack", "Attack", attackSection],
  ["clients", "Clients", clientsSection],
  ["classes", "Classes", classesSection],
  ["cost", "Cost", costSection],
  ["about", "About", ({ report }) => ({ node: about(report) })],
];
/** What a section shows, for those to which the overview can lead. */
const CONTENT = {
  detection: "the scores of each client, and who was removed, when and why",
  mixing: "how much of each model comes from malicious clients",
  attack: "how malicious updates differ from honest ones",
  clients: "the state and the accuracy of each client",
};
/** Where to look if every check is fine. */
const USUAL = ["detection", "clients"];
const NO_DATA = { clients: [], scores: [], events: [] };

/** The choices of a reader in a view. They remain when the report grows. */
export const freshChoices = () => ({ round: null, client: null, score: null });

/**
 * A view of a report whose arrays are packed. `await view.update(report)` draws a newer report;
 * `view.follow(asked)` follows the address.
 */
export function runView(ui) {
  const node = h("div.view");
  const nav = h("nav", { "aria-label": "sections" });
  let [report, sections] = [null, []];

  const choose = (changes) => {
    const client = "client" in changes && changes.client === ui.client ? null : (changes.client ?? ui.client);
    const isOther = client !== ui.client;
    Object.assign(ui, changes, { client });
    if (ui.round >= report.done) ui.round = null; // the newest round: the view follows a run that continues
    note({ round: ui.round, client: client === null ? null : report.run.clients[client].name });
    if (isOther) draw();
    else show();
  };
  const redraw = (changes) => {
    Object.assign(ui, changes);
    draw();
  };
  const show = () => sections.forEach((one) => one.show?.());

  function draw() {
    sections = SECTIONS.flatMap(([id, name, make]) => {
      const made = make({ report, run: report.run, ui, choose, redraw });
      return made ? { id, name, ...made } : [];
    });
    refill(node, [overview(report, nextLinks()), ...sections.map((one) => one.node)]);
    nav.replaceChildren(...sections.map((one) => linkTo(one, "to")), ...chosen());
    fitAll(node);
    show();
  }

  function linkTo({ id, name, node: target }, key) {
    const go = (event) => {
      event.preventDefault();
      note({ at: id });
      target.scrollIntoView();
    };
    return h("a", { href: addressOf({ at: id }), "data-key": `${key} ${id}`, onclick: go }, name);
  }

  /** Links to the sections with the details of the checks that are not fine; without any, to the usual sections. */
  function nextLinks() {
    const wrong = report.checks.filter(({ mark }) => mark === "bad" || mark === "warn").map((check) => check.section);
    const wanted = wrong.some((id) => id in CONTENT) ? wrong : USUAL;
    return sections.filter(({ id }) => wanted.includes(id)).map((one) => [linkTo(one, "next"), `: ${CONTENT[one.id]}`]);
  }

  /** The chosen client, as a button that removes the choice. */
  function chosen() {
    if (ui.client === null) return [];
    const name = called(report.run.clients[ui.client].name, 24);
    const attributes = { class: "chosen", "aria-label": `stop showing ${name}` };
    return [button(`${name} ✕`, "clear", () => choose({ client: ui.client }), attributes)];
  }

  return {
    node,
    nav,
    async update(fresh) {
      report = { ...fresh, run: await unpack(fresh.run ?? NO_DATA) };
      if (ui.client !== null && !report.run.clients[ui.client]) ui.client = null;
      draw();
    },
    follow({ round, client, at }) {
      const found = report.run.clients.findIndex(({ name }) => name === client);
      redraw({ round: Number(round) || null, client: found < 0 ? null : found });
      if (at) document.getElementById(at)?.scrollIntoView();
    },
    draw,
  };
}
