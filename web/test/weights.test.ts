import assert from "node:assert/strict";
import { test } from "node:test";
import { WEIGHT, type TokenList } from "../src/contract";
import type { HeadMatrix } from "../src/part";
import { largest, massCut, movePins, pick, shown, sumRows, unitColumn, unitRow, units, unkept } from "../src/weights";

function tokens(change: Partial<TokenList> = {}): TokenList {
  return {
    text: ["[CLS]", "un", "like", "ly", "end", "[SEP]"],
    space: "110011",
    word: [-1, 0, 0, 0, 1, -1],
    special: [0, 5],
    sinks: [0],
    segment: [0, 0, 0, 0, 1, 1],
    segments: ["A", "B"],
    rtl: false,
    ...change,
  };
}

function matrix(rows: number[][], dropped: number[] = rows.map(() => 0)): HeadMatrix {
  return {
    queries: rows.length,
    keys: rows[0].length,
    ensure: async () => undefined,
    has: (i) => i < rows.length,
    row: (i) => Uint8Array.from(rows[i]),
    code: (i, j) => rows[i]?.[j],
    dropped: (i) => dropped[i],
  };
}

const near = (found: ArrayLike<number>, wanted: number[]) => {
  assert.equal(found.length, wanted.length);
  wanted.forEach((value, i) =>
    assert.ok(Math.abs(found[i] - value) < 1e-6, `place ${i}: ${found[i]}, expected ${value}`),
  );
};

test("words gather neighbouring tokens, and a special token stays alone", () => {
  const words = units(tokens(), "words");
  assert.deepEqual(
    words.map((unit) => [unit.start, unit.end, unit.text]),
    [
      [0, 1, "[CLS]"],
      [1, 4, "unlikely"],
      [4, 5, "end"],
      [5, 6, "[SEP]"],
    ],
  );
  assert.deepEqual(
    words.map((unit) => unit.special),
    [true, false, false, true],
  );
  assert.equal(units(tokens(), "tokens").length, 6);
});

test("special tokens side by side are not one word", () => {
  const words = units(tokens({ word: [-1, -1, 0, 0, 1, -1], special: [0, 1, 5] }), "words");
  assert.deepEqual(
    words.map((unit) => unit.end - unit.start),
    [1, 1, 2, 1, 1],
  );
});

test("a special token does not join a word, whatever number it has", () => {
  const words = units(tokens({ word: [0, 0, 0, 0, 1, 1], special: [0, 5] }), "words");
  assert.deepEqual(
    words.map((unit) => unit.text),
    ["[CLS]", "unlikely", "end", "[SEP]"],
  );
});

test("the same number of a word in two sentences makes two words", () => {
  const words = units(tokens({ word: [0, -1, 0, 0, 1, -1], special: [1, 5] }), "words");
  assert.deepEqual(
    words.map((unit) => unit.start),
    [0, 1, 2, 4, 5],
  );
});

test("a word is a sink where one of its tokens is", () => {
  assert.deepEqual(
    units(tokens({ sinks: [2] }), "words").map((unit) => unit.sink),
    [false, true, false, false],
  );
});

test("hiding and segments take units out and keep their places", () => {
  const all = units(tokens(), "tokens");
  assert.deepEqual([...shown(all, null, false, false)], [0, 1, 2, 3, 4, 5]);
  assert.deepEqual([...shown(all, null, true, false)], [1, 2, 3, 4]);
  assert.deepEqual([...shown(all, null, false, true)], [1, 2, 3, 4, 5]);
  assert.deepEqual([...shown(all, 1, true, false)], [4]);
});

test("a row of words: sum over keys, mean over queries, mean over heads", () => {
  const codes = [0, 1, 2, 3, 4, 5].map((i) => [0, 1, 2, 3, 4, 5].map((j) => 10 * i + 7 * j));
  const other = codes.map((row) => row.map((code) => 255 - code));
  const words = units(tokens(), "words");
  const square = (code: number) => (code / 255) ** 2;
  const wanted = words.map((key) => {
    let sum = 0;
    for (const head of [codes, other])
      for (let i = 1; i < 4; i++) for (let j = key.start; j < key.end; j++) sum += square(head[i][j]);
    return sum / 6;
  });
  near(unitRow([matrix(codes), matrix(other)], words[1], words), wanted);
});

