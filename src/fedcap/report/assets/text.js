// Numbers, names and units as text.

export const isNumber = (value) => typeof value === "number" && Number.isFinite(value);
const or = (value, write) => (isNumber(value) ? write(value) : "–");

/** A percentage with one decimal. */
export const percent = (value) => or(value, (it) => it.toFixed(1));

/** A difference in points, with its sign. */
export const points = (value) => or(value, (it) => (it > 0 ? "+" : it < 0 ? "−" : "") + Math.abs(it).toFixed(1));

/** A measurement of any size, with three significant digits. */
export function measure(value) {
  return or(value, (it) => {
    const size = Math.abs(it);
    if (size >= 1e6 || (size && size < 1e-3)) return it.toExponential(1).replace("e+", "e");
    return size >= 100 ? grouped(Math.round(it)) : String(Number(it.toPrecision(3)));
  }).replace("-", "−");
}

/** A whole number, with a comma every three digits. */
export const grouped = (value) => or(value, (it) => it.toLocaleString("en-GB"));

export const count = (number, one, many = `${one}s`) => `${grouped(number)} ${number === 1 ? one : many}`;

export const megabytes = (value) => or(value, (it) => `${measure(it / 1e6)} MB`);

export function seconds(value) {
  return or(value, (it) => {
    if (it < 0.9995) return `${measure(it * 1000)} ms`;
    if (it < 120) return `${measure(it)} s`;
    return it < 7200 ? `${measure(it / 60)} min` : `${measure(it / 3600)} h`;
  });
}

/** A text, cut if it is too long for its place. */
export function cut(text, most = 160) {
  const whole = String(text ?? "");
  return whole.length > most ? `${whole.slice(0, most - 1)}…` : whole;
}

/** The name of a client in a sentence: a number becomes "client 7". */
export const called = (name, most = 40) => (/^\d+$/.test(name) ? `client ${name}` : cut(name, most));
