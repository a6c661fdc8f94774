// What the server sees of each client: a detector's scores over rounds against the limit, and what came of it.

import { button, h, s } from "./dom.js";
import { choice, figure, indexOf, section } from "./frame.js";
import { lineChart } from "./chart.js";
import { called, cut, isNumber, measure } from "./words.js";
import { eventTable, EVENTS } from "./events.js";

const WIDE = 30;
const TRIANGLES = 200;
const SHAPE = { removed: "cross", suspected: "dot" };
const ROLES = { honest: "honest clients", site: "sites", attacker: "attackers ▲" };

export function scoresSection({ course, ui, choose, redraw }) {
  const { scores, events } = course;
  if (!scores.length && !events.length) return null;
  const made = scores.length ? scoreFigure(course, ui, choose, redraw) : null;
  const judged = isJudged(scores) ? "Whoever is over the limit is accused." : "Nobody is judged by it.";
  const node = section(
    "detection",
    "What the server sees of each client",
    scores.length && `A score for each client’s update in each round. ${judged}`,
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
      (what ? `; ${EVENTS[what.kind]}: ${cut(what.reason, 200)}` : "")
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
    line: chosen < 0 ? null : chosen,
    within: log ? [] : [0],
    yName: score.name + (log ? ", logarithmic" : ""),
    height: 320,
    label: `score ${score.name} of every client per round`,
    key: "scores",
    at: indexOf(rounds, ui.round),
    choose: (i, line) => choose({ round: rounds[i], ...(line && { client: line.client }) }),
  });
  const change = (changes) => {
    Object.assign(ui, changes);
    redraw("detection");
  };
  const tools = [
    names.length > 1 && choice("detector", names, score.name, (name) => change({ score: name })),
    button("log scale", "log", () => change({ log: !log }), { "aria-pressed": String(log) }),
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

/** How far the scores of a round reach, and how many are over the limit. */
function summary(clients, i, limit) {
  const there = clients.filter(({ y }) => isNumber(y[i]));
  const over = there.filter(({ y }) => y[i] > limit).length || "nobody";
  const ranges = Object.entries(ROLES).map(([role, words]) => {
    const values = there.flatMap((one) => (one.role === role ? one.y[i] : []));
    const ends = new Set([Math.min(...values), Math.max(...values)].map(measure));
    return values.length > 0 && `${words} ${[...ends].join(" to ")}`;
  });
  return (
    [...ranges, isNumber(limit) && `${over} over the limit`].filter(Boolean).join(", ") ||
    "no score is finite"
  );
}

/** Triangles on attackers, crosses where somebody was removed, rings where somebody is on probation. */
function marksOf({ clients, events }, { rounds, values }) {
  const triangles = clients.flatMap(({ name, role }, client) =>
    rounds.flatMap((x, i) => {
      const y = values[client][i];
      const title = `${called(name)}, attacker`;
      return role === "attacker" && isNumber(y) ? { x, y, title, shape: "triangle", kind: "attacker" } : [];
    }),
  );
  const every = Math.ceil(triangles.length / TRIANGLES);
  const accused = events
    .filter(({ kind }) => kind in SHAPE)
    .map(({ client, round, kind, reason }) => ({
      x: round,
      y: values[client]?.[rounds.indexOf(round)],
      title: `${called(clients[client].name)}, ${EVENTS[kind]} in round ${round}: ${reason}`,
      shape: SHAPE[kind],
      kind,
    }));
  return [...triangles.filter((_, i) => i % every === 0), ...accused];
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
