// Packed arrays and runs back to their values: base64, raw deflate, codes. The format is described in pack.py.

async function inflate(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Response(stream).arrayBuffer();
}

/** The numbers of a packed array, nested by its shape; null becomes NaN. */
async function numbers({ q, min, max, shape, bits, log }) {
  const data = await inflate(q);
  const codes = bits === 8 ? new Uint8Array(data) : new Uint16Array(data);
  const none = 2 ** bits - 1;
  const flat = Float64Array.from(codes, (code) => {
    if (code === none) return NaN;
    const value = min + ((max - min) * code) / (none - 1);
    return log ? Math.sign(value) * Math.expm1(Math.abs(value)) : value;
  });
  return nest(flat, shape);
}

function nest(flat, [first, ...rest]) {
  if (!rest.length) return flat;
  const step = rest.reduce((product, size) => product * size, 1);
  return Array.from({ length: first }, (_, i) => nest(flat.subarray(i * step, (i + 1) * step), rest));
}

/** A structure with all its arrays unpacked. */
export async function unpack(node) {
  if (Array.isArray(node)) {
    const isNested = node.some((one) => one !== null && typeof one === "object");
    return isNested ? Promise.all(node.map(unpack)) : node;
  }
  if (node === null || typeof node !== "object") return node;
  if ("q" in node && "shape" in node) return numbers(node);
  const entries = Object.entries(node).map(async ([key, value]) => [key, await unpack(value)]);
  return Object.fromEntries(await Promise.all(entries));
}

/** The report on a run of a grid; its arrays remain packed. */
export const unpackRun = async ({ z }) => JSON.parse(new TextDecoder().decode(await inflate(z)));
