import assert from "node:assert/strict";
import test from "node:test";
import type { Block, Panel, State, TokenList } from "../src/contract";
import { softmax } from "../src/dot_product";
import { describeKey, makeScene, placesShown, queryPlace, quoted, softmaxNote } from "../src/neuron_scene";

const tokens: TokenList = {
  text: ["[CLS]", "un", "like", "ly", "now", "[SEP]"], space: "010011", word: [-1, 0, 0, 0, 1, -1], special: [0, 5],
  sinks: [0], segment: [0, 0, 0, 0, 1, 1], segments: ["a", "b"], rtl: false,
};
const width = 4;
const block: Block = {
  name: "self", causal: true, queries: "text", keys: "text", layers: [3], heads: [2], weightings: { attention: "" },
  strip: 64, quality: 1, thumb: 8, statistics: {}, vectors: { layers: [3], width, scale: 0.5 },
};
const panel: Panel = { name: "", model: "", fingerprint: "", tokens: { text: tokens }, blocks: [block] };
const state = (change: Partial<State> = {}): State => ({
  mode: "neurons", block: "self", weighting: "attention", layer: 3, heads: [], average: "none", unit: "tokens",
  hideSpecial: false, hideSinks: false, mass: 1, from: null, to: null, left: [], right: [], sort: null, colour: null,
  head: 1, track: null, map: null, theme: "auto", ...change,
});

/** Numbers that differ for every head, token and neuron. */
const number = (i: number): number => Math.sin(i * 12.9898) * 2;
const q = Float32Array.from({ length: 2 * 6 * width }, (_, i) => number(i + 1));
const k = Float32Array.from({ length: 2 * 6 * width }, (_, i) => number(i + 500));
const at = (values: Float32Array, head: number, token: number): number[] =>
  Array.from({ length: width }, (_, n) => values[(head * 6 + token) * width + n]);

function row(query: number, head: number): { codes: Uint8Array; dropped: number; exact: null } {
  const logits = Float64Array.from({ length: query + 1 }, (_, key) =>
    0.5 * at(q, head, query).reduce((sum, value, n) => sum + value * at(k, head, key)[n], 0));
  const codes = new Uint8Array(6);
  softmax(logits, () => true).forEach((weight, key) => (codes[key] = Math.round(255 * Math.sqrt(weight))));
  return { codes, dropped: 0, exact: null };
}

const scene = (change: Partial<State> = {}, query = 4, sorted = true) =>
  makeScene(state(change), panel, block, query, 1, { q, k }, row(query, 1), sorted);

test("the query is the chosen token, a chosen word's first token, or the last that is not special", () => {
  assert.equal(queryPlace(state(), tokens), 4);
  assert.equal(queryPlace(state({ left: [2, 1] }), tokens), 2);
  assert.equal(queryPlace(state({ left: [2], unit: "words" }), tokens), 4);
  assert.equal(queryPlace(state({ left: [99] }), tokens), 4);
  const dotted = { ...tokens, text: tokens.text.map((text, place) => (place === 4 ? "." : text)) };
  assert.equal(queryPlace(state(), dotted), 3, "marks are passed over");
});

test("vectors come from the right head and tokens, and a causal query sees no key after itself", () => {
  const made = scene();
  assert.deepEqual([...made.queryVector], at(q, 1, 4));
  assert.deepEqual([...made.keyVectors.slice(2 * width, 3 * width)], at(k, 1, 2));
  assert.deepEqual(made.rows, [0, 1, 2, 3, 4]);
  assert.equal(made.weights.length, 5);
  assert.equal(made.check.verdict, "same");
  assert.equal(softmaxNote(made, tokens), null);
});

test("without a chosen key the one with most weight decides the order; a hidden choice does not count", () => {
  const made = scene();
  const most = [...made.weights.keys()].sort((a, b) => made.weights[b] - made.weights[a]);
  assert.equal(made.chosen, most[0]);
  assert.equal(scene({ right: [2] }).chosen, 2);
  assert.equal(scene({ right: [1], unit: "words" }).chosen, 1, "a word stands for its first token");
  assert.equal(scene({ right: [5] }).chosen, most[0], "a key out of reach");
  assert.notEqual(scene({ right: [0], hideSinks: true }).chosen, 0);
});

test("neurons are sorted by the chosen key's products, or left in the model's order", () => {
  const orders = new Set<string>();
  for (let key = 0; key < 5; key++) {
    const own = at(q, 1, 4).map((value, n) => Math.fround(value * at(k, 1, key)[n]));
    const side = own.reduce((sum, value) => sum + value, 0) < 0 ? -1 : 1;
    assert.deepEqual(scene({ right: [key] }).order, [0, 1, 2, 3].sort((a, b) => side * (own[b] - own[a])));
    assert.deepEqual(scene({ right: [key] }, 4, false).order, [0, 1, 2, 3]);
    orders.add(String(scene({ right: [key] }).order));
  }
  assert.ok(orders.size > 1, "the order depends on the key");
});

test("hidden keys lose their rows, not their weight: it is counted", () => {
  const made = scene({ hideSpecial: true });
  assert.deepEqual(made.rows, [1, 2, 3, 4]);
  assert.ok(Math.abs(made.hidden - made.weights[0]) < 1e-6);
  assert.deepEqual(scene({ to: 1 }).rows, [4]);
  assert.deepEqual(placesShown(state({ hideSpecial: true }), tokens, 0), [1, 2, 3]);
  const none = scene({ hideSpecial: true, hideSinks: true }, 0);
  assert.deepEqual([none.rows, none.chosen], [[], -1]);
});

test("exact weights are shown where a model gives them", () => {
  const exact = Float32Array.from([0.1, 0.2, 0.3, 0.15, 0.25, 0]);
  const made = makeScene(state(), panel, block, 4, 1, { q, k }, { ...row(4, 1), exact }, true);
  assert.deepEqual([...made.weights], [...exact.slice(0, 5)]);
});

test("a position term is told in a note with the difference", () => {
  const codes = Uint8Array.from([0, 0, 0, 0, 255, 0]);
  codes[0] = 60;
  codes[1] = 30;
  codes[2] = 30;
  codes[3] = 30;
  const made = makeScene(state(), panel, block, 4, 1, { q, k }, { codes, dropped: 0, exact: null }, true);
  assert.match(softmaxNote(made, tokens) ?? "", /differs from the weights by up to 0\.\d+, at .*position terms/);
});

test("sentences name the token, its place and its numbers, and isolate right-to-left text", () => {
  const made = scene();
  const dot = at(q, 1, 4).reduce((sum, value, n) => sum + value * at(k, 1, 2)[n], 0);
  const said = describeKey(made, 2, tokens, false);
  assert.ok(said.includes(quoted("like", 2)) && said.includes(`q·k ${dot < 0 ? "−" : ""}${Math.abs(dot).toFixed(2)}`.slice(0, 8)), said);
  assert.equal(quoted("قدم", 3), "“\u2068قدم\u2069” (3)");
});
