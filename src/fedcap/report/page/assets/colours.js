// One ramp of colours from nothing to much, light to dark on light ground and the other way round on dark.

const RAMPS = {
  light: [
    [247, 249, 252],
    [198, 219, 239],
    [107, 174, 214],
    [33, 113, 181],
    [8, 48, 107],
  ],
  dark: [
    [24, 29, 36],
    [22, 58, 95],
    [33, 113, 181],
    [107, 174, 214],
    [222, 235, 247],
  ],
};

export const isDark = () =>
  getComputedStyle(document.documentElement).colorScheme === "dark" ||
  (getComputedStyle(document.documentElement).colorScheme !== "light" &&
    matchMedia("(prefers-color-scheme: dark)").matches);

/** Red, green and blue for a share between 0 and 1. */
export function colour(share, dark = isDark()) {
  const ramp = RAMPS[dark ? "dark" : "light"];
  const place = Math.min(1, Math.max(0, share)) * (ramp.length - 1);
  const step = Math.min(ramp.length - 2, Math.floor(place));
  return ramp[step].map((part, i) => Math.round(part + (ramp[step + 1][i] - part) * (place - step)));
}

export const css = (rgb) => `rgb(${rgb.join(" ")})`;

/** Black or white, whichever is easier to read on a colour. */
export function inkOn(rgb) {
  const [r, g, b] = rgb.map((part) => (part / 255) ** 2.2);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.2 ? "#111" : "#fff";
}
