// The view in the page's address: `#cell=…&client=…&round=…&at=section`, so that a link opens the same view.

const PAUSE = 200;
let [noted, timer] = [{}, null];

/** What the address asks for. */
export function asked() {
  return { ...Object.fromEntries(new URLSearchParams(location.hash.slice(1))), ...noted };
}

/** The address of this view with changes; null removes an entry. */
export function addressOf(changes, from = asked()) {
  const entries = Object.entries({ ...from, ...changes });
  const kept = entries.filter(([, value]) => value !== null && value !== undefined);
  return `#${new URLSearchParams(kept)}`;
}

/** Change the address after a pause, without a new entry in the browser's history. */
export function note(changes) {
  Object.assign(noted, changes);
  timer ??= setTimeout(() => {
    history.replaceState(null, "", addressOf({}));
    forget();
  }, PAUSE);
}

/** Do not change the address: another view was opened. */
export function forget() {
  clearTimeout(timer);
  [noted, timer] = [{}, null];
}
