// Packed arrays and runs back to what they were: base64, raw deflate, quantised. See report/story/packing.py.

async function inflated(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Response(stream).arrayBuffer();
}

/** The numbers of a packed array, nested as its shape says; what was null is NaN. */
async function numbers({ q, min, max, shape, bits, log }) {
  const data = await inflated(q);
  const codes = bits === 8 ? new Uint8Array(data) : new Uint16Array(data);
  const none = 2 ** bits - 1;
  const flat = Float64Array.from(codes, (code) => {
    if (code === none) return NaN;
    const value = min + ((max - min) * code) / (none - 1);
    return log ? Math.sign(value) * Math.expm1(Math.abs(value)) : value;
  });
  return nested(flat, shape);
}

function nested(flat, [first, ...rest]) {
  if (!rest.length) return flat;
  const step = rest.reduce((product, size) => product * size, 1);
  return Array.from({ length: first }, (_, i) => nested(flat.subarray(i * step, (i + 1) * step), rest));
}

/** A structure with all its arrays unpacked. */
export async function unpacked(node) {
  if (Array.isArray(node)) {
    return node.some((one) => one !== null && typeof one === "object")
      ? Promise.all(node.map(unpacked))
      : node;
  }
  if (node === null || typeof node !== "object") return node;
  if ("q" in node && "shape" in node) return numbers(node);
  const entries = Object.entries(node).map(async ([key, value]) => [key, await unpacked(value)]);
  return Object.fromEntries(await Promise.all(entries));
}

/** The story of one of a grid's runs, its arrays still packed. */
export async function cellStory(cell) {
  return "z" in cell ? JSON.parse(new TextDecoder().decode(await inflated(cell.z))) : cell;
}
