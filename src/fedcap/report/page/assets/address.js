// The view, in the page's address: `#cell=…&client=…&round=…&at=section`, so that a link opens it again.

const PAUSE = 200;
let [noted, timer] = [{}, null];

/** What the address asks for. */
export function asked() {
  return { ...Object.fromEntries(new URLSearchParams(location.hash.slice(1))), ...noted };
}

/** The address of this view with something changed; what is null is left out. */
export function addressOf(changes, from = asked()) {
  const parts = Object.entries({ ...from, ...changes }).filter(
    ([, value]) => value !== null && value !== undefined,
  );
  return `#${new URLSearchParams(parts)}`;
}

/** Change the address, without a new entry in the history, once the reader pauses. */
export function note(changes) {
  Object.assign(noted, changes);
  timer ??= setTimeout(() => {
    history.replaceState(null, "", addressOf({}));
    forget();
  }, PAUSE);
}

/** Leave the address as it is: the reader went elsewhere. */
export function forget() {
  clearTimeout(timer);
  [noted, timer] = [{}, null];
}
