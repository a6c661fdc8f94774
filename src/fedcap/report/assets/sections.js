// The sections of a run: accuracy, detection, attack, clients, classes and cost. Each function returns the section's
// node and a function that shows the chosen round, or null if the run has no such data.

import { addressOf } from "./address.js";
import { barChart, lineChart } from "./chart.js";
import { button, figure, h, indexOf, s, section } from "./dom.js";
import { table } from "./table.js";
import { called, cut, grouped, isNumber, measure, megabytes, percent, points, seconds } from "./text.js";

const READINGS = {
  personal: "Personal: the client’s own model, after training",
  shared: "Shared: the model that the client receives",
};
const BAND = "The line is the mean over all test samples; the band reaches from the worst to the best client.";

export function accuracySection({ report, run, ui, choose }) {
  const { accuracy, local } = run;
  if (!accuracy?.rounds.length) return null;
  const readings = Object.keys(READINGS).filter((reading) => accuracy[reading]);
  const all = [...readings.flatMap((reading) => accuracy[reading].worst), ...(local?.mean ?? [])].filter(isNumber);
  const floor = Math.max(0, Math.floor((Math.min(...all, 100) - 2) / 10) * 10);
  const charts = readings.map((reading) => accuracyChart(run, ui, choose, reading, floor));
  const whose = report.kind === "federation" ? "the sites’ own test samples, as the sites report it" : "the honest clients’ own test samples";
  const node = section(
    "accuracy",
    "Accuracy",
    `In percent, on ${whose}. ${BAND}`,
    h("div.pair", readings.map((reading, i) => figure(READINGS[reading], charts[i].node))),
    local && h("p.note", "Local: each client trains alone, on its own data."),
  );
  return { node, show: () => charts.forEach(({ move }) => move(indexOf(accuracy.rounds, ui.round))) };
}

function accuracyChart({ accuracy, local, clients }, ui, choose, reading, floor) {
  const { rounds } = accuracy;
  const { mean, worst, best, clients: each } = accuracy[reading];
  const alone = local && rounds.map((round) => local.mean[local.rounds.indexOf(round)] ?? null);
  const own = ui.client === null ? null : each[ui.client];
  const name = own && clients[ui.client].name;
  const lines = [
    { y: best, kind: "bound", label: "best client" },
    { y: worst, kind: "bound", label: "worst client" },
    alone?.some(isNumber) && { y: alone, kind: "local", label: "Local" },
    { y: mean, kind: reading, label: "mean" },
    own && Array.from(own).some(isNumber) && { y: own, kind: "own", label: called(name, 14) },
  ].filter(Boolean);
  const describe = (i) =>
    [
      `Round ${rounds[i]}: mean ${percent(mean[i])}`,
      `worst client ${percent(worst[i])}`,
      `best client ${percent(best[i])}`,
      alone && isNumber(alone[i]) && `Local ${percent(alone[i])}`,
      own && isNumber(own[i]) && `${called(name)} ${percent(own[i])}`,
    ]
      .filter(Boolean)
      .join(", ");
  return lineChart({
    x: rounds,
    lines,
    bands: [{ low: worst, high: best, kind: reading }],
    within: [floor, 100],
    yName: "%",
    format: String,
    label: `accuracy per round, ${reading}`,
    at: indexOf(rounds, ui.round),
    describe,
    choose: (i) => choose({ round: rounds[i] }),
  });
}

const WIDE_RANGE = 30;
const MAX_TRIANGLES = 200;
const MARK_SHAPES = { removed: "cross", suspected: "dot" };
const ROLES = { honest: "honest clients", site: "sites", malicious: "malicious clients ▲" };

export function detectionSection({ run, ui, choose, redraw }) {
  const { scores, events } = run;
  if (!scores.length && !events.length) return null;
  const score = scores.find(({ name }) => name === ui.score) ?? scores[0];
  const chart = score && scoreChart(run, score, ui, choose);
  const detectors = scores.map(({ name }) => {
    const press = () => redraw({ score: name });
    return button(name, `detector ${name}`, press, { "aria-pressed": String(name === score.name) });
  });
  const group = h("div.choices", { role: "group", "aria-label": "detector" }, detectors);
  const judged = score?.limits.some(isNumber);
  const limit = judged ? "A client above the limit is suspected." : "This score has no limit.";
  const node = section(
    "detection",
    "Detection",
    score && `The score that the server gives the update of each client in each round. ${limit}`,
    score &&
      figure(`Score “${score.name}”`, chart.node, {
        tools: scores.length > 1 && group,
        legend: legend(run, judged),
      }),
    eventTable(run, ui, choose),
  );
  return { node, show: () => chart?.move(indexOf(score.rounds, ui.round)) };
}

