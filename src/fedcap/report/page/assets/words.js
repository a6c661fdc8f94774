// Numbers and names as people read them.

export const isNumber = (value) => typeof value === "number" && Number.isFinite(value);
const or = (value, write) => (isNumber(value) ? write(value) : "–");

/** A percentage with one digit behind the point, as everywhere in this project. */
export const percent = (value) => or(value, (it) => it.toFixed(1));

/** A difference in points, with its sign. */
export const points = (value) => or(value, (it) => (it < 0 ? "−" : "+") + Math.abs(it).toFixed(1));

/** A measure of any size, with three digits that count. */
export function measure(value) {
  return or(value, (it) => {
    const size = Math.abs(it);
    if (size >= 1e6 || (size && size < 1e-3)) return it.toExponential(1).replace("e+", "e");
    return size >= 100 ? grouped(Math.round(it)) : String(Number(it.toPrecision(3)));
  }).replace("-", "−");
}

/** A whole number, with commas by thousands. */
export const grouped = (value) => or(value, (it) => it.toLocaleString("en-GB"));

export function bytes(value) {
  return or(value, (it) => {
    const [size, unit] = [
      [1e9, "GB"],
      [1e6, "MB"],
      [1e3, "kB"],
      [1, "B"],
    ].find(([least]) => it >= least) ?? [1, "B"];
    return `${Number((it / size).toPrecision(3))} ${unit}`;
  });
}

export function seconds(value) {
  return or(value, (it) => {
    if (it < 0.9995) return `${measure(it * 1000)} ms`;
    if (it < 120) return `${measure(it)} s`;
    return it < 7200 ? `${measure(it / 60)} min` : `${measure(it / 3600)} h`;
  });
}

/** A text that fits its place; a reason of ten megabytes does not. */
export function cut(text, most = 160) {
  const whole = String(text ?? "");
  return whole.length > most ? `${whole.slice(0, most - 1)}…` : whole;
}

/** A client's name in a sentence: a mere number is "client 7". */
export const called = (name, most = 40) => (/^\d+$/.test(name) ? `client ${name}` : cut(name, most));

export const count = (number, one, many = `${one}s`) => `${grouped(number)} ${number === 1 ? one : many}`;
