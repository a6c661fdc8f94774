// Who is mixed from whom: a map of the weights, a row per client's model, a column per contributor, round by round.

import { button, h } from "./dom.js";
import { figure, indexOf, section } from "./frame.js";
import { heatMap } from "./heatmap.js";
import { called, count, isNumber, measure, percent } from "./words.js";

const SHOWN = 6;
const STEP = 350;
const HOW_TO_READ =
  "Each row is a client’s model, each column a client it is mixed from; the stronger the colour, the more. " +
  "Clients lie in the order of likeness, so that groups show as blocks; dots stand where a client was not there.";
const WHAT_TO_LOOK_FOR =
  "Similar clients draw together over the rounds; whoever lies gets little weight, or falls out. " +
  "Choose a row to see what its model is made of.";

export function mixingSection({ course, ui, choose }) {
  const mixing = course.mixing;
  if (!mixing?.rounds.length) return null;
  const groups = mixing.rows.map((members) => groupOf(members, course.clients));
  const names = groups.map(({ name }) => name);
  let at = indexOf(mixing.rounds, ui.round);
  const weight = (row, column) => mixing.weights[at][row][column];
  const chosenRow = () => {
    const row = mixing.rows.findIndex((members) => members.includes(ui.client));
    return row < 0 ? null : row;
  };

  const tell = (row, column) => {
    if (row === null) return `Round ${mixing.rounds[at]}. Point at a field, or use the arrow keys.`;
    const share = weight(row, column);
    const [mine, theirs] = [row, column].map(
      (i) => called(names[i]) + (groups[i].flag ? " (attacker ▲)" : ""),
    );
    if (!isNumber(share))
      return `Round ${mixing.rounds[at]}: ${mine} has nothing from ${theirs}; one of them was not there.`;
    const whence = row === column ? "is its own last one" : `comes from ${theirs}`;
    return `Round ${mixing.rounds[at]}: ${percent(100 * share)} % of ${mine}’s model ${whence}.`;
  };
  const map = heatMap({
    names,
    flags: groups.map(({ flag }) => flag),
    top: topOf(mixing.weights),
    tell,
    choose: (row) => choose({ client: mixing.rows[row][0] }),
    label: "mixing weights, clients by contributors",
  });
  const side = h("div.side");
  const slider = h("input", {
    type: "range",
    min: 0,
    max: mixing.rounds.length - 1,
    value: at,
    "data-key": "slider",
    "aria-label": "round of the map",
    oninput: (event) => choose({ round: mixing.rounds[Number(event.target.value)] }),
  });
  const told = h("output");
  const play = button("▶ play", "play", () => (ui.playing ? stop() : start()), { class: "play" });
  const stop = () => {
    clearInterval(ui.playing);
    ui.playing = null;
    play.textContent = "▶ play";
  };
  const start = () => {
    if (at === mixing.rounds.length - 1) choose({ round: mixing.rounds[0] });
    const pace = matchMedia("(prefers-reduced-motion: reduce)").matches ? 3 * STEP : STEP;
    clearInterval(ui.playing);
    ui.playing = setInterval(
      () => (at < mixing.rounds.length - 1 ? choose({ round: mixing.rounds[at + 1] }) : stop()),
      pace,
    );
    play.textContent = "❚❚ pause";
  };
  if (ui.playing) start();

  const show = () => {
    at = indexOf(mixing.rounds, ui.round);
    slider.value = at;
    slider.setAttribute("aria-valuetext", `round ${mixing.rounds[at]}`);
    told.textContent = `round ${mixing.rounds[at]} of ${mixing.rounds.at(-1)}`;
    map.paint(mixing.weights[at]);
    map.frame(chosenRow());
    side.replaceChildren(...beside(mixing, groups, at, chosenRow()));
  };
  show();
  const attackers = groups.some(({ flag }) => flag) ? " ▲ marks attackers." : "";
  const node = section(
    "mixing",
    "Who is mixed from whom",
    `${HOW_TO_READ}${attackers}`,
    h("div.controls", play, slider, told),
    h("div.beside", figure(`Mixing weights`, map.node, { canvas: map.canvas }), side),
  );
  return { node, show };
}

function groupOf(members, clients) {
  const first = clients[members[0]];
  const some = members.length > 1 ? ` + ${members.length - 1}` : "";
  return { name: first.name + some, flag: members.some((i) => clients[i].role === "attacker") ? "▲" : "" };
}

/** The weight at which colours end: all but the largest hundredth of the weights of others are below it. */
function topOf(weights) {
  const step = Math.ceil((weights.length * weights[0].length ** 2) / 200000);
  const found = [];
  let turn = 0;
  for (const round of weights)
    round.forEach((line, row) =>
      line.forEach((weight, column) => {
        if (row !== column && isNumber(weight) && turn++ % step === 0) found.push(weight);
      }),
    );
  found.sort((a, b) => a - b);
  return found[Math.floor(found.length * 0.99)] || 1;
}

/** What stands beside the map: of what a chosen client's model is made, or what to look for. */
function beside(mixing, groups, at, row) {
  const clients = measure(Math.exp(mixing.entropy[at]));
  const even = `On average a model draws on ${clients} clients: so many equal shares are as even as these weights.`;
  const note = isNumber(mixing.entropy[at]) ? [h("p", even)] : [];
  if (row === null) return [h("h3", "What to look for"), ...note, h("p", WHAT_TO_LOOK_FOR)];
  const parts = Array.from(mixing.weights[at][row], (share, i) => ({ share, ...groups[i], own: i === row }))
    .filter(({ share }) => share > 0)
    .sort((a, b) => b.share - a.share);
  const none = h("p", `It was sent no model in round ${mixing.rounds[at]}.`);
  const title = `What ${called(groups[row].name)}’s model is made of`;
  return [h("h3", title), parts.length ? shares(parts) : none, ...note];
}

function shares(parts) {
  const bar = (words, share, kind) =>
    h(
      "li",
      h("span", words),
      h("span", `${percent(100 * share)} %`),
      h("span.bar", { class: kind, "--share": `${(100 * share) / parts[0].share}%` }),
    );
  const rest = parts.slice(SHOWN).reduce((sum, { share }) => sum + share, 0);
  return h(
    "ul.bars",
    parts
      .slice(0, SHOWN)
      .map(({ name, own, flag, share }) =>
        bar(`${called(name)}${own ? " (itself)" : ""} ${flag}`, share, flag && "attacker"),
      ),
    rest > 0 && bar(`${count(parts.length - SHOWN, "other")} together`, rest, "rest"),
  );
}
