// The view, in the page's address: `#cell=…&client=…&round=…&at=section`, so that a link opens it again.

/** What the address asks for. */
export function asked() {
  return Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
}

/** The address of this view with something changed; what is null is left out. */
export function addressOf(changes, from = asked()) {
  const parts = Object.entries({ ...from, ...changes }).filter(([, value]) => value !== null && value !== undefined);
  return `#${new URLSearchParams(parts)}`;
}

/** Change the address without a new entry in the history: for sliders and pointers. */
export function note(changes) {
  history.replaceState(null, "", addressOf(changes));
}
