import assert from "node:assert/strict";
import test from "node:test";
import { diverging, heat, type Rgb } from "../src/colour";
import { number } from "../src/numbers";
import {
  colourTable, inkOn, magnitude, mapScale, position, signedScale, tablePlace, valueColour, valueScale,
} from "../src/value_colours";

function luminance(colour: Rgb): number {
  const [r, g, b] = colour.map((c) => (c / 255 <= 0.03928 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

const values = (...numbers: number[]): Float32Array => Float32Array.from(numbers);

test("negative is blue, positive is orange, and what is missing has no colour", () => {
  const scale = valueScale(values(-3, 1, NaN), true);
  for (const dark of [false, true]) {
    for (let step = 1; step <= 10; step++) {
      const [below, above] = [-0.3 * step, 0.3 * step].map((value) => valueColour(value, scale, dark) as Rgb);
      assert.ok(below[2] > below[0] && above[0] > above[2], `${step} ${String(dark)}`);
    }
    assert.equal(valueColour(NaN, scale, dark), null);
    assert.deepEqual(valueColour(5, valueScale(values(0, 5), false), dark), heat(1, dark));
    assert.deepEqual(valueColour(0, valueScale(values(0, 5), false), dark), heat(0, dark));
  }
});

test("text on any colour has a contrast of at least 4.5", () => {
  for (const dark of [false, true]) {
    for (let t = -1; t <= 1; t += 0.01) for (const colour of [diverging(t, dark), heat(t, dark)]) {
      const ink: Rgb = inkOn(colour) === "#ffffff" ? [255, 255, 255] : [0, 0, 0];
      const [light, deep] = [luminance(colour), luminance(ink)].sort((a, b) => b - a);
      assert.ok((light + 0.05) / (deep + 0.05) >= 4.5, `${t} ${String(dark)} ${String(colour)}`);
    }
  }
});

test("the table holds the colours of −1 … 1, and missing numbers have no place in it", () => {
  const table = colourTable(true, false);
  const scale = signedScale(values(-2, 4), 1);
  for (const value of [-4, -2, 0, 1, 4, 99]) {
    const place = tablePlace(value, scale) * 4;
    const expected = diverging(Math.round(255 * Math.max(-1, Math.min(1, value / 4))) / 255, false);
    assert.deepEqual([...table.slice(place, place + 4)], [...expected, 255]);
  }
  assert.equal(tablePlace(NaN, scale), -1);
});

test("scales: signed ones are symmetric, unsigned ones start at zero or below", () => {
  assert.deepEqual(valueScale(values(-3, 1, NaN), true), { low: -3, high: 3, signed: true, beyond: null });
  assert.deepEqual(valueScale(values(2, 5, Infinity), false), { low: 0, high: 5, signed: false, beyond: null });
  assert.equal(valueScale(values(-2, 6), false).low, -2);
  assert.equal(position(2, valueScale(values(-2, 6), false)), 0.5);
  assert.equal(position(-1.5, valueScale(values(-3, 1), true)), -0.5);
  assert.equal(position(1, valueScale(values(0, 0), true)), 0, "a flat track has no colours and no NaN");
  assert.equal(position(0, valueScale(values(0, 0), false)), 0);
});

test("magnitude leaves outliers beyond the limit and says how large they are", () => {
  const numbers = Float32Array.from({ length: 1000 }, (_, i) => (i % 2 ? 1 : -1) * (i / 1000));
  numbers[10] = 500;
  const { limit, largest } = magnitude(numbers, 0.99);
  assert.equal(largest, 500);
  assert.ok(limit >= 0.989 && limit < 1.3, String(limit));
  assert.equal(signedScale(numbers, 0.99).beyond, 500);
  assert.equal(signedScale(numbers, 1).beyond, null);
  assert.deepEqual(magnitude(values(NaN), 0.99), { limit: 0, largest: 0 });
});

test("the colours of a map end before a few huge cells, and say so", () => {
  const even = values(...Array.from({ length: 100 }, (_, i) => i + 1));
  assert.deepEqual(mapScale(even, false), { low: 0, high: 100, signed: false, beyond: null });
  // One token of twenty is huge in most layers: more than two cells in a hundred.
  const huge = values(...Array.from({ length: 100 }, (_, i) => (i % 20 ? 50 + i : 20000 + i)));
  assert.deepEqual(mapScale(huge, false), { low: 0, high: 149, signed: false, beyond: 20080 });
  assert.equal(mapScale(values(...huge.map((value, i) => (i % 2 ? value : -value))), true).low, -149);
  assert.deepEqual(mapScale(values(NaN), false), { low: 0, high: 0, signed: false, beyond: null });
});

test("numbers are short and keep their sign", () => {
  const given = [0, 0.000012, 0.00012, 0.0342, 0.5, 1, 9.999, -12.345, 123.4, 22711.6, 1234567, NaN, -Infinity];
  const wanted = ["0", "1.2e-5", "0.0001", "0.034", "0.500", "1.00", "10.0", "−12.3", "123", "22,712", "1.2e+6", "–", "−∞"];
  assert.deepEqual(given.map(number), wanted);
});
