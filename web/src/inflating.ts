/** Decoding of weights chunks. Pure: it runs in the worker, or on the page where no worker can start. */

import { bytesOfBase64 } from "./base64";

/** What is needed to read one strip: its first row, how many rows, how many keys, and whether rows are packed. */
export interface StripShape {
  first: number;
  rows: number;
  keys: number;
  causal: boolean;
}

/** Inflates zlib bytes. */
export async function inflate(stored: Uint8Array): Promise<Uint8Array<ArrayBuffer>> {
  const stream = new Blob([stored as Uint8Array<ArrayBuffer>]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** Bytes that an inflated strip has. */
export function stripBytes({ first, rows, keys, causal }: StripShape): number {
  return (causal ? rows * first + (rows * (rows + 1)) / 2 : rows * keys) + rows;
}

/** Undoes the filter: codes [rows, keys] with zeros after the diagonal, then one code of dropped mass per row. */
export function unfilter(raw: Uint8Array, shape: StripShape): Uint8Array<ArrayBuffer> {
  const { first, rows, keys, causal } = shape;
  const expected = stripBytes(shape);
  if (raw.length !== expected)
    throw new Error(`A strip of weights has ${raw.length} bytes, but ${expected} were expected.`);
  const codes = new Uint8Array(rows * keys + rows);
  let read = 0;
  for (let r = 0; r < rows; r++) {
    const length = causal ? first + r + 1 : keys;
    const start = r * keys;
    if (r === 0) codes.set(raw.subarray(0, length), 0);
    // The place above the last one of a packed row is still zero, which is what the filter counts it as.
    else for (let j = 0; j < length; j++) codes[start + j] = raw[read + j] + codes[start - keys + j];
    read += length;
  }
  codes.set(raw.subarray(read), rows * keys);
  return codes;
}

/** Inflates a chunk, given as bytes or as base64 text; weights are unfiltered. */
export async function decode(stored: Uint8Array | string, strip?: StripShape): Promise<Uint8Array<ArrayBuffer>> {
  const raw = await inflate(typeof stored === "string" ? bytesOfBase64(stored) : stored);
  return strip ? unfilter(raw, strip) : raw;
}
