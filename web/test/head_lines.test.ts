import assert from "node:assert/strict";
import { test } from "node:test";
import { deflateSync } from "node:zlib";
import { LoadedHeads } from "../src/chunks";
import { WEIGHT, type Header, type Source, type State } from "../src/contract";
import { barScale, geometry, HeadDrawing, ROW, type Look } from "../src/head_lines";
import { HeadScene } from "../src/head_scene";
import { describe } from "../src/head_status";
import type { Context, Picture } from "../src/part";
import { StateStore } from "../src/state";

// Without a document, texts are measured by their number of letters.
Object.assign(globalThis, { document: { createElement: () => ({ getContext: () => null }) } });

const COUNT = 30;
/** Every query gives the code 100 (or `other`) to each key up to itself, and 200 to the first. */
function context(other = 100): Context {
  const code = (key: number) => (key === 0 ? 200 : other);
  const list = {
    text: Array.from({ length: COUNT }, (_, i) => `t${i}`),
    space: "1".repeat(COUNT),
    word: Array.from({ length: COUNT }, (_, i) => i),
    special: [],
    sinks: [0],
    segment: Array.from({ length: COUNT }, () => 0),
    segments: ["all"],
    rtl: false,
  };
  const block = {
    name: "self",
    causal: true,
    queries: "text",
    keys: "text",
    layers: [0, 1],
    heads: [2, 2],
    weightings: { attention: "" },
    strip: COUNT,
    quality: 1,
    thumb: 8,
    statistics: {},
    vectors: null,
  };
  const header: Header = {
    format: 1,
    kind: "attention",
    title: "",
    notes: [],
    chunks: {},
    state: { mode: "heads", mass: 1 },
    pellucid: "",
    panels: [{ name: "model", model: "", fingerprint: "", tokens: { text: list }, blocks: [block] }],
  };
  const bytes: number[] = [];
  for (let i = 0; i < COUNT; i++) for (let j = 0; j <= i; j++) bytes.push(i === 0 || j === i ? code(j) : 0);
  for (let i = 0; i < COUNT; i++) bytes.push(0);
  const source: Source = {
    header,
    live: false,
    chunk: async () => new Uint8Array(deflateSync(Uint8Array.from(bytes))),
  };
  return {
    source,
    store: new StateStore(header),
    heads: new LoadedHeads(source),
    dark: () => false,
    announce: () => undefined,
  };
}

async function scene(change: Partial<State> = {}): Promise<HeadScene> {
  const made = context();
  made.store.set({ heads: [1], ...change });
  const found = await HeadScene.make(made, 0, made.store.state);
  await found.ensureAll();
  return found;
}

function recorder() {
  const curves: { y1: number; y2: number; alpha: number }[] = [];
  const texts: string[] = [];
  const rects: { x: number; y: number; w: number; colour: string }[] = [];
  const picture: Picture = {
    line: () => undefined,
    curve: (_x1, y1, _x2, y2, _colour, alpha) => void curves.push({ y1, y2, alpha }),
    rect: (x, y, w, _h, colour) => void rects.push({ x, y, w, colour }),
    text: (_x, _y, string) => void texts.push(string),
    image: () => undefined,
  };
  return { picture, curves, texts, rects };
}

const AT = geometry(900, 5 * ROW, 40);
const LOOK: Look = { scroll: 10 * ROW, queries: [], keys: [] };
const SMALL = WEIGHT[100];
const LARGE = WEIGHT[200];

test("lines run between the rows in view, and what leaves it is summed at the edge", async () => {
  const { picture, curves, texts } = recorder();
  new HeadDrawing(picture, await scene(), AT, LOOK, false).draw();
  // Queries 10 … 14 look at 1 + … + 5 keys in view, and each at the ten above.
  assert.equal(curves.length, 15 + 5);
  const up = curves.filter((curve) => curve.y2 === 0);
  assert.equal(up.length, 5);
  const above = LARGE + 9 * SMALL;
  for (const curve of up) assert.ok(Math.abs(curve.alpha - 0.92 * Math.min(1, above) ** 0.75) < 1e-4);
  assert.deepEqual(texts, [`↑ on average ${above.toFixed(2)} to tokens above`]);
});

test("lines too faint to see are left out of the whole, and counted; those of one token are drawn", async () => {
  const faint = WEIGHT[12];
  const made = context(12);
  made.store.set({ heads: [1] });
  const found = await HeadScene.make(made, 0, made.store.state);
  await found.ensureAll();
  const whole = recorder();
  const left = new HeadDrawing(whole.picture, found, AT, LOOK, false).draw();
  // Queries 10 … 14: 1 + … + 5 faint lines inside are left out, and five strong ones to the edge stay.
  assert.equal(whole.curves.length, 5);
  assert.ok(Math.abs(left - (15 * faint) / 5) < 1e-6);
  assert.ok(describe(found, LOOK, AT.height, made.store.state, left).includes("on average 0.007 not drawn"));
  const alone = recorder();
  assert.equal(new HeadDrawing(alone.picture, found, AT, { ...LOOK, queries: [12] }, false).draw(), 0);
  assert.equal(alone.curves.length, 3 + 1);
});

