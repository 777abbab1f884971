import assert from "node:assert/strict";
import test from "node:test";
import { checkSoftmax, halfPrecisionError, neuronsByShare, products, scaledDots, softmax } from "../src/dot_product";

const query = Float32Array.from([1, -2, 3]);
const keys = Float32Array.from([4, 5, 6, -1, 0.5, 0, 2, 2, 2]); // 3 keys × 3 neurons

/** Weights as the file keeps them: the nearest code. */
const coded = (weights: Iterable<number>): Uint8Array => Uint8Array.from(weights, (w) => Math.round(255 * Math.sqrt(w)));

test("products and dot products by hand", () => {
  const product = products(query, keys);
  assert.deepEqual([...product], [4, -10, 18, -1, -1, 0, 2, -4, 6]);
  assert.deepEqual([...scaledDots(product, 3, 0.5)], [6, -1, 2]);
  assert.equal(halfPrecisionError(product, 3, -0.5), 32 * 0.5 / 1024);
});

test("neurons that make the dot product come first, whatever its sign; ties by number", () => {
  assert.deepEqual(neuronsByShare(Float32Array.from([4, -10, 18, 4])), [2, 0, 3, 1]);
  assert.deepEqual(neuronsByShare(Float32Array.from([4, -10, 1, 1])), [1, 2, 3, 0]);
  assert.deepEqual(neuronsByShare(new Float32Array(3)), [0, 1, 2]);
});

test("softmax over some keys, safe for large numbers", () => {
  const result = softmax(Float64Array.from([1000, 1000 + Math.log(3), 5000]), (key) => key < 2);
  assert.ok(Math.abs(result[0] - 0.25) < 1e-12 && Math.abs(result[1] - 0.75) < 1e-12);
  assert.equal(result[2], 0);
  assert.deepEqual([...softmax(Float64Array.from([1, 2]), () => false)], [0, 0]);
});

function logits(count: number, seed: number): Float64Array {
  let state = seed;
  return Float64Array.from({ length: count }, () => ((state = (state * 16807) % 2147483647) / 2147483647) * 8 - 4);
}

test("rounding to 8 bits is no difference, at any number of keys", () => {
  for (const count of [1, 2, 17, 300, 1024]) {
    for (let seed = 1; seed < 20; seed++) {
      const row = logits(count, seed * 7919);
      assert.equal(checkSoftmax(row, coded(softmax(row, () => true)), 0, 0).verdict, "same", `${count} ${seed}`);
    }
  }
});

test("an added position term is found, with the key and size of the largest difference", () => {
  const row = logits(40, 5);
  const biased = row.map((value, key) => value + (key === 7 ? 6 : 0));
  const [plain, weights] = [softmax(row, () => true), softmax(biased, () => true)];
  const check = checkSoftmax(row, coded(weights), 0, 0);
  assert.equal(check.verdict, "differs");
  assert.equal(check.key, 7);
  assert.ok(Math.abs(check.difference - (weights[7] - plain[7])) < 0.005);
});

test("a window of keys is told from a position term", () => {
  const row = logits(200, 11);
  const weights = softmax(row, (key) => key >= 150);
  assert.equal(checkSoftmax(row, coded(weights), 0, 0).verdict, "window");
});

test("weights that the file dropped are not held against the softmax", () => {
  const row = logits(30, 3);
  const weights = softmax(row, () => true);
  const least = [...weights.keys()].sort((a, b) => weights[a] - weights[b]).slice(0, 20);
  const dropped = least.reduce((sum, key) => sum + weights[key], 0);
  const codes = coded(weights.map((w, key) => (least.includes(key) ? 0 : w)));
  assert.equal(checkSoftmax(row, codes, dropped, 0).verdict, "same");
  assert.notEqual(checkSoftmax(row, codes, 0, 0).verdict, "same");
});

test("vectors of 16 bits may move large logits a little", () => {
  const row = Float64Array.from([30, 29.4, 10]);
  const weights = softmax(row.map((value, key) => value + (key === 0 ? 0.04 : -0.02)), () => true);
  assert.equal(checkSoftmax(row, coded(weights), 0, 0).verdict, "differs");
  assert.equal(checkSoftmax(row, coded(weights), 0, 0.06).verdict, "same");
});
