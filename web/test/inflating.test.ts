import assert from "node:assert/strict";
import { test } from "node:test";
import { deflateSync } from "node:zlib";
import { bytesOfBase64 } from "../src/base64";
import { floats, halves, LoadedHeads } from "../src/chunks";
import type { Header, Source } from "../src/contract";
import { inflate, stripBytes, unfilter } from "../src/inflating";

/** Codes of a made-up head, and its chunks as Python writes them. */
function head(queries: number, keys: number, causal: boolean, strip: number) {
  const codes = Array.from({ length: queries }, (_, i) =>
    Array.from({ length: keys }, (_, j) => (causal && j > i ? 0 : (i * 37 + j * 101 + i * j * 13) % 256)),
  );
  const dropped = codes.map((_, i) => (i * 7) % 256);
  const strips: Uint8Array[] = [];
  for (let first = 0; first < queries; first += strip) {
    const rows = codes.slice(first, first + strip);
    const bytes: number[] = [];
    rows.forEach((row, r) => {
      const length = causal ? first + r + 1 : keys;
      for (let j = 0; j < length; j++) {
        const above = r === 0 ? 0 : causal && j > first + r - 1 ? 0 : rows[r - 1][j];
        bytes.push((row[j] - above + 256) % 256);
      }
    });
    bytes.push(...dropped.slice(first, first + strip));
    strips.push(Uint8Array.from(bytes));
  }
  return { codes, dropped, strips };
}

for (const causal of [true, false]) {
  test(`strips of a ${causal ? "causal" : "full"} head come back as they were`, () => {
    const keys = causal ? 10 : 6;
    const { codes, dropped, strips } = head(10, keys, causal, 4);
    strips.forEach((raw, number) => {
      const first = number * 4;
      const rows = Math.min(4, 10 - first);
      const shape = { first, rows, keys, causal };
      assert.equal(stripBytes(shape), raw.length);
      const found = unfilter(raw, shape);
      for (let r = 0; r < rows; r++) assert.deepEqual([...found.subarray(r * keys, (r + 1) * keys)], codes[first + r]);
      assert.deepEqual([...found.subarray(rows * keys)], dropped.slice(first, first + rows));
    });
  });
}

test("a strip of another length is refused", () => {
  assert.throws(() => unfilter(new Uint8Array(5), { first: 0, rows: 2, keys: 3, causal: false }), /5 bytes, but 8/);
});

test("zlib bytes are inflated, and base64 is read", async () => {
  const text = new TextEncoder().encode("attention ".repeat(50));
  assert.deepEqual(await inflate(deflateSync(text)), new Uint8Array(text));
  const bytes = Uint8Array.from({ length: 256 }, (_, i) => i);
  assert.deepEqual(bytesOfBase64(Buffer.from(bytes).toString("base64")), bytes);
});

test("half-precision numbers", () => {
  const codes = Uint16Array.from([0x3c00, 0xc000, 0x3555, 0x0001, 0x0400, 0x7bff, 0x0000, 0x7c00]);
  const found = [...halves(new Uint8Array(codes.buffer))];
  assert.deepEqual(
    found.map((value) => Math.fround(value)),
    [1, -2, 0.333251953125, 2 ** -24, 2 ** -14, 65504, 0, Infinity],
  );
});

test("floats may start anywhere in their buffer", () => {
  const bytes = new Uint8Array(9);
  bytes.set(new Uint8Array(Float32Array.from([1.5, -2]).buffer), 1);
  assert.deepEqual([...floats(bytes.subarray(1))], [1.5, -2]);
});

function source(
  queries: number,
  strip: number,
): { source: Source; asked: string[]; codes: number[][]; dropped: number[] } {
  const { codes, dropped, strips } = head(queries, queries, true, strip);
  const asked: string[] = [];
  const list = {
    text: Array.from({ length: queries }, () => "x"),
    space: "",
    word: [],
    special: [],
    sinks: [],
    segment: [],
    segments: [],
    rtl: false,
  };
  const block = {
    name: "self",
    causal: true,
    queries: "text",
    keys: "text",
    layers: [0],
    heads: [1],
    weightings: { attention: "" },
    strip,
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
    state: {},
    pellucid: "",
    panels: [{ name: "", model: "", fingerprint: "", tokens: { text: list }, blocks: [block] }],
  };
  const chunk = async (name: string) => {
    asked.push(name);
    const number = Number(name.split("/").at(-1));
    if (!strips[number]) throw new Error(`no ${name}`);
    return new Uint8Array(deflateSync(strips[number]));
  };
  return { source: { header, live: false, chunk }, asked, codes, dropped };
}

test("a head loads the strips that are needed, each once", async () => {
  const { source: given, asked, codes, dropped } = source(10, 4);
  const heads = new LoadedHeads(given);
  const matrix = await heads.matrix(0, "self", "attention", 0, 0);
  assert.equal(matrix.has(5), false);
  assert.throws(() => matrix.row(5), /before it was loaded/);
  await Promise.all([matrix.ensure([5, 6]), matrix.ensure([7])]);
  assert.deepEqual(asked, ["a/0/self/attention/0/0/1"]);
  assert.deepEqual([...matrix.row(6)], codes[6]);
  assert.equal(matrix.dropped(6), dropped[6]);
  assert.equal(matrix.has(8), false);
  await matrix.ensure();
  assert.deepEqual(
    asked.toSorted(),
    [0, 1, 2].map((strip) => `a/0/self/attention/0/0/${strip}`),
  );
  assert.deepEqual([...matrix.row(9)], codes[9]);
  assert.equal(matrix.dropped(9), dropped[9]);
  assert.equal(heads.peek(0, "self", "attention", 0, 0), matrix);
  assert.equal(heads.peek(0, "self", "attention", 0, 1), undefined);
});

test("a chunk that failed is asked for again", async () => {
  const { source: given, asked } = source(4, 4);
  const heads = new LoadedHeads(given);
  await assert.rejects(heads.bytes("t/9"), /no t\/9/);
  await assert.rejects(heads.bytes("t/9"), /no t\/9/);
  assert.equal(asked.length, 2);
});

test("a block that is not there is named", async () => {
  const heads = new LoadedHeads(source(4, 4).source);
  await assert.rejects(heads.matrix(0, "cross", "attention", 0, 0), /no block "cross"; there are self/);
});