function scoreChart(run, { name, rounds, limits, values }, ui, choose) {
  const all = [...values.flatMap((line) => Array.from(line)), ...limits].filter((it) => isNumber(it) && it > 0);
  all.sort((a, b) => a - b);
  const log = all.at(-1) / all[Math.floor(all.length / 20)] > WIDE_RANGE;
  const clients = run.clients.map(({ name, role }, client) => ({
    name,
    role,
    client,
    y: values[client],
    kind: role === "malicious" ? "malicious" : "honest",
  }));
  const lines = [
    ...clients.filter(({ y }) => Array.from(y).some(isNumber)),
    ...(limits.some(isNumber) ? [{ y: limits, kind: "limit", label: "limit", silent: true }] : []),
  ];
  const describe = (i, line) => {
    const start = `Round ${rounds[i]}${isNumber(limits[i]) ? `, limit ${measure(limits[i])}` : ""}`;
    if (!line) return `${start}: ${rangesOf(clients, i, limits[i])}`;
    const has = ({ client, round, last }) => client === line.client && round <= rounds[i] && rounds[i] <= last;
    const event = run.events.find(has);
    const what = event ? `; ${event.kind}: ${cut(event.reason, 200)}` : "";
    const flag = line.role === "malicious" ? " (malicious ▲)" : "";
    return `${start}: ${called(line.name)}${flag} ${measure(line.y[i])}${what}`;
  };
  const chosen = lines.findIndex(({ client }) => client === ui.client);
  return lineChart({
    x: rounds,
    lines,
    marks: marksOf(run, rounds, values),
    log,
    describe,
    picks: true,
    line: chosen < 0 ? null : chosen,
    within: log ? [] : [0],
    yName: name + (log ? ", logarithmic" : ""),
    height: 320,
    label: `score ${name} of each client per round`,
    at: indexOf(rounds, ui.round),
    choose: (i, line) => choose({ round: rounds[i], ...(line && { client: line.client }) }),
  });
}

/** The range of the scores of a round, and how many are above the limit. */
function rangesOf(clients, i, limit) {
  const present = clients.filter(({ y }) => isNumber(y[i]));
  const ranges = Object.entries(ROLES).map(([role, name]) => {
    const values = present.flatMap((one) => (one.role === role ? one.y[i] : []));
    const ends = new Set([Math.min(...values), Math.max(...values)].map(measure));
    return values.length > 0 && `${name} ${[...ends].join(" to ")}`;
  });
  const above = present.filter(({ y }) => y[i] > limit).length || "none";
  const parts = [...ranges, isNumber(limit) && `${above} above the limit`].filter(Boolean);
  return parts.join(", ") || "no score is finite";
}

/** Triangles on malicious clients, crosses at removals, rings on suspected clients. */
function marksOf({ clients, events }, rounds, values) {
  const triangles = clients.flatMap(({ name, role }, client) =>
    rounds.flatMap((x, i) => {
      const mark = { x, y: values[client][i], shape: "triangle", kind: "malicious" };
      const visible = role === "malicious" && isNumber(mark.y);
      return visible ? { ...mark, title: `${called(name)}, malicious` } : [];
    }),
  );
  const every = Math.ceil(triangles.length / MAX_TRIANGLES);
  const accused = events
    .filter(({ kind }) => kind in MARK_SHAPES)
    .map(({ client, round, kind, reason }) => ({
      x: round,
      y: values[client]?.[rounds.indexOf(round)],
      title: `${called(clients[client].name)}, ${kind} in round ${round}: ${reason}`,
      shape: MARK_SHAPES[kind],
      kind,
    }));
  return [...triangles.filter((_, i) => i % every === 0), ...accused];
}