test("a column is the rows read downwards", () => {
  const codes = [0, 1, 2, 3, 4, 5].map((i) => [0, 1, 2, 3, 4, 5].map((j) => 20 * i + 11 * j));
  const words = units(tokens(), "words");
  const heads = [matrix(codes)];
  const down = unitColumn(heads, words, words[1]);
  near(
    down,
    words.map((query) => unitRow(heads, query, words)[1]),
  );
});

test("a column says where rows are missing", () => {
  const words = units(tokens(), "tokens");
  const column = unitColumn([matrix([[255, 0, 0, 0, 0, 0]])], words, words[0]);
  assert.equal(column[0], 1);
  assert.ok(Number.isNaN(column[1]));
});

test("mass that the file dropped is averaged over heads and queries", () => {
  const words = units(tokens(), "words");
  const rows = [0, 1, 2, 3, 4, 5].map(() => [0, 0, 0, 0, 0, 0]);
  const wanted = (WEIGHT[30] + WEIGHT[60] + WEIGHT[90]) / 6;
  near([unkept([matrix(rows, [0, 30, 60, 90, 0, 0]), matrix(rows)], words[1])], [wanted]);
});

test("hiding does not renormalise", () => {
  const { values, hidden } = pick(Float32Array.from([0.5, 0.25, 0.125]), Int32Array.from([1, 2]));
  near(values, [0.25, 0.125]);
  near([hidden], [0.5]);
});

test("the cut keeps the largest until their share is reached", () => {
  const row = Float32Array.from([0.125, 0.5, 0.0625, 0.25]);
  const { kept, dropped } = massCut(row, 0.8); // 0.75 of 0.9375 is reached by two
  near(kept, [0, 0.5, 0, 0.25]);
  near([dropped], [0.1875]);
});

test("the cut is relative to what is left of the row", () => {
  near(massCut(Float32Array.from([0.0625, 0.125, 0.0625]), 0.5).kept, [0, 0.125, 0]);
});

test("of equal weights the cut keeps those that come first", () => {
  near(massCut(Float32Array.from([0.25, 0.25, 0.25, 0.25]), 0.5).kept, [0.25, 0.25, 0, 0]);
  near(massCut(Float32Array.from([0.125, 0.5, 0.125, 0.125]), 0.8).kept, [0.125, 0.5, 0.125, 0]);
});

test("a cut at one keeps everything, and an empty row stays empty", () => {
  near(massCut(Float32Array.from([0.25, 0, 0.5]), 1).kept, [0.25, 0, 0.5]);
  const { kept, dropped } = massCut(Float32Array.from([0, 0]), 0.9);
  near(kept, [0, 0]);
  assert.equal(dropped, 0);
});

test("the cut agrees with sorting everything", () => {
  let seed = 7;
  const random = () => (seed = (seed * 16807) % 2147483647) / 2147483647;
  for (let round = 0; round < 60; round++) {
    const row = Float32Array.from({ length: 40 }, () => WEIGHT[Math.floor(random() * (round % 3 ? 256 : 4))]);
    const mass = 0.05 + 0.9 * random();
    const order = Array.from(row.keys()).sort((a, b) => row[b] - row[a] || a - b);
    const goal = row.reduce((sum, value) => sum + value, 0) * mass;
    const wanted = row.map(() => 0);
    let sum = 0;
    for (const place of order) {
      if (sum >= goal) break;
      sum += row[place];
      wanted[place] = row[place];
    }
    near(massCut(row, mass).kept, [...wanted]);
  }
});

test("rows add up, and the largest come first", () => {
  const sum = sumRows([Float32Array.from([1, 0, 2]), Float32Array.from([1, 0, 1])]);
  near(sum, [2, 0, 3]);
  assert.deepEqual(largest(sum, 5), [2, 0]);
  assert.deepEqual(largest(Float32Array.from([1, 3, 3, 2]), 2), [1, 2]);
});

test("pins move between tokens and words", () => {
  const all = units(tokens(), "tokens");
  const words = units(tokens(), "words");
  assert.deepEqual(movePins([2, 3, 4], all, words), [1, 2]);
  assert.deepEqual(movePins([1, 3], words, all), [1, 5]);
});
