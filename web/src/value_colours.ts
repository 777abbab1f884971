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

/** A number in a few characters, with a real minus sign: 3 significant digits, no exponent between 0.001 and 99,999. */
export function short(value: number): string {
  if (Number.isNaN(value)) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  let text: string;
  if (!Number.isFinite(value)) text = "∞";
  else if (size >= 99999.5 || size < 0.0005) text = size.toExponential(1);
  else text = size.toFixed(size >= 99.95 ? 0 : size >= 9.995 ? 1 : size >= 0.9995 ? 2 : 3);
  return (value < 0 ? "−" : "") + text;
}
