// What the attack came to, what the rounds cost, accuracy by class, and how the run is repeated.

import { button, fitted, h, s } from "./dom.js";
import { figure, indexOf, section } from "./frame.js";
import { lineChart } from "./chart.js";
import { bytes, cut, isNumber, measure, percent, seconds } from "./words.js";
import { csv, saver } from "./save.js";

const total = (values) =>
  Array.from(values)
    .filter(isNumber)
    .reduce((sum, value) => sum + value, 0);

export function attackSection({ course, ui, choose }) {
  const attack = course.attack;
  if (!attack?.rounds.length) return null;
  const { rounds, length, benign_length: benign, cosine } = attack;
  const log = Math.max(...length.filter(isNumber)) > 30 * Math.min(...benign.filter((it) => it > 0));
  const common = { x: rounds, at: indexOf(rounds, ui.round), choose: (i) => choose({ round: rounds[i] }) };
  const charts = [
    lineChart({
      ...common,
      log,
      within: log ? [] : [0],
      label: "length of updates per round",
      key: "attack length",
      yName: log ? "length, logarithmic" : "length",
      lines: [
        { y: length, kind: "attacker", label: "▲ attackers" },
        { y: benign, kind: "honest strong", label: "honest mean" },
      ],
      tell: (i) =>
        `Round ${rounds[i]}: attackers’ updates are ${measure(length[i])} long, the honest mean is ${measure(benign[i])}`,
    }),
    lineChart({
      ...common,
      within: [-1, 1],
      label: "cosine with the honest mean per round",
      key: "attack cosine",
      yName: "cosine",
      lines: [
        { y: rounds.map(() => 0), kind: "limit thin" },
        { y: cosine, kind: "attacker", label: "▲ attackers" },
      ],
      tell: (i) =>
        `Round ${rounds[i]}: cosine ${measure(cosine[i])}; 1 is the honest direction, −1 the opposite`,
    }),
  ];
  const node = section(
    "attack",
    "What the attack came to",
    "The malicious updates as they were sent, against the mean of the honest ones. A round without attackers has none.",
    h(
      "div.pair",
      figure("How long the updates are", charts[0].node),
      figure("Where they point", charts[1].node),
    ),
  );
  return { node, show: () => charts.forEach(({ move }) => move(indexOf(rounds, ui.round))) };
}

export function costSection({ course }) {
  const costs = course.costs;
  if (!costs?.rounds.length) return null;
  const all = total(costs.total);
  const names = { train: "training", evaluate: "testing", attack: "the attack", server: "the server" };
  const parts = Object.entries(names).map(([part, words]) => [words, total(costs[part])]);
  const rest = all - parts.reduce((sum, [, value]) => sum + value, 0);
  const rows = [...parts, ["all else", rest]].filter(([, value]) => value > all * 0.0005);
  const each = total(costs.bytes) / costs.rounds.length;
  const node = section(
    "cost",
    "What it cost",
    `${seconds(all)} in all, ${seconds(all / costs.rounds.length)} a round; ${bytes(each)} sent to and by the clients in each.`,
    figure(
      "Seconds by part",
      bars(rows, (value) => `${seconds(value)}, ${percent((100 * value) / all)} %`),
    ),
  );
  return { node, show: () => {} };
}

export function classesSection({ course }) {
  if (!course.classes?.length) return null;
  const rows = course.classes.map(({ name, value }) => [name, Number.parseFloat(value)]);
  const node = section(
    "classes",
    "Accuracy by class",
    "In the last round, over all honest clients’ test samples, in percent.",
    figure("By class", bars(rows, percent, 100)),
  );
  return { node, show: () => {} };
}

/** Bars with a name and a value each, as SVG. */
function bars(rows, write, most = Math.max(...rows.map(([, value]) => value))) {
  const host = h("div.chart");
  return fitted(host, (width) => {
    const names = Math.min(190, 14 + 6.6 * Math.max(...rows.map(([name]) => Math.min(28, name.length))));
    const values = 12 + 6.6 * Math.max(...rows.map(([, value]) => write(value).length));
    const room = Math.max(20, Math.min(520, width - names - values));
    host.replaceChildren(
      s(
        "svg",
        {
          viewBox: `0 0 ${width} ${rows.length * 26 + 4}`,
          role: "img",
          "aria-label": rows.map(([name, value]) => `${name}: ${write(value)}`).join("; "),
        },
        rows
          .map(([name, value], i) => [
            s("text.label", { x: names - 8, y: i * 26 + 19, "text-anchor": "end" }, cut(name, 28)),
            s("rect.bar", {
              x: names,
              y: i * 26 + 6,
              width: Math.max(1, (room * (value || 0)) / most),
              height: 18,
            }),
            s(
              "text.tick",
              { x: names + Math.max(1, (room * (value || 0)) / most) + 6, y: i * 26 + 19 },
              write(value),
            ),
          ])
          .flat(),
      ),
    );
  });
}

export function aboutSection({ story }) {
  const facts = (title, list) =>
    list?.length > 0 &&
    h(
      "details",
      { open: title === "Provenance" },
      h("summary", title),
      h(
        "div.tools",
        saver("CSV", title.toLowerCase(), "text/csv", () =>
          csv(
            ["name", "value"],
            list.map(({ name, value }) => [name, value]),
          ),
        ),
      ),
      h(
        "dl",
        list.map(({ name, value }) => h("div", h("dt", cut(name, 80)), h("dd", cut(value, 600)))),
      ),
    );
  const said = (title, list) =>
    list?.length > 0 &&
    h(
      "div",
      h("h3", title),
      h(
        "ul",
        list.map((words) => h("li", cut(words, 500))),
      ),
    );
  const node = section(
    "about",
    "How it was made",
    null,
    story.command &&
      h(
        "div.command",
        h("p", "This repeats it:"),
        h("pre", { tabindex: 0 }, h("code", story.command)),
        h(
          "div.tools",
          button("copy", "copy", (event) => copy(event.target, story.command)),
          story.config && saver("TOML", "config", "application/toml", () => story.config),
        ),
      ),
    facts("Provenance", story.provenance),
    facts("Settings", story.settings),
    said("What this page leaves out", story.thinned),
  );
  return { node, show: () => {} };
}

async function copy(target, text) {
  await navigator.clipboard?.writeText(text).then(
    () => (target.textContent = "copied"),
    () => getSelection().selectAllChildren(target.closest(".command").querySelector("code")),
  );
}
