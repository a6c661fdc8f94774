// The page: it draws its report, follows the address, and asks for newer reports if it is live.

import { asked, forget } from "./address.js";
import { button, h, refill } from "./dom.js";
import { findRun, gridNav, gridPage, runBar } from "./grid.js";
import { isDark } from "./heatmap.js";
import { unpackRun } from "./unpack.js";
import { freshChoices, runView } from "./view.js";

const [INTERVAL, LONGEST_INTERVAL] = [1500, 30000];
const main = document.querySelector("main");
const top = document.querySelector(".top");
const live = document.body.dataset.live;
const choices = new Map();
let busy = Promise.resolve();
let [report, view, shown] = [JSON.parse(document.getElementById("report").textContent), null, undefined];

/** Do one thing after the other: a report that arrives while another one is drawn waits. */
function inTurn(act) {
  return (busy = busy.catch(() => {}).then(act));
}

const reportOf = (found) => (found ? unpackRun(report.grid.runs[found.run]) : report);

/** Show what the address asks for: the page's own view, or a run of a grid. */
async function show() {
  const want = asked();
  const cell = report.grid && want.cell ? findRun(report.grid, want.cell) : null;
  const name = cell ? cell.name : "";
  if (name !== shown) {
    const before = shown;
    shown = name;
    if (!choices.has(name)) choices.set(name, freshChoices());
    view = report.grid && !cell ? null : runView(choices.get(name));
    main.replaceChildren(...(cell ? [runBar(cell)] : []), view ? view.node : h("div.view", gridPage(report)));
    setNav(view ? view.nav : gridNav(report));
    if (view) await view.update(await reportOf(cell));
    if (cell && before !== undefined) scrollTo(0, 0);
    if (before !== undefined) (cell ? main.querySelector(".back") : linkTo(before))?.focus();
  }
  view?.follow(want);
  document.body.dataset.ready = "true";
}

function setNav(nav) {
  top.querySelector("nav")?.remove();
  top.prepend(nav);
}

/** The link in the table to a run of this name. */
function linkTo(name) {
  const cell = findRun(report.grid, name);
  return cell && main.querySelector(`[data-key="${CSS.escape(cell.key)}"]`);
}

/** Draw a newer report. */
async function renew(fresh) {
  if (!fresh.grid !== !report.grid) return location.reload(); // the directory became a grid
  report = fresh;
  document.title = report.title;
  if (!report.grid) return view.update(report);
  if (view) {
    const cell = findRun(report.grid, shown);
    return cell ? view.update(await reportOf(cell)) : show(); // the run may have another name now
  }
  setNav(gridNav(report));
  refill(main.firstChild, gridPage(report));
}

/** Ask for the report again and again; less often once it has finished or the server does not answer. */
async function follow(version = null, interval = INTERVAL) {
  const headers = version ? { "If-None-Match": version } : {};
  const answer = await fetch(live, { headers, cache: "no-store" }).catch(() => null);
  const fresh = answer?.ok ? await answer.json().catch(() => null) : null;
  const drawn = !fresh || (await inTurn(() => renew(fresh)).then(() => true, reportError));
  if (fresh && drawn) version = answer.headers.get("ETag");
  const [reached, continues] = [fresh || answer?.status === 304, report.state === "unfinished"];
  const state = !reached ? "○ no connection" : !drawn ? "✕ cannot be drawn" : continues ? "● live" : "■ finished";
  top.querySelector(".live").textContent = state;
  interval = reached && drawn && continues ? INTERVAL : Math.min(2 * interval, LONGEST_INTERVAL);
  setTimeout(() => follow(version, interval), interval);
}

/** Use light or dark colours, or those of the reader's system, and draw again. */
function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  flip.textContent = isDark() ? "☀ light" : "☾ dark";
  if (view) view.draw();
  else if (shown !== undefined) renew(report);
}

/** On paper everything is light and open. */
function print() {
  const theme = document.documentElement.dataset.theme ?? "";
  addEventListener("afterprint", () => setTheme(theme), { once: true });
  setTheme("light");
  document.querySelectorAll("details").forEach((details) => (details.open = true));
}

const flip = button("", "theme", () => setTheme(isDark() ? "light" : "dark"));
top.append(live ? h("span.live", { role: "status" }, "● live") : "", flip);
flip.textContent = isDark() ? "☀ light" : "☾ dark";
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => setTheme(""));
addEventListener("hashchange", () => {
  forget();
  inTurn(show);
});
addEventListener("beforeprint", print);
inTurn(show).then(() => live && follow());
