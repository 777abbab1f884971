import assert from "node:assert/strict";
import { test } from "node:test";
import type { Block, Header, State } from "../src/contract";
import { defaults, fromHash, known, modes, StateStore, toHash } from "../src/state";

function block(change: Partial<Block> = {}): Block {
  return {
    name: "self",
    causal: true,
    queries: "text",
    keys: "text",
    layers: [0, 1, 5],
    heads: [4, 4, 2],
    weightings: { attention: "Attention", norm: "Norm" },
    strip: 8,
    quality: 1,
    thumb: 8,
    statistics: { entropy: "Entropy" },
    vectors: null,
    ...change,
  };
}

function header(blocks: Block[] = [block()], state: Partial<State> = {}): Header {
  const list = {
    text: ["a", "b"],
    space: "11",
    word: [0, 1],
    special: [],
    sinks: [],
    segment: [0, 1],
    segments: ["A", "B"],
    rtl: false,
  };
  return {
    format: 1,
    kind: "attention",
    title: "",
    notes: [],
    chunks: {},
    state,
    pellucid: "",
    panels: [{ name: "", model: "", fingerprint: "", tokens: { text: list }, blocks }],
  };
}

test("only views that the data can fill are offered", () => {
  assert.deepEqual(modes(header()), ["model", "heads"]);
  assert.deepEqual(modes(header([block({ vectors: { layers: [0], width: 4, scale: 1 } })])), [
    "model",
    "heads",
    "neurons",
  ]);
  const text = header([]);
  text.panels[0].text = { tracks: {}, maps: {}, lens: null };
  assert.deepEqual(modes(text), ["text"]);
});

test("defaults show all heads of the first layer, and the header's wishes win", () => {
  assert.deepEqual(defaults(header()).heads, [0, 1, 2, 3]);
  const wished = defaults(header([block()], { layer: 5, mode: "heads" }));
  assert.deepEqual([wished.layer, wished.heads, wished.mode], [5, [0, 1], "heads"]);
  assert.deepEqual(defaults(header([block()], { heads: [] })).heads, []);
});

test("values of a wrong kind and unknown names are passed over", () => {
  assert.deepEqual(known({ layer: "2", mass: 0, heads: [1, -1], unit: "letters", left: [3], evil: 1, sort: null }), {
    left: [3],
    sort: null,
  });
  assert.deepEqual(known("nonsense"), {});
});

test("a choice that the data does not offer is replaced", () => {
  const store = new StateStore(header(), {
    layer: 3,
    heads: [9, 4, 1, 1],
    weighting: "no",
    sort: "no",
    from: 7,
    block: "cross",
    mode: "neurons",
    head: 8,
  });
  const { layer, heads, weighting, sort, from, block: name, mode, head } = store.state;
  assert.deepEqual(
    [layer, heads, weighting, sort, from, name, mode, head],
    [0, [1], "attention", null, null, "self", "model", 0],
  );
});

test("followers hear what changed, and only then", () => {
  const store = new StateStore(header());
  const heard: string[][] = [];
  const leave = store.subscribe((_, changed) => heard.push([...changed]));
  store.set({ layer: 1 });
  store.set({ layer: 1 });
  store.set({ left: [] });
  store.set({ left: [1], layer: 5 });
  leave();
  store.set({ layer: 0 });
  assert.deepEqual(heard, [["layer"], ["layer", "heads", "mass", "left"]]);
});

test("the address holds what differs, and gives it back", () => {
  const given = header();
  const store = new StateStore(given);
  assert.equal(toHash(store.state, given), "");
  store.set({ layer: 1, left: [1], unit: "words", colour: "entropy" });
  const hash = toHash(store.state, given);
  assert.deepEqual(fromHash(hash), { layer: 1, left: [1], unit: "words", colour: "entropy" });
  assert.deepEqual(new StateStore(given, fromHash(hash)).state, store.state);
});

test("the neuron view opens at the nearest layer that has vectors", () => {
  const given = header([block({ vectors: { layers: [1, 5], width: 4, scale: 1 } })]);
  const store = new StateStore(given);
  store.set({ mode: "neurons" });
  assert.equal(store.state.layer, 1);
  assert.equal(new StateStore(given, { mode: "neurons", layer: 5 }).state.layer, 5);
});

test("how much is drawn follows what is shown, until it is chosen", () => {
  const store = new StateStore(header());
  assert.equal(store.state.mass, 0.5); // of four heads at once, the strong half
  store.set({ left: [1] });
  assert.equal(store.state.mass, 0.95);
  store.set({ left: [] });
  assert.equal(store.state.mass, 0.5);
  store.set({ heads: [2] });
  assert.equal(store.state.mass, 0.95);
  store.set({ heads: [0, 1, 2, 3], average: "heads" });
  assert.equal(store.state.mass, 0.95);
  store.set({ mass: 0.7 });
  store.set({ average: "none" });
  store.set({ heads: [1] });
  assert.equal(store.state.mass, 0.7);
  assert.deepEqual(fromHash(toHash(store.state, header())), { heads: [1], mass: 0.7 });
  assert.equal(new StateStore(header(), { heads: [1] }).state.mass, 0.95);
  assert.equal(new StateStore(header([block()], { mass: 0.8 }), { heads: [1] }).state.mass, 0.8);
});

test("an address that cannot be read says nothing", () => {
  for (const hash of ["", "#state=%7Bbroken", "#state=%", "#other=1"]) assert.deepEqual(fromHash(hash), {});
});
