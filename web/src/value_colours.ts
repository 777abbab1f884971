/** Colours of numbers: signed ones blue below zero and orange above, others from paper to orange. */

import { diverging, heat, type Rgb } from "./colour";

/** What the colours of a picture stand for: full blue at `low` (signed only) or paper there, full orange at `high`. */
export interface ValueScale {
  low: number;
  high: number;
  signed: boolean;
  /** Largest magnitude, where the colours are full before it. */
  beyond: number | null;
}

/** The colour of a value; null for numbers that are missing (NaN). */
export function valueColour(value: number, scale: ValueScale, dark: boolean): Rgb | null {
  if (Number.isNaN(value)) return null;
  return (scale.signed ? diverging : heat)(position(value, scale), dark);
}

/** 511 colours as RGBA bytes, position −1 at place 0, zero at 255, 1 at 510: for pictures of many cells. */
export function colourTable(signed: boolean, dark: boolean): Uint8ClampedArray {
  const table = new Uint8ClampedArray(511 * 4);
  for (let place = 0; place < 511; place++) {
    table.set([...(signed ? diverging : heat)((place - 255) / 255, dark), 255], place * 4);
  }
  return table;
}

/** Place of a value in `colourTable`; −1 for numbers that are missing (NaN). */
export function tablePlace(value: number, scale: ValueScale): number {
  if (Number.isNaN(value)) return -1;
  return 255 + Math.round(255 * position(value, scale));
}

/** Where a value stands between the colours, −1 … 1. */
export function position(value: number, scale: ValueScale): number {
  if (scale.signed) return scale.high > 0 ? Math.max(-1, Math.min(1, value / scale.high)) : 0;
  const range = scale.high - scale.low;
  return range > 0 ? Math.max(0, Math.min(1, (value - scale.low) / range)) : 0;
}

/** Black or white, whichever is easier to read on the colour (WCAG relative luminance). */
export function inkOn(colour: Rgb): string {
  const linear = colour.map((channel) => {
    const share = channel / 255;
    return share <= 0.03928 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  const luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  return luminance > 0.179 ? "#000000" : "#ffffff";
}

/** The magnitude that `share` of the values do not exceed, to one part in 2,048 of the largest; NaN and infinity do not count. */
export function magnitude(values: Float32Array, share: number): { limit: number; largest: number } {
  let largest = 0;
  let counted = 0;
  for (const value of values) {
    if (!Number.isFinite(value)) continue;
    counted++;
    largest = Math.max(largest, Math.abs(value));
  }
  if (largest === 0 || share >= 1) return { limit: largest, largest };
  const bins = new Uint32Array(2048);
  for (const value of values) {
    if (Number.isFinite(value)) bins[Math.min(2047, Math.floor((Math.abs(value) / largest) * 2048))]++;
  }
  let seen = 0;
  for (let bin = 0; bin < 2048; bin++) {
    seen += bins[bin];
    if (seen >= share * counted) return { limit: (largest * (bin + 1)) / 2048, largest };
  }
  return { limit: largest, largest };
}

/** Scale of a map. Where a few cells are so large that the others would all look alike, the colours end before them. */
export function mapScale(values: Float32Array, signed: boolean): ValueScale {
  const whole = valueScale(values, signed);
  const sizes = values.map((value) => Math.abs(value)).filter((size) => Number.isFinite(size)).sort();
  const most = sizes[sizes.length - 1] ?? 0;
  const at = (share: number): number => sizes[Math.ceil(share * sizes.length) - 1] ?? 0;
  const share = [1, 0.98, 0.95, 0.9].find((candidate) => at(0.5) >= FLAT * at(candidate)) ?? 0.9;
  const limit = at(share);
  if (!(limit > 0) || limit >= most) return whole;
  return { ...whole, low: Math.max(whole.low, -limit), high: Math.min(whole.high, limit), beyond: most };
}

/** A map is flat where half of its cells lie below this share of the full colour. */
const FLAT = 0.05;

/** Symmetric scale of signed values; a few outliers (1 − share) may lie beyond it, and then it says how far. */
export function signedScale(values: Float32Array, share: number): ValueScale {
  const { limit, largest } = magnitude(values, share);
  return { low: -limit, high: limit, signed: true, beyond: largest > limit ? largest : null };
}

/** Scale of a track or map: symmetric where signed, else from zero (or the smallest, where below) to the largest. */
export function valueScale(values: Float32Array, signed: boolean): ValueScale {
  if (signed) return signedScale(values, 1);
  let low = 0;
  let high = 0;
  for (const value of values) {
    if (!Number.isFinite(value)) continue;
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  return { low, high, signed: false, beyond: null };
}
