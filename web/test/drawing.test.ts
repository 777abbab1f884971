import assert from "node:assert/strict";
import { test } from "node:test";
import { headColour, sequential } from "../src/colour";
import type { Block } from "../src/contract";
import { descent, rasterise } from "../src/curve_raster";
import { cellAt, layOut, thumbPixels } from "../src/model_layout";
import { number, weightText } from "../src/numbers";
import { SvgPicture } from "../src/picture";

const svg = () => new SvgPicture(() => "data:,");

test("text in SVG is escaped and cannot break out", () => {
  const picture = svg();
  picture.text(1, 2, `<script>&"\u0001`, { colour: '"/><x' });
  const text = picture.document(10, 10, "#fff");
  assert.ok(text.includes("&lt;script&gt;&amp;&quot;\ufffd</text>"));
  assert.ok(!text.includes("<x") && !text.includes("<script"));
});

test("anchors mean left and right, whichever way the text runs", () => {
  const picture = svg();
  picture.text(0, 0, "a", { colour: "#000", anchor: "end" });
  picture.text(0, 0, "b", { colour: "#000", anchor: "end", rtl: true });
  picture.text(0, 0, "c", { colour: "#000", rtl: true });
  const lines = picture.document(10, 10, "#fff").split("\n");
  assert.match(lines[0], /text-anchor="end"/);
  assert.doesNotMatch(lines[1], /text-anchor/);
  assert.match(lines[2], /text-anchor="end" direction="rtl"/);
});

test("the table of heights follows the Bézier curve of the other surfaces", () => {
  const columns = 400;
  const table = descent(columns);
  for (let k = 1; k < 40; k++) {
    const t = k / 40;
    const s = 1 - t;
    const x = 3 * s * s * t * 0.45 + 3 * s * t * t * 0.55 + t ** 3;
    const y = 3 * s * t * t + t ** 3;
    assert.ok(Math.abs(table[Math.round(x * columns - 0.5)] - y) < 0.005);
  }
});

test("a level curve covers its width, blended by its opacity", () => {
  const pixels = rasterise([{ y1: 5, y2: 5, rgb: [0, 100, 200], alpha: 0.5, width: 2 }], 8, 10, [200, 200, 200]);
  const at = (x: number, y: number) => [...pixels.subarray((y * 8 + x) * 4, (y * 8 + x) * 4 + 4)];
  assert.deepEqual(at(3, 4), [100, 150, 200, 255]);
  assert.deepEqual(at(7, 5), [100, 150, 200, 255]);
  assert.deepEqual(at(3, 3), [200, 200, 200, 255]);
  assert.deepEqual(at(3, 6), [200, 200, 200, 255]);
});

test("curves outside the picture leave it alone, and steep ones have no gaps", () => {
  const ground: [number, number, number] = [255, 255, 255];
  const outside = rasterise([{ y1: -9, y2: -5, rgb: [0, 0, 0], alpha: 1, width: 2 }], 8, 10, ground);
  assert.ok(outside.every((value) => value === 255));
  const steep = rasterise([{ y1: 0, y2: 100, rgb: [0, 0, 0], alpha: 1, width: 2 }], 20, 100, ground);
  for (let y = 2; y < 98; y++) {
    const row = Array.from({ length: 20 }, (_, x) => steep[(y * 20 + x) * 4]);
    assert.ok(Math.min(...row) < 200, `row ${y} is empty`);
  }
});

test("two colours lie over each other in their order", () => {
  const lines = [
    [255, 0, 0],
    [0, 0, 255],
  ].map((rgb) => ({ y1: 2, y2: 2, rgb: rgb as [number, number, number], alpha: 0.5, width: 2 }));
  const pixels = rasterise(lines, 2, 4, [255, 255, 255]);
  assert.deepEqual([...pixels.subarray(2 * 2 * 4, 2 * 2 * 4 + 3)], [128, 64, 191]);
});

const BLOCK: Block = {
  name: "self",
  causal: true,
  queries: "t",
  keys: "t",
  layers: [2, 4],
  heads: [3, 2],
  weightings: { attention: "" },
  strip: 8,
  quality: 1,
  thumb: 16,
  statistics: { s: "" },
  vectors: null,
};

test("heads stand in layers, and missing ones leave their place empty", () => {
  const layout = layOut(BLOCK, 600, { ranking: null, band: false, legend: false });
  assert.deepEqual(
    layout.cells.map((cell) => [cell.layer, cell.head, cell.row, cell.column]),
    [
      [2, 0, 0, 0],
      [2, 1, 0, 1],
      [2, 2, 0, 2],
      [4, 0, 1, 0],
      [4, 1, 1, 1],
    ],
  );
  const last = layout.cells[4];
  assert.equal(cellAt(layout, last.x + 3, last.y + 3), last);
  assert.equal(cellAt(layout, layout.cells[2].x + 3, last.y + 3), null);
});

test("ranked heads go from the largest value down; heads without a value come last", () => {
  const ranking = Float32Array.from([0.1, NaN, 0.9, 0.9, 0.2, 7]); // the last is no head
  const { cells } = layOut(BLOCK, 600, { ranking, band: true, legend: true });
  assert.deepEqual(
    cells.map((cell) => [cell.layer, cell.head]),
    [
      [2, 2],
      [4, 0],
      [4, 1],
      [2, 0],
      [2, 1],
    ],
  );
});

test("thirty-two heads across fit 1,300 pixels", () => {
  const many = {
    ...BLOCK,
    layers: Array.from({ length: 32 }, (_, i) => i),
    heads: Array.from({ length: 32 }, () => 32),
    thumb: 32,
  };
  const layout = layOut(many, 1250, { ranking: null, band: false, legend: false });
  assert.ok(layout.width <= 1250 && layout.size >= 30);
});

test("a thumbnail that shrinks keeps its largest codes, one that grows repeats them", () => {
  const scale = new Uint8ClampedArray(1024).map((_, i) => i >> 2);
  const small = thumbPixels(Uint8Array.from([0, 0, 9, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5]), 4, 2, scale);
  assert.deepEqual([small[0], small[4], small[8], small[12]], [7, 9, 0, 5]);
  const large = thumbPixels(Uint8Array.from([1, 2, 3, 4]), 2, 4, scale);
  assert.deepEqual(
    [0, 1, 2, 3].map((x) => large[x * 4]),
    [1, 1, 2, 2],
  );
});

test("colours of heads differ, in light and dark", () => {
  for (const dark of [false, true]) {
    for (const heads of [4, 12, 16, 32]) {
      const colours = Array.from({ length: heads }, (_, head) => headColour(head, heads, dark));
      const values = colours.map((colour) => [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16)));
      let nearest = Infinity;
      values.forEach((a, i) =>
        values.slice(0, i).forEach((b) => (nearest = Math.min(nearest, Math.hypot(...a.map((v, c) => v - b[c]))))),
      );
      assert.ok(nearest > (heads > 16 ? 12 : 20), `${heads} heads: two colours only ${nearest.toFixed(1)} apart`);
    }
  }
  assert.notDeepEqual(sequential(0, true), sequential(0, false));
});

test("numbers read as what they are", () => {
  assert.deepEqual([0, -0.474, 12.34, 0.0123, 123.4, 12345, NaN].map(number), [
    "0",
    "−0.474",
    "12.3",
    "0.012",
    "123",
    "12,345",
    "–",
  ]);
  assert.deepEqual([0, 0.5, 0.0098, 0.00999, 0.0004, 0.00001].map(weightText), [
    "0",
    "0.50",
    "0.010",
    "0.01",
    "0.0004",
    "<0.0001",
  ]);
});
