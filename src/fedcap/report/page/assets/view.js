// The view of one run or federation: the verdict, then its pictures. It remembers what its reader chose.

import { button, fit, h, inPlace, replaced } from "./dom.js";
import { addressOf, note } from "./address.js";
import { verdict } from "./verdict.js";
import { accuracySection } from "./accuracy.js";
import { scoresSection } from "./scores.js";
import { mixingSection } from "./mixing.js";
import { clientsSection } from "./clients.js";
import { aboutSection, attackSection, classesSection, costSection } from "./details.js";
import { unpacked } from "./unpack.js";
import { called } from "./words.js";

const SECTIONS = [
  ["accuracy", "Accuracy", accuracySection, ({ course }, ui) => [course.accuracy, course.local, ui.client]],
  [
    "detection",
    "Detection",
    scoresSection,
    ({ course }, ui) => [course.scores, course.events, course.clients, ui.client],
  ],
  [
    "mixing",
    "Mixing",
    mixingSection,
    ({ course }) => [course.mixing, course.clients.map(({ name, role }) => [name, role])],
  ],
  ["attack", "Attack", attackSection, ({ course }) => course.attack],
  ["clients", "Clients", clientsSection, ({ course }, ui) => [course.clients, ui.client]],
  ["classes", "Classes", classesSection, ({ course }) => course.classes],
  ["cost", "Cost", costSection, ({ course }) => course.costs],
  [
    "about",
    "How",
    aboutSection,
    ({ settings, provenance, command, thinned }) => [settings, provenance, command, thinned],
  ],
];

/** What a reader chose in a view: kept when the story grows. */
export const freshChoices = () => ({ round: null, client: null, score: null, log: null, playing: null });

/**
 * A view of a story, whose arrays are still packed. `await view.tell(story)` draws it, or what changed of it;
 * `view.heed(asked)` follows the address.
 */
export function runView(ui = freshChoices()) {
  const drawn = {};
  const node = h("div.view");
  const nav = h("nav", { "aria-label": "sections" });
  let [packed, story, top] = [null, null, null];

  const choose = (changes) => {
    const client = "client" in changes ? (changes.client === ui.client ? null : changes.client) : ui.client;
    const other = client !== ui.client;
    Object.assign(ui, changes, { client });
    if (ui.round >= story.played) ui.round = null; // the newest: the view follows a run that goes on
    note({ round: ui.round, client: ui.client === null ? null : story.course.clients[ui.client].name });
    if (other) draw();
    show();
  };
  const context = () => ({
    story,
    course: story.course,
    ui,
    choose,
    redraw: (id) => draw(id),
    link: (changes) => addressOf(changes),
  });
  const show = () => Object.values(drawn).forEach((one) => one.section?.show());

  const goTo = (event, id) => {
    event.preventDefault();
    note({ at: id });
    drawn[id].node.scrollIntoView();
  };

  function draw(only = null) {
    for (const [id, , make, part] of SECTIONS) {
      const key = JSON.stringify(story.course || id === "about" ? part(packed, ui) : null);
      if (only ? id !== only : drawn[id]?.key === key) continue;
      const section = story.course || id === "about" ? make(context()) : null;
      const fresh = section?.node ?? h("section", { id, hidden: true });
      if (drawn[id]) replaced(drawn[id].node, fresh);
      else fit(node.appendChild(fresh));
      drawn[id] = { key, section, node: fresh };
    }
    const names = SECTIONS.filter(([id]) => drawn[id].section);
    const chosen = ui.client === null ? null : story.course.clients[ui.client];
    nav.replaceChildren(
      ...names.map(([id, name]) =>
        h(
          "a",
          { href: addressOf({ at: id }), "data-key": `to ${id}`, onclick: (event) => goTo(event, id) },
          name,
        ),
      ),
      ...(chosen
        ? [
            button([called(chosen.name, 24), " ✕"], "clear", () => choose({ client: null }), {
              class: "chip",
              "aria-label": `stop showing ${called(chosen.name, 24)}`,
            }),
          ]
        : []),
    );
  }

  return {
    node,
    nav,
    async tell(fresh) {
      packed = fresh;
      const head = verdict(fresh);
      if (!top) node.append(head);
      story = { ...fresh, course: await unpacked(fresh.course) };
      if (ui.client !== null && !story.course?.clients[ui.client]) ui.client = null;
      inPlace(node, () => {
        if (top) replaced(top, head);
        top = head;
        draw();
        show();
      });
    },
    heed({ round, client, at }) {
      const found = story.course?.clients.findIndex(({ name }) => name === client) ?? -1;
      Object.assign(ui, {
        round: Number(round) || null,
        client: client === undefined || found < 0 ? null : found,
      });
      draw();
      show();
      if (at) drawn[at]?.node.scrollIntoView();
    },
    redraw() {
      for (const id of Object.keys(drawn)) draw(id);
      show();
    },
  };
}
