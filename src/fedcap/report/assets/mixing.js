// The section on mixing weights: a map with a row per client's model and a column per contributor, for one round.

import { figure, h, indexOf, section } from "./dom.js";
import { heatMap } from "./heatmap.js";
import { called, count, isNumber, measure, percent } from "./text.js";

const SHOWN = 6;
const HOW_TO_READ =
  "Each row is the model of a client. Each column is a client whose model is mixed into it. A stronger colour is a " +
  "larger weight. Similar clients are next to each other, so groups appear as blocks. Dots: did not take part.";
const WHAT_TO_LOOK_FOR =
  "Similar clients should give each other larger weights from round to round. Malicious clients should get small " +
  "weights, or be removed. Choose a row to see the weights of its model.";

export function mixingSection({ run, ui, choose }) {
  const mixing = run.mixing;
  if (!mixing?.rounds.length) return null;
  const { rounds, rows, weights } = mixing;
  const groups = rows.map((members) => groupOf(members, run.clients));
  let at = indexOf(rounds, ui.round);
  const chosenRow = () => {
    const row = rows.findIndex((members) => members.includes(ui.client));
    return row < 0 ? null : row;
  };
  const describe = (row, column) => {
    if (row === null) return `Round ${rounds[at]}. Point at a cell, or use the arrow keys.`;
    const share = weights[at][row][column];
    const [mine, theirs] = [row, column].map((i) => called(groups[i].name) + (groups[i].flag && " (malicious ▲)"));
    if (!isNumber(share)) return `Round ${rounds[at]}: ${mine} or ${theirs} did not take part.`;
    const source = row === column ? "is its own last model" : `comes from ${theirs}`;
    return `Round ${rounds[at]}: ${percent(100 * share)} % of the model of ${mine} ${source}.`;
  };
  const map = heatMap({
    names: groups.map(({ name }) => name),
    flags: groups.map(({ flag }) => flag),
    top: topOf(weights),
    describe,
    choose: (row) => choose({ client: rows[row][0] }),
    label: "mixing weights, clients by contributors",
  });
  const side = h("div.side");
  const slider = h("input", {
    type: "range",
    min: 0,
    max: rounds.length - 1,
    value: at,
    "data-key": "slider",
    "aria-label": "round of the map",
    oninput: (event) => choose({ round: rounds[Number(event.target.value)] }),
  });
  const output = h("output");
  const show = () => {
    at = indexOf(rounds, ui.round);
    slider.value = at;
    slider.setAttribute("aria-valuetext", `round ${rounds[at]}`);
    output.textContent = `round ${rounds[at]} of ${rounds.at(-1)}`;
    map.paint(weights[at]);
    map.frame(chosenRow());
    side.replaceChildren(...explanation(mixing, groups, at, chosenRow()));
  };
  show();
  const flagged = groups.some(({ flag }) => flag) ? " ▲ is a malicious client." : "";
  const node = section(
    "mixing",
    "Mixing weights",
    `${HOW_TO_READ}${flagged}`,
    h("div.controls", slider, output),
    h("div.columns", figure("Weights in one round", map.node), side),
  );
  return { node, show };
}

function groupOf(members, clients) {
  const more = members.length > 1 ? ` + ${members.length - 1}` : "";
  const malicious = members.some((i) => clients[i].role === "malicious");
  return { name: clients[members[0]].name + more, flag: malicious ? "▲" : "" };
}

/** The weight of the strongest colour: 99 % of the weights of other clients are below it. */
function topOf(weights) {
  const step = Math.ceil((weights.length * weights[0].length ** 2) / 200000);
  const others = weights.flatMap((round) =>
    round.flatMap((line, row) => Array.from(line).filter((weight, column) => row !== column && isNumber(weight))),
  );
  const sample = others.filter((_, i) => i % step === 0).sort((a, b) => a - b);
  return sample[Math.floor(sample.length * 0.99)] || 1;
}

/** The text next to the map: the weights of the chosen client's model, or what to look for. */
function explanation(mixing, groups, at, row) {
  const clients = measure(Math.exp(mixing.entropy[at]));
  const spread = `On average, a model is mixed from ${clients} clients (the exponential of the entropy of its weights).`;
  const note = isNumber(mixing.entropy[at]) ? [h("p", spread)] : [];
  if (row === null) return [h("h3", "What to look for"), ...note, h("p", WHAT_TO_LOOK_FOR)];
  const parts = Array.from(mixing.weights[at][row], (share, i) => ({ share, ...groups[i], own: i === row }))
    .filter(({ share }) => share > 0)
    .sort((a, b) => b.share - a.share);
  const none = h("p", `No model was sent to it in round ${mixing.rounds[at]}.`);
  return [h("h3", `The model of ${called(groups[row].name)}`), parts.length ? shares(parts) : none, ...note];
}

function shares(parts) {
  const bar = (name, share, kind) =>
    h(
      "li",
      h("span", name),
      h("span", `${percent(100 * share)} %`),
      h("span.bar", { class: kind, "--share": `${(100 * share) / parts[0].share}%` }),
    );
  const rest = parts.slice(SHOWN).reduce((sum, { share }) => sum + share, 0);
  return h(
    "ul.bars",
    parts
      .slice(0, SHOWN)
      .map(({ name, own, flag, share }) =>
        bar(`${called(name)}${own ? " (itself)" : ""} ${flag}`, share, flag && "malicious"),
      ),
    rest > 0 && bar(`${count(parts.length - SHOWN, "other client")} together`, rest, "rest"),
  );
}
