// From values to places on an axis, and the values at which an axis has its ticks.

/** A straight or logarithmic scale from [low, high] to [from, to]; `scale.ticks(count)` are round values. */
export function scaleOf([low, high], [from, to], log = false) {
  const way = log ? Math.log10 : (value) => value;
  const [start, end] = [way(low), way(high)];
  const scale = (value) => from + ((way(value) - start) / (end - start || 1)) * (to - from);
  scale.ticks = (most) => (log ? decades(low, high, most) : steps(low, high, most));
  return scale;
}

function steps(low, high, most) {
  const rough = (high - low) / Math.max(1, most) || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((one) => one >= rough * 0.999);
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high + step * 1e-9; at++) found.push(at * step);
  return found.map((value) => Number(value.toPrecision(12)));
}

function decades(low, high, most) {
  const [first, last] = [Math.floor(Math.log10(low)), Math.ceil(Math.log10(high))];
  const every = Math.max(1, Math.ceil((last - first) / Math.max(1, most)));
  const parts = last - first <= 2 ? [1, 2, 5] : [1];
  const found = [];
  for (let power = first; power <= last; power += every)
    for (const part of parts) found.push(part * 10 ** power);
  return found.filter((value) => value >= low * 0.999 && value <= high * 1.001);
}

/** The least and the greatest of all finite values, with a little air; those of `within` are among them, and need none. */
export function rangeOf(lists, { log = false, within = [] } = {}) {
  let [low, high] = [Infinity, -Infinity];
  for (const list of [...lists, within])
    for (const value of list)
      if (Number.isFinite(value) && value !== null && (!log || value > 0)) {
        if (value < low) low = value;
        if (value > high) high = value;
      }
  if (low > high) return log ? [0.1, 1] : [0, 1];
  if (log) return low === high ? [low / 2, high * 2] : [low / 1.15, high * 1.15];
  const air = (high - low) * 0.04 || Math.abs(high) * 0.1 || 1;
  const [from, to] = [within.includes(low) ? low : low - air, within.includes(high) ? high : high + air];
  return [from, Math.max(to, from + air)];
}
