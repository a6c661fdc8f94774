// The page: it reads its story, draws it, follows the address, and with a live address asks for what is new.

import { button, h, replaced } from "./dom.js";
import { asked, forget } from "./address.js";
import { isDark } from "./colours.js";
import { cellBar, gridNav, gridPage } from "./grid.js";
import { found } from "./panel.js";
import { freshChoices, runView } from "./view.js";
import { cellStory } from "./unpack.js";

const [PACE, SLOWEST] = [1500, 30000];
const main = document.querySelector("main");
const top = document.querySelector(".top");
const live = document.body.dataset.live;
const choices = new Map();
let busy = Promise.resolve();
let [told, view, shown] = [JSON.parse(document.getElementById("story").textContent), null, undefined];

/** Do one thing after the other: a story that comes in while another is drawn waits. */
function inTurn(act) {
  return (busy = busy.catch(() => {}).then(act));
}

/** Show what the address asks for: the page's own view, or a run of a grid. */
async function show() {
  const want = asked();
  const cell = told.map && want.cell ? found(told.map, want.cell) : null;
  const name = cell ? cell.name : "";
  if (name !== shown) {
    const back = shown;
    shown = name;
    view?.rest();
    if (!choices.has(name)) choices.set(name, freshChoices());
    view = told.map && !cell ? null : runView(choices.get(name));
    main.replaceChildren(...(cell ? [cellBar(cell)] : []), view ? view.node : gridPage(told));
    top.querySelector("nav")?.remove();
    top.prepend(view ? view.nav : gridNav(told));
    if (view) await view.tell(cell ? await cellStory(told.map.cells[cell.cell]) : told);
    if (cell && back !== undefined) scrollTo(0, 0);
    if (back !== undefined) (cell ? main.querySelector(".back") : linkTo(back))?.focus();
  }
  view?.heed(want);
  document.body.dataset.ready = "true";
}

/** The field of the map that a run belongs to. */
function linkTo(name) {
  const cell = found(told.map, name);
  return cell && main.querySelector(`[data-key="${CSS.escape(cell.key)}"]`);
}

/** Take a newer story, and draw what changed. */
async function renew(fresh) {
  if (!fresh.map !== !told.map) return location.reload(); // what was awaited turns out to be a grid
  told = fresh;
  document.title = told.title;
  if (!told.map) return view.tell(told);
  if (!view) {
    top.querySelector("nav").replaceWith(gridNav(told));
    return replaced(main.firstChild, gridPage(told));
  }
  const cell = found(told.map, shown);
  if (!cell) return show(); // its method or its map is called otherwise, now that there are others
  return view.tell(await cellStory(told.map.cells[cell.cell]));
}

/**
 * Ask for the story again and again; one that has not changed costs nothing. Once it has finished, or nobody answers,
 * ask less and less often: a run may be extended.
 */
async function follow(version = null, pace = PACE) {
  const headers = version ? { "If-None-Match": version } : {};
  const answer = await fetch(live, { headers, cache: "no-store" }).catch(() => null);
  const fresh = answer?.ok ? await answer.json().catch(() => null) : null;
  const drawn = !fresh || (await inTurn(() => renew(fresh)).then(() => true, reportError));
  if (fresh && drawn) version = answer.headers.get("ETag");
  const [reached, goesOn] = [fresh || answer?.status === 304, told.state === "unfinished"];
  const state = !reached ? "○ no connection" : !drawn ? "✕ cannot be drawn" : goesOn ? "● live" : "■ finished";
  top.querySelector(".live").textContent = state;
  pace = reached && drawn && goesOn ? PACE : Math.min(2 * pace, SLOWEST);
  setTimeout(() => follow(version, pace), pace);
}

/** Show the page in light or dark, or as the reader's system has it; what is painted is painted anew. */
function dress(theme) {
  document.documentElement.dataset.theme = theme;
  flip.textContent = isDark() ? "☀ light" : "☾ dark";
  if (view) view.redraw();
  else if (shown !== undefined) renew(told);
}

/** On paper everything is light and open. */
function printed() {
  const theme = document.documentElement.dataset.theme ?? "";
  addEventListener("afterprint", () => dress(theme), { once: true });
  dress("light");
  document.querySelectorAll("details").forEach((one) => (one.open = true));
}

const flip = button("", "theme", () => dress(isDark() ? "light" : "dark"));
top.append(h("span.room"), live ? h("span.live", { role: "status" }, "● live") : "", flip);
dress("");
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => dress(""));
addEventListener("hashchange", () => {
  forget();
  inTurn(show);
});
addEventListener("beforeprint", printed);
inTurn(show).then(() => live && follow());
