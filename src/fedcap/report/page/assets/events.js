// Who was removed, refused or put on probation, when and why: a table.

import { h } from "./dom.js";
import { cut } from "./words.js";
import { table } from "./table.js";

/** What can happen to a client, in words. */
export const EVENTS = {
  removed: "removed",
  suspected: "on probation",
  refused: "refused",
  bounded: "bounded",
  diverged: "diverged",
};

export function eventTable({ clients, events }, ui, choose) {
  if (!events.length) return h("p.note", "Nobody was removed, suspected or refused.");
  return table({
    name: "what happened to whom",
    rows: events,
    keep: (ui.eventTable ??= {}),
    unit: "event",
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
      { label: "what", value: (it) => EVENTS[it.kind] ?? it.kind },
      {
        label: "why",
        long: true,
        value: (it) => it.reason,
        text: (it) => h("span", { title: cut(it.reason, 1000) }, cut(it.reason, 220)),
      },
    ],
  });
}
