// Every client on a line: who it is, what became of it, how accurate its model is, and what it gains over Local.

import { h } from "./dom.js";
import { addressOf } from "./address.js";
import { section } from "./frame.js";
import { cut, percent, points } from "./words.js";
import { table } from "./table.js";

export function clientsSection({ course, ui, choose }) {
  const { clients } = course;
  if (!clients.length) return null;
  const has = (part) =>
    clients.some((client) => client[part] !== null && client[part] !== undefined && client[part] !== "");
  const accuracy = (label, part, help, write = percent) =>
    has(part) && { label, help, value: (it) => it[part], text: (it) => write(it[part]) };
  const columns = [
    {
      label: "client",
      value: (it) => it.name,
      text: (it) =>
        h(
          "a",
          {
            href: addressOf({ client: it.name, at: null }),
            "data-key": `client ${it.name}`,
            title: cut(it.identity || it.name, 300),
          },
          cut(it.name, 40),
        ),
      also: (it) => it.identity,
    },
    clients.some((it) => it.role !== "site") && {
      label: "role",
      value: (it) => it.role,
      text: (it) => (it.role === "attacker" ? "▲ attacker" : it.role),
    },
    {
      label: "state",
      value: (it) => it.state,
      text: (it) =>
        it.state === "removed" && it.removed !== null ? `✕ removed, round ${it.removed}` : it.state,
    },
    accuracy("shared", "shared", "with the model it received last"),
    accuracy("personal", "personal", "with its own model"),
    accuracy("Local", "local", "with the model that it trains alone"),
    accuracy("gain", "gain", "the better of shared and personal, less Local", points),
    accuracy("share in models", "share", "its mean share in all models last sent out, its own among them"),
    { label: "rounds", value: (it) => it.rounds, help: "in which it took part" },
    clients.some((it) => it.refused) && {
      label: "not counted",
      value: (it) => it.refused,
      help: "rounds in which what it sent did not count",
    },
    has("reason") && {
      label: "why",
      long: true,
      value: (it) => it.reason,
      text: (it) => h("span", { title: cut(it.reason, 1000) }, cut(it.reason, 140)),
    },
  ].filter(Boolean);
  const lines = table({
    name: "clients",
    unit: "client",
    rows: clients,
    columns,
    keep: (ui.clientTable ??= {}),
    isChosen: (client) => clients[ui.client] === client,
    choose: (client) => choose({ client: clients.indexOf(client) }),
  });
  const node = section(
    "clients",
    "Clients",
    "Accuracies and shares in percent, the gain over Local in points. A click on a client shows it in every picture.",
    lines,
  );
  return { node, show: () => {} };
}
