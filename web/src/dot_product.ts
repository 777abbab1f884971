/** How queries and keys make attention: products of neurons, their order, and the check against the weights. */

import { WEIGHT } from "./contract";

/** Elementwise products of one query [width] with every key [keys × width]; the same layout as the keys. */
export function products(query: Float32Array, keys: Float32Array): Float32Array {
  const width = query.length;
  const result = new Float32Array(keys.length);
  for (let start = 0; start < keys.length; start += width) {
    for (let neuron = 0; neuron < width; neuron++) result[start + neuron] = query[neuron] * keys[start + neuron];
  }
  return result;
}

/** Sums of each run of `width` numbers, times `scale`: the dot products as the softmax sees them. */
export function scaledDots(product: Float32Array, width: number, scale: number): Float64Array {
  const result = new Float64Array(product.length / width);
  for (let key = 0; key < result.length; key++) {
    let sum = 0;
    for (let neuron = 0; neuron < width; neuron++) sum += product[key * width + neuron];
    result[key] = sum * scale;
  }
  return result;
}

/** Neurons by their share of one key's dot product: what makes it what it is first, what works against it last. */
export function neuronsByShare(product: Float32Array): number[] {
  const sum = product.reduce((total, value) => total + value, 0);
  const side = sum < 0 ? -1 : 1;
  return Array.from(product.keys()).sort((a, b) => side * (product[b] - product[a]) || a - b);
}

/** Softmax over the keys that are `seen`; the others get 0. */
export function softmax(logits: Float64Array, seen: (key: number) => boolean): Float64Array {
  const result = new Float64Array(logits.length);
  let most = -Infinity;
  for (let key = 0; key < logits.length; key++) if (seen(key)) most = Math.max(most, logits[key]);
  let sum = 0;
  for (let key = 0; key < logits.length; key++) if (seen(key)) sum += result[key] = Math.exp(logits[key] - most);
  if (sum > 0) for (let key = 0; key < logits.length; key++) result[key] /= sum;
  return result;
}

export interface SoftmaxCheck {
  /** "same": the weights are the softmax; "window": they are, over the keys that have any weight; "differs": neither. */
  verdict: "same" | "window" | "differs";
  /** Largest |softmax − weight| over the keys and the key where it is. */
  difference: number;
  key: number;
}

/** Compares softmax(logits) with a row of weight codes, allowing for what rounding may do to each weight.
 *
 * Rounding: one step of the 8-bit code at that weight, the mass the file dropped where the code is 0, and the error
 * that 16-bit vectors leave in a logit (`logitError`), which moves a weight w by at most about 2·w·(1 − w)·error.
 */
export function checkSoftmax(logits: Float64Array, codes: Uint8Array, dropped: number, logitError: number): SoftmaxCheck {
  const compare = (seen: (key: number) => boolean): { difference: number; key: number; beyond: boolean } => {
    const expected = softmax(logits, seen);
    const most = { difference: 0, key: 0, beyond: false };
    for (let key = 0; key < logits.length; key++) {
      const code = codes[key];
      const difference = Math.abs(expected[key] - WEIGHT[code]);
      const step = WEIGHT[Math.min(255, code + 1)] - WEIGHT[Math.max(0, Math.min(254, code))];
      const lost = code === 0 ? dropped : 0;
      const w = expected[key];
      if (difference > step + lost + 2 * w * (1 - w) * logitError + 1e-4) most.beyond = true;
      if (difference > most.difference) [most.difference, most.key] = [difference, key];
    }
    return most;
  };
  const all = compare(() => true);
  if (!all.beyond) return { verdict: "same", difference: all.difference, key: all.key };
  const within = compare((key) => codes[key] > 0);
  if (!within.beyond) return { verdict: "window", difference: all.difference, key: all.key };
  return { verdict: "differs", difference: all.difference, key: all.key };
}

/** Largest error of a scaled dot product whose factors were rounded to 16-bit floats (11 significant bits each). */
export function halfPrecisionError(product: Float32Array, width: number, scale: number): number {
  let most = 0;
  for (let start = 0; start < product.length; start += width) {
    let sum = 0;
    for (let place = start; place < start + width; place++) sum += Math.abs(product[place]);
    most = Math.max(most, sum);
  }
  return most * Math.abs(scale) * 2 ** -10;
}
