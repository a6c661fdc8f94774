// Accuracy per round in both readings: the mean, the best and the worst client, Local, and a chosen client.

import { h } from "./dom.js";
import { figure, indexOf, section } from "./frame.js";
import { lineChart } from "./chart.js";
import { called, cut, isNumber, percent } from "./words.js";

const READINGS = {
  personal: ["Personal", "each client’s own model, after it trained"],
  shared: ["Shared", "the model each client receives"],
};

const HOW_TO_READ_A_BAND =
  "The line is the mean over all samples; the band reaches from the worst client to the best.";

export function accuracySection({ story, course, ui, choose }) {
  const curves = course.accuracy;
  if (!curves?.rounds.length) return null;
  const there = Object.keys(READINGS).filter((reading) => curves[reading]);
  const all = there
    .flatMap((reading) => [...curves[reading].worst, ...(course.local?.mean ?? [])])
    .filter(isNumber);
  const floor = Math.max(0, Math.floor((Math.min(...all, 100) - 2) / 10) * 10);
  const charts = there.map((reading) => chart(course, ui, choose, reading, floor));
  const told = "In percent, on the sites’ own test samples and as they tell it.";
  const measured = "In percent, on the honest clients’ own test samples.";
  const node = section(
    "accuracy",
    "Accuracy",
    `${story.kind === "federation" ? told : measured} ${HOW_TO_READ_A_BAND}`,
    h(
      "div.pair",
      charts.map(({ figure }) => figure),
    ),
    course.local &&
      h(
        "p.note",
        `Local is ${course.local.source[0].toLowerCase()}${cut(course.local.source.slice(1), 300)}`,
      ),
  );
  return { node, show: () => charts.forEach(({ move }) => move(indexOf(curves.rounds, ui.round))) };
}

function chart(course, ui, choose, reading, floor) {
  const { rounds } = course.accuracy;
  const { mean, worst, best, clients } = course.accuracy[reading];
  const local =
    course.local && rounds.map((round) => course.local.mean[course.local.rounds.indexOf(round)] ?? null);
  const own = ui.client === null ? null : clients[ui.client];
  const name = own && course.clients[ui.client].name;
  const lines = [
    { name: "best", y: best, kind: "bound", label: "best client" },
    { name: "worst", y: worst, kind: "bound", label: "worst client" },
    local?.some(isNumber) && { name: "Local", y: local, kind: "local", label: "Local" },
    { name: "mean", y: mean, kind: reading, label: "mean" },
    own && Array.from(own).some(isNumber) && { name, y: own, kind: "own", label: called(name, 14) },
  ].filter(Boolean);
  const tell = (i) =>
    [
      `Round ${rounds[i]}: mean ${percent(mean[i])}`,
      `worst client ${percent(worst[i])}`,
      `best ${percent(best[i])}`,
      local && isNumber(local[i]) && `Local ${percent(local[i])}`,
      own && isNumber(own[i]) && `${called(name)} ${percent(own[i])}`,
    ]
      .filter(Boolean)
      .join(", ");
  const [title, when] = READINGS[reading];
  const made = lineChart({
    x: rounds,
    lines,
    bands: [{ low: worst, high: best, kind: reading }],
    within: [floor, 100],
    yName: "%",
    format: (it) => String(it),
    label: `accuracy per round, ${reading}`,
    key: `accuracy ${reading}`,
    at: indexOf(rounds, ui.round),
    tell,
    choose: (i) => choose({ round: rounds[i] }),
  });
  return { figure: figure(`${title}: ${when}`, made.node), move: made.move };
}