test("one query alone: its own lines, and bars with numbers beside the keys", async () => {
  const { picture, curves, texts, rects } = recorder();
  const found = await scene();
  new HeadDrawing(picture, found, AT, { ...LOOK, queries: [12] }, false).draw();
  assert.equal(curves.length, 3 + 1);
  assert.ok(curves.every((curve) => curve.y1 === 2 * ROW + ROW / 2));
  assert.deepEqual(
    texts.slice(1),
    [0, 1, 2].map(() => SMALL.toFixed(2)),
  );
  const bars = rects.filter((rect) => rect.x > AT.keys);
  assert.equal(bars.length, 3);
  assert.equal(barScale(found, { ...LOOK, queries: [12] }).keys, LARGE);
});

test("several queries add up", async () => {
  const { picture, texts } = recorder();
  new HeadDrawing(picture, await scene(), AT, { ...LOOK, queries: [11, 13] }, false).draw();
  assert.deepEqual(
    texts.slice(1),
    [2 * SMALL, 2 * SMALL, SMALL, SMALL].map((value) => value.toFixed(2)),
  );
});

test("a chosen query out of view: its lines come from the edge, and keys below are summed", async () => {
  const { picture, curves, texts } = recorder();
  new HeadDrawing(picture, await scene(), AT, { ...LOOK, queries: [25] }, false).draw();
  assert.ok(curves.every((curve) => curve.y1 === AT.height));
  const below = texts.find((text) => text.startsWith("↓"));
  assert.equal(below, `↓ ${(11 * SMALL).toFixed(2)} to tokens below`);
});

test("lines of one token are brought out, and bars are means over heads", async () => {
  const { picture, curves, texts } = recorder();
  const found = await scene({ heads: [0, 1] });
  new HeadDrawing(picture, found, AT, { ...LOOK, queries: [11] }, false).draw();
  const inside = curves.filter((curve) => curve.y2 > ROW / 2 - 2);
  assert.equal(inside.length, 4);
  for (const curve of inside) assert.ok(Math.abs(curve.alpha - 0.92 * SMALL ** 0.65) < 1e-4);
  assert.deepEqual(texts.slice(1), [SMALL.toFixed(2), SMALL.toFixed(2)]);
});

test("the cut is made on the sum of the chosen queries", async () => {
  const found = await scene({ mass: 0.6 });
  const sum = found.sum(0, [2, 3]);
  // Sums: 2·large, 2·small, 2·small, small; 0.6 of all is reached by the first.
  assert.ok(sum);
  const first = 2 * LARGE;
  const all = first + 5 * SMALL;
  assert.ok(first >= 0.6 * all);
  assert.deepEqual([...sum.kept].map((value) => value > 0).slice(0, 5), [true, false, false, false, false]);
  assert.ok(Math.abs(sum.dropped - 5 * SMALL) < 1e-6);
});

test("a key alone: who looks at it, in view and out of it", async () => {
  const { picture, curves, texts } = recorder();
  new HeadDrawing(picture, await scene(), AT, { ...LOOK, keys: [12] }, false).draw();
  assert.equal(curves.length, 3 + 1); // from 12, 13, 14, and from all below together
  assert.equal(texts[0], `↓ ${(15 * SMALL).toFixed(2)} from tokens below`);
});

test("chosen on both sides: only the lines between them", async () => {
  const { picture, curves } = recorder();
  new HeadDrawing(picture, await scene(), AT, { ...LOOK, queries: [12, 13], keys: [11, 13] }, false).draw();
  assert.equal(curves.length, 3); // 12 does not see 13
});

test("means are over heads, and over layers too", async () => {
  const heads = await scene({ heads: [0, 1], average: "heads" });
  assert.deepEqual([heads.series.length, heads.series[0].matrices.length], [1, 2]);
  const layers = await scene({ heads: [0, 1], average: "layers" });
  assert.deepEqual([layers.series.length, layers.series[0].matrices.length], [1, 4]);
  assert.ok(Math.abs((layers.row(0, 5)?.values[3] ?? 0) - SMALL) < 1e-6);
});

test("the sentence names weights, and says what is not drawn and what is hidden", async () => {
  const made = context();
  made.store.set({ heads: [1], hideSinks: true, mass: 0.5 });
  const found = await HeadScene.make(made, 0, made.store.state);
  await found.ensureAll();
  // Without the first token, query 4 (now at place 3) has four equal weights; half of them is drawn.
  const sentence = describe(found, { ...LOOK, queries: [3] }, AT.height, made.store.state, 0);
  assert.match(sentence, /^Layer 0, head 1 · “\u2068t4\u2069” looks at “\u2068t1\u2069” 0\.15, “\u2068t2\u2069” 0\.15/);
  assert.ok(sentence.includes(`${(2 * SMALL).toFixed(2)} not drawn`));
  assert.ok(sentence.includes(`${LARGE.toFixed(2)} hidden`));
});

test("what a panel lacks is said in a sentence", async () => {
  const made = context();
  await assert.rejects(HeadScene.make(made, 0, { ...made.store.state, layer: 7 }), /model has no layer 7\./);
  await assert.rejects(
    HeadScene.make(made, 0, { ...made.store.state, block: "cross" }),
    /model has no "cross" attention\./,
  );
});
