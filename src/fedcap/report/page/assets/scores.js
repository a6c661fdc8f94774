// What the server sees of each client: a detector's scores over rounds against the limit, and what came of it.

import { button, h, s } from "./dom.js";
import { choice, figure, indexOf, section } from "./frame.js";
import { lineChart } from "./chart.js";
import { called, cut, isNumber, measure } from "./words.js";
import { table } from "./table.js";

const WIDE = 30;
const TRIANGLES = 200;
const WORDS = {
  removed: "removed",
  suspected: "on probation",
  refused: "refused",
  bounded: "bounded",
  diverged: "diverged",
};

const ROLES = { honest: "honest clients", site: "sites", attacker: "attackers ▲" };

export function scoresSection({ course, ui, choose, redraw }) {
  const { scores, events } = course;
  if (!scores.length && !events.length) return null;
  const made = scores.length ? scoreFigure(course, ui, choose, redraw) : null;
  const node = section(
    "detection",
    "What the server sees of each client",
    scores.length &&
      `A score for each client’s update in each round. ${isJudged(scores) ? "Whoever is over the limit is accused." : "Nobody is judged by it."}`,
    made?.figure,
    eventTable(course, ui, choose),
  );
  return { node, show: made ? made.show : () => {} };
}

const isJudged = (scores) => scores.some(({ limits }) => limits.some(isNumber));

function scoreFigure(course, ui, choose, redraw) {
  const names = course.scores.map((one) => one.name);
  const score = course.scores.find((one) => one.name === ui.score) ?? course.scores[0];
  const { rounds, limits } = score;
  const log = ui.log ?? isWide(score);
  const clients = course.clients.map((client, i) => ({
    name: client.name,
    role: client.role,
    client: i,
    y: score.values[i],
    kind: client.role === "attacker" ? "attacker" : "honest",
  }));
  const limit = { name: "limit", y: limits, kind: "limit", label: "limit", silent: true };
  const lines = [
    ...clients.filter(({ y }) => Array.from(y).some(isNumber)),
    ...(limits.some(isNumber) ? [limit] : []),
  ];
  const tell = (i, line) => {
    const said = `Round ${rounds[i]}${isNumber(limits[i]) ? `, limit ${measure(limits[i])}` : ""}`;
    if (!line) return `${said}: ${summary(clients, i, limits[i])}`;
    const what = course.events.find((event) => event.client === line.client && event.round === rounds[i]);
    return (
      `${said}: ${called(line.name)}${line.kind === "attacker" ? " ▲ attacker" : ""} ${measure(line.y[i])}` +
      (what ? `; ${WORDS[what.kind]}: ${cut(what.reason, 200)}` : "")
    );
  };
  const chosen = lines.findIndex((line) => line.client === ui.client);
  const made = lineChart({
    x: rounds,
    lines,
    marks: marksOf(course, score),
    log,
    tell,
    picks: true,
    line: chosen < 0 || ui.client === null ? null : chosen,
    within: log ? [] : [0],
    yName: score.name + (log ? ", logarithmic" : ""),
    height: 320,
    label: `score ${score.name} of every client per round`,
    key: "scores",
    at: indexOf(rounds, ui.round),
    choose: (i, line) => choose({ round: rounds[i], ...(line && { client: line.client }) }),
  });
  const tools = [
    names.length > 1 &&
      choice("detector", names, score.name, (name) => {
        ui.score = name;
        redraw("detection");
      }),
    button(
      "log scale",
      "log",
      () => {
        ui.log = !log;
        redraw("detection");
      },
      { "aria-pressed": String(log) },
    ),
  ];
  return {
    figure: figure(`Score “${score.name}”`, made.node, { tools, legend: legend(course) }),
    show: () => made.move(indexOf(rounds, ui.round)),
  };
}

