// What the attack came to, round by round: how long the malicious updates are, and where they point.

import { h } from "./dom.js";
import { figure, indexOf, section } from "./frame.js";
import { lineChart } from "./chart.js";
import { isNumber, measure } from "./words.js";

export function attackSection({ course, ui, choose }) {
  const attack = course.attack;
  if (!attack?.length.some(isNumber)) return null;
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
        `Round ${rounds[i]}: attackers’ updates ${measure(length[i])}, the honest mean ${measure(benign[i])}`,
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
    "The malicious updates as they were sent, against the mean of the honest ones.",
    h(
      "div.pair",
      figure("How long the updates are", charts[0].node),
      figure("Where they point", charts[1].node),
    ),
  );
  return { node, show: () => charts.forEach(({ move }) => move(indexOf(rounds, ui.round))) };
}
