// The view of one run or federation: the verdict, then its pictures. It remembers what its reader chose.

import { button, fit, h, inPlace, replaced } from "./dom.js";
import { addressOf, note } from "./address.js";
import { verdict } from "./verdict.js";
import { accuracySection } from "./accuracy.js";
import { scoresSection } from "./scores.js";
import { mixingSection } from "./mixing.js";
import { clientsSection } from "./clients.js";
import { attackSection } from "./attack.js";
import { classesSection, costSection } from "./bars.js";
import { aboutSection } from "./about.js";
import { unpacked } from "./unpack.js";
import { called } from "./words.js";

/** Of each section: its name in the address and in the bar, what draws it, and what it depends on. */
const SECTIONS = [
  ["accuracy", "Accuracy", accuracySection, ({ accuracy, local }, ui) => [accuracy, local, ui.client]],
  ["detection", "Detection", scoresSection, ({ scores, events }, ui) => [scores, events, ui.client]],
  ["mixing", "Mixing", mixingSection, ({ mixing }) => mixing],
  ["attack", "Attack", attackSection, ({ attack }) => attack],
  ["clients", "Clients", clientsSection, ({ clients }, ui) => [clients, ui.client]],
  ["classes", "Classes", classesSection, ({ classes }) => classes],
  ["cost", "Cost", costSection, ({ costs }) => costs],
  ["about", "How", aboutSection, (_, __, { settings, thinned }) => [settings, thinned]],
];

const NO_COURSE = { clients: [], scores: [], events: [] };

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
  const show = () => Object.values(drawn).forEach((one) => one.section?.show());

  function draw(only = null) {
    for (const [id, , make, part] of SECTIONS) {
      const key = JSON.stringify([part(packed.course ?? NO_COURSE, ui, packed)]);
      if (only ? id !== only : drawn[id]?.key === key) continue;
      const section = make({ story, course: story.course, ui, choose, redraw: draw });
      const fresh = section?.node ?? h("section", { id, hidden: true });
      if (drawn[id]) replaced(drawn[id].node, fresh);
      else fit(node.appendChild(fresh));
      drawn[id] = { key, section, node: fresh };
    }
    const there = SECTIONS.filter(([id]) => drawn[id].section);
    nav.replaceChildren(...there.map(([id, name]) => navLink(id, name)), ...chip());
  }

  function navLink(id, name) {
    const goTo = (event) => {
      event.preventDefault();
      note({ at: id });
      drawn[id].node.scrollIntoView();
    };
    return h("a", { href: addressOf({ at: id }), "data-key": `to ${id}`, onclick: goTo }, name);
  }

  /** The chosen client, if any, to be let go again. */
  function chip() {
    if (ui.client === null) return [];
    const name = called(story.course.clients[ui.client].name, 24);
    const attributes = { class: "chip", "aria-label": `stop showing ${name}` };
    return [button(`${name} ✕`, "clear", () => choose({ client: null }), attributes)];
  }

  return {
    node,
    nav,
    async tell(fresh) {
      packed = fresh;
      const head = verdict(fresh);
      if (!top) node.append(head);
      story = { ...fresh, course: await unpacked(fresh.course ?? NO_COURSE) };
      if (ui.client !== null && !story.course.clients[ui.client]) ui.client = null;
      inPlace(node, () => {
        if (top) replaced(top, head);
        top = head;
        draw();
        show();
      });
    },
    heed({ round, client, at }) {
      const found = story.course.clients.findIndex(({ name }) => name === client);
      Object.assign(ui, { round: Number(round) || null, client: found < 0 ? null : found });
      draw();
      show();
      if (at) drawn[at]?.node.scrollIntoView();
    },
    /** Stop what moves: another view is shown. */
    rest() {
      clearInterval(ui.playing);
      ui.playing = null;
    },
    redraw() {
      for (const id of Object.keys(drawn)) draw(id);
      show();
    },
  };
}