const isWide = ({ values, limits }) => {
  const all = [...values.flatMap((line) => Array.from(line)), ...limits]
    .filter((value) => isNumber(value) && value > 0)
    .sort((a, b) => a - b);
  return all.length > 0 && all.at(-1) / all[Math.floor(all.length / 20)] > WIDE;
};

function summary(clients, i, limit) {
  const there = clients.filter(({ y }) => isNumber(y[i]));
  const over = there.filter(({ y }) => y[i] > limit).length;
  const range = (role) => {
    const values = there
      .filter((one) => one.role === role)
      .map(({ y }) => y[i])
      .sort((a, b) => a - b);
    return (
      values.length > 0 &&
      `${ROLES[role]} ${[...new Set([values[0], values.at(-1)].map(measure))].join(" to ")}`
    );
  };
  return [...Object.keys(ROLES).map(range), isNumber(limit) && `${over || "nobody"} over the limit`]
    .filter(Boolean)
    .join(", ");
}

/** Triangles on attackers, crosses where somebody was removed, with the reason. */
function marksOf(course, { rounds, values }) {
  const marks = [];
  const attackers = course.clients
    .map((client, i) => ({ ...client, y: Array.from(values[i]) }))
    .filter(({ role }) => role === "attacker");
  const every = Math.ceil(attackers.reduce((sum, { y }) => sum + y.filter(isNumber).length, 0) / TRIANGLES);
  for (const { name, y } of attackers)
    rounds
      .filter((_, i) => isNumber(y[i]))
      .forEach((round, turn) => {
        if (turn % every === 0)
          marks.push({
            x: round,
            y: y[rounds.indexOf(round)],
            shape: "triangle",
            kind: "attacker",
            title: `${called(name)}, attacker`,
          });
      });
  for (const event of course.events.filter(({ kind }) => kind === "removed" || kind === "suspected")) {
    const y = values[event.client]?.[rounds.indexOf(event.round)];
    const shape = event.kind === "removed" ? "cross" : "dot";
    marks.push({
      x: event.round,
      y,
      shape,
      kind: event.kind,
      title: `${called(course.clients[event.client].name)}, ${WORDS[event.kind]} in round ${event.round}: ${event.reason}`,
    });
  }
  return marks;
}

function legend(course) {
  const is = (kind) => course.events.some((event) => event.kind === kind);
  const roles = new Set(course.clients.map(({ role }) => role));
  const swatch = (kind) =>
    s(
      "svg.swatch",
      { viewBox: "0 0 26 10", "aria-hidden": "true" },
      s("path", { class: `line ${kind}`, d: "M0,5H26" }),
    );
  return [
    roles.has("honest") && [swatch("honest"), "honest "],
    roles.has("site") && [swatch("honest"), "site "],
    roles.has("attacker") && [swatch("attacker"), h("span.attacker", "▲"), " attacker "],
    is("removed") && [h("span.removed", "✕"), " removed "],
    is("suspected") && ["○ on probation "],
    isJudged(course.scores) && [swatch("limit"), "limit "],
  ]
    .filter(Boolean)
    .map((parts) => h("span", parts));
}

function eventTable({ clients, events }, ui, choose) {
  if (!events.length) return h("p.note", "Nobody was removed, suspected or refused.");
  return table({
    name: "what happened to whom",
    rows: events,
    keep: (ui.eventTable ??= {}),
    filter: "event",
    first: 12,
    choose: (event) => choose({ client: event.client }),
    isChosen: (event) => event.client === ui.client,
    columns: [
      {
        label: "client",
        value: (it) => clients[it.client].name,
        text: (it) => cut(clients[it.client].name, 40) + (clients[it.client].role === "attacker" ? " ▲" : ""),
        also: (it) => clients[it.client].role,
      },
      { label: "round", value: (it) => it.round },
      { label: "what", value: (it) => WORDS[it.kind] ?? it.kind },
      {
        label: "why",
        long: true,
        value: (it) => it.reason,
        text: (it) => h("span", { title: cut(it.reason, 1000) }, cut(it.reason, 220)),
      },
    ],
  });
}