function legend({ clients, events }, judged) {
  const has = (kind) => events.some((event) => event.kind === kind);
  const roles = new Set(clients.map(({ role }) => role));
  const line = (kind) => s("path", { class: `line ${kind}`, d: "M0,5H26" });
  const swatch = (kind) => s("svg.swatch", { viewBox: "0 0 26 10", "aria-hidden": "true" }, line(kind));
  return [
    roles.has("honest") && [swatch("honest"), "honest "],
    roles.has("site") && [swatch("honest"), "site "],
    roles.has("malicious") && [swatch("malicious"), h("span.malicious", "▲"), " malicious "],
    has("removed") && ["✕ removed "],
    has("suspected") && ["○ suspected "],
    judged && [swatch("limit"), "limit "],
  ]
    .filter(Boolean)
    .map((parts) => h("span", parts));
}

const EVENTS = {
  removed: "removed",
  suspected: "suspected",
  "not counted": "not counted this round",
  limited: "sample count limited",
  diverged: "diverged",
};
const ABOUT_LIMITS =
  "The server limits a sample count that is much larger than the others. This is no sign that a client is malicious.";

function eventTable({ clients, events }, ui, choose) {
  if (!events.length) return h("p.note", "No client was removed or suspected, and every update was counted.");
  const rows = table({
    name: "events",
    rows: events,
    keep: (ui.eventTable ??= {}),
    unit: "event",
    first: 12,
    choose: ({ client }) => choose({ client }),
    isChosen: ({ client }) => client === ui.client,
    columns: [
      {
        label: "client",
        value: ({ client }) => clients[client].name,
        text: ({ client }) => cut(clients[client].name, 40) + (clients[client].role === "malicious" ? " ▲" : ""),
        also: ({ client }) => clients[client].role,
      },
      {
        label: "round",
        value: ({ round }) => round,
        text: ({ round, last, count }) => (count > 1 ? `${round} to ${last} (${count} rounds)` : round),
      },
      { label: "event", value: ({ kind }) => EVENTS[kind] },
      { label: "reason", long: true, value: ({ reason }) => reason, text: longText },
    ],
  });
  return [rows, events.some(({ kind }) => kind === "limited") && h("p.note", ABOUT_LIMITS)];
}

const longText = ({ reason }) => h("span", { title: cut(reason, 1000) }, cut(reason, 220));

export function attackSection({ run, ui, choose }) {
  const attack = run.attack;
  if (!attack?.length.some(isNumber)) return null;
  const { rounds, length, honest_length: honest, cosine } = attack;
  const log = Math.max(...length.filter(isNumber)) > 30 * Math.min(...honest.filter((it) => it > 0));
  const common = { x: rounds, at: indexOf(rounds, ui.round), choose: (i) => choose({ round: rounds[i] }) };
  const lengths = lineChart({
    ...common,
    log,
    within: log ? [] : [0],
    label: "length of updates per round",
    yName: log ? "length, logarithmic" : "length",
    lines: [
      { y: length, kind: "malicious", label: "▲ malicious" },
      { y: honest, kind: "honest strong", label: "honest mean" },
    ],
    describe: (i) =>
      `Round ${rounds[i]}: malicious updates ${measure(length[i])}, honest mean ${measure(honest[i])}`,
  });
  const cosines = lineChart({
    ...common,
    within: [-1, 1],
    label: "cosine with the honest mean per round",
    yName: "cosine",
    lines: [
      { y: rounds.map(() => 0), kind: "limit thin" },
      { y: cosine, kind: "malicious", label: "▲ malicious" },
    ],
    describe: (i) => `Round ${rounds[i]}: cosine ${measure(cosine[i])} (1: same direction, −1: opposite direction)`,
  });
  const node = section(
    "attack",
    "Attack",
    "The malicious updates as they were sent, compared with the mean of the honest updates.",
    h("div.pair", figure("Length of the updates", lengths.node), figure("Direction", cosines.node)),
  );
  return { node, show: () => [lengths, cosines].forEach(({ move }) => move(indexOf(rounds, ui.round))) };
}

export function clientsSection({ run: { clients }, ui, choose }) {
  if (!clients.length) return null;
  const has = (part) => clients.some((client) => ![null, undefined, "", 0].includes(client[part]));
  const number = (label, part, help, write) =>
    has(part) && { label, help, value: (it) => it[part], text: (it) => write(it[part]) };
  const link = ({ name, identity }) =>
    h(
      "a",
      {
        href: addressOf({ client: name, at: null }),
        "data-key": `client ${name}`,
        title: cut(identity || name, 300),
      },
      cut(name, 40),
    );
  const columns = [
    { label: "client", value: ({ name }) => name, text: link, also: ({ identity }) => identity },
    clients.some(({ role }) => role !== "site") && {
      label: "role",
      value: ({ role }) => role,
      text: ({ role }) => (role === "malicious" ? "▲ malicious" : role),
    },
    {
      label: "state",
      value: ({ state }) => state,
      text: ({ state, removed }) =>
        state === "removed" ? `✕ removed${isNumber(removed) ? `, round ${removed}` : ""}` : state,
    },
    number("samples", "samples", "training samples, as the client reports them", grouped),
    number("shared", "shared", "accuracy of the model that it received last", percent),
    number("personal", "personal", "accuracy of its own model", percent),
    number("Local", "local", "accuracy of its own model in the same round if it trains alone", percent),
    has("local") && {
      label: "gain",
      help: "personal − Local, in points",
      value: ({ gain }) => gain,
      text: ({ gain }) => points(gain),
    },
    number("test samples", "tested", "samples on which its models were tested", grouped),
    number("macro-F1", "macro_f1", "mean F1 of the classes, in the last round", percent),
    number("balanced", "balanced_accuracy", "mean accuracy of the classes, in the last round", percent),
    number("AUC", "auc", "area under the ROC curve, in percent: mean of one versus rest over the classes", percent),
    number("calibration error", "calibration_error", "expected calibration error in the last round", percent),
    number("share in models", "share", "its mean share in all models that were last sent, its own included", percent),
    { label: "rounds", value: ({ rounds }) => rounds, help: "rounds in which it took part" },
    number("not counted", "not_counted", "rounds in which its update was not counted", grouped),
    has("reason") && { label: "reason", long: true, value: ({ reason }) => reason, text: longText },
  ].filter(Boolean);
  const rows = table({
    name: "clients",
    unit: "client",
    rows: clients,
    columns,
    keep: (ui.clientTable ??= {}),
    isChosen: (client) => clients[ui.client] === client,
    choose: (client) => choose({ client: clients.indexOf(client) }),
  });
  const text = has("rounds") && "Accuracy and share in percent. Click a client to see it in every chart.";
  return { node: section("clients", "Clients", text, rows) };
}

export function classesSection({ run }) {
  if (!run.classes?.length) return null;
  const rows = run.classes.map(({ name, accuracy }) => [name, accuracy]);
  const text = "In percent, on the test samples of all honest clients in the last round, with the better of shared and personal models.";
  const measures = (run.measures ?? []).map(({ name, value }) => `${name} ${value}`).join(", ");
  const chart = figure("By class", barChart(rows, percent, 100));
  return { node: section("classes", "Accuracy by class", text, measures && h("p", `${measures}.`), chart) };
}

export function costSection({ run: { costs } }) {
  if (!costs?.rounds.length) return null;
  const sum = (values) => Array.from(values).reduce((total, value) => total + (value || 0), 0);
  const all = sum(costs.total);
  const names = { train: "training", evaluate: "evaluation", attack: "attack", server: "server" };
  const parts = Object.entries(names).map(([part, name]) => [name, sum(costs[part])]);
  const rest = all - parts.reduce((total, [, value]) => total + value, 0);
  const rows = [...parts, ["other", rest]].filter(([, value]) => value > all * 0.0005);
  const [many, sent] = [costs.rounds.length, sum(costs.bytes)];
  const write = (value) => `${seconds(value)}, ${percent((100 * value) / all)} %`;
  const text = `${seconds(all)} in total, ${seconds(all / many)} per round; ${megabytes(sent / many)} sent per round.`;
  return { node: section("cost", "Cost", text, rows.length > 0 && figure("Seconds by part", barChart(rows, write))) };
}
