/** Arithmetic on attention rows, in a fixed order: mean over heads, words, segments and hiding, sums, mass cut. */

import { WEIGHT, type State, type TokenList } from "./contract";
import type { HeadMatrix } from "./part";

/** A token, or a word made of neighbouring tokens. */
export interface Unit {
  /** Tokens from `start` up to, not including, `end`. */
  start: number;
  end: number;
  text: string;
  special: boolean;
  sink: boolean;
  segment: number;
}

/** What is shown of a list of units: places of units, in order. */
export type Shown = Int32Array;

/** Tokens as they are, or gathered into words; a special token is always a unit of its own. */
export function units(tokens: TokenList, unit: State["unit"]): Unit[] {
  const special = new Set(tokens.special);
  const sinks = new Set(tokens.sinks);
  const found: Unit[] = [];
  for (let i = 0; i < tokens.text.length; i++) {
    const last = found[found.length - 1];
    const continues =
      unit === "words" &&
      last &&
      !special.has(i) &&
      !last.special &&
      tokens.word[i] >= 0 &&
      tokens.word[i] === tokens.word[i - 1];
    if (continues) {
      last.end = i + 1;
      last.text += tokens.text[i];
      last.sink ||= sinks.has(i);
    } else {
      found.push({
        start: i,
        end: i + 1,
        text: tokens.text[i],
        special: special.has(i),
        sink: sinks.has(i),
        segment: tokens.segment[i] ?? 0,
      });
    }
  }
  return found;
}

/** Places of the units that stay: of the chosen segment, without those that are hidden. */
export function shown(all: Unit[], segment: number | null, hideSpecial: boolean, hideSinks: boolean): Shown {
  const places: number[] = [];
  all.forEach((unit, place) => {
    if (segment !== null && unit.segment !== segment) return;
    if ((hideSpecial && unit.special) || (hideSinks && unit.sink)) return;
    places.push(place);
  });
  return Int32Array.from(places);
}

/** Weights of one query unit over all key units: mean over matrices and over the unit's queries, sum over keys. */
export function unitRow(matrices: HeadMatrix[], query: Unit, keys: Unit[]): Float32Array {
  const row = new Float32Array(keys.length);
  const share = 1 / (matrices.length * (query.end - query.start));
  for (const matrix of matrices) {
    for (let i = query.start; i < query.end; i++) {
      const codes = matrix.row(i);
      for (let u = 0; u < keys.length; u++) {
        const { start, end } = keys[u];
        let sum = WEIGHT[codes[start]];
        for (let j = start + 1; j < end; j++) sum += WEIGHT[codes[j]];
        row[u] += sum;
      }
    }
  }
  if (share !== 1) for (let u = 0; u < row.length; u++) row[u] *= share;
  return row;
}

/** Mean mass that the file does not keep of one query unit. */
export function unkept(matrices: HeadMatrix[], query: Unit): number {
  let sum = 0;
  for (const matrix of matrices) for (let i = query.start; i < query.end; i++) sum += WEIGHT[matrix.dropped(i)];
  return sum / (matrices.length * (query.end - query.start));
}

/** The shown part of a row, and the mass of what is hidden; nothing is renormalised. */
export function pick(row: Float32Array, places: Shown): { values: Float32Array; hidden: number } {
  const values = new Float32Array(places.length);
  let kept = 0;
  for (let s = 0; s < places.length; s++) {
    values[s] = row[places[s]];
    kept += values[s];
  }
  return { values, hidden: Math.max(0, total(row) - kept) };
}

export function total(row: Float32Array): number {
  let sum = 0;
  for (let j = 0; j < row.length; j++) sum += row[j];
  return sum;
}

/** Rows added up, place by place. */
export function sumRows(rows: Float32Array[]): Float32Array {
  const sum = new Float32Array(rows[0]?.length ?? 0);
  for (const row of rows) for (let j = 0; j < sum.length; j++) sum[j] += row[j];
  return sum;
}

/** The largest weights that together reach `mass` of the row's total (ties: lower place first); the rest is zero. */
export function massCut(row: Float32Array, mass: number): { kept: Float32Array; dropped: number } {
  if (mass >= 1) return { kept: row, dropped: 0 };
  const whole = total(row);
  const kept = new Float32Array(row.length);
  if (!(whole > 0)) return { kept, dropped: whole };
  const { threshold, ties, reached } = cutAt(row, whole * mass);
  let left = ties;
  for (let j = 0; j < row.length; j++) {
    if (row[j] > threshold) kept[j] = row[j];
    else if (row[j] === threshold && left > 0) {
      kept[j] = row[j];
      left--;
    }
  }
  return { kept, dropped: Math.max(0, whole - reached) };
}

const BUCKETS = 512;
const bucketSum = new Float64Array(BUCKETS);
let bucketOf = new Uint16Array(0);

/** The smallest weight that is kept, how often it is kept, and the sum that is reached. Only the weights near the
 * threshold are sorted: rows are cut by the hundred when a layer is opened. */
function cutAt(row: Float32Array, goal: number): { threshold: number; ties: number; reached: number } {
  if (bucketOf.length < row.length) bucketOf = new Uint16Array(row.length);
  let most = 0;
  for (let j = 0; j < row.length; j++) if (row[j] > most) most = row[j];
  bucketSum.fill(0);
  for (let j = 0; j < row.length; j++) {
    const bucket = ((BUCKETS - 1) * Math.sqrt(row[j] / most)) | 0;
    bucketOf[j] = bucket;
    bucketSum[bucket] += row[j];
  }
  let reached = 0;
  let bucket = BUCKETS - 1;
  while (bucket > 0 && reached + bucketSum[bucket] < goal) reached += bucketSum[bucket--];
  const near = sortedNear(row, bucket);
  let next = near.length;
  while (next > 0 && reached < goal) reached += near[--next];
  if (next === near.length) return { threshold: most, ties: row.length, reached };
  let ties = 0;
  for (let s = next; s < near.length && near[s] === near[next]; s++) ties++;
  return { threshold: near[next], ties, reached };
}

/** Weights of one bucket, smallest first; many rows have equal ones only. */
function sortedNear(row: Float32Array, bucket: number): Float32Array {
  const found = new Float32Array(row.length);
  let count = 0;
  let alike = true;
  for (let j = 0; j < row.length; j++) {
    if (bucketOf[j] !== bucket || !(row[j] > 0)) continue;
    found[count] = row[j];
    alike &&= found[count] === found[0];
    count++;
  }
  const near = found.subarray(0, count);
  return alike ? near : near.sort();
}

/** Places of the largest values, largest first (ties: lower place first), without zeros. */
export function largest(row: Float32Array, count: number): number[] {
  const best: number[] = [];
  for (let j = 0; j < row.length; j++) {
    if (!(row[j] > 0)) continue;
    if (best.length === count && row[best[count - 1]] >= row[j]) continue;
    let at = best.length;
    while (at > 0 && row[best[at - 1]] < row[j]) at--;
    best.splice(at, 0, j);
    if (best.length > count) best.pop();
  }
  return best;
}

/** Pins moved from tokens to the words that hold them, or from words to their first tokens. */
export function movePins(pins: number[], from: Unit[], to: Unit[]): number[] {
  const moved = new Set<number>();
  for (const pin of pins) {
    const token = from[pin]?.start;
    const place = to.findIndex((unit) => token !== undefined && unit.start <= token && token < unit.end);
    if (place >= 0) moved.add(place);
  }
  return [...moved];
}

/** Weights of every query unit to one key unit; NaN where the rows are not loaded yet. */
export function unitColumn(matrices: HeadMatrix[], queries: Unit[], key: Unit): Float32Array {
  const column = new Float32Array(queries.length);
  for (let place = 0; place < queries.length; place++) {
    const { start, end } = queries[place];
    let sum = 0;
    for (const matrix of matrices)
      for (let i = start; i < end; i++)
        // Codes that are not loaded are undefined, and so is their weight: the sum becomes NaN.
        for (let j = key.start; j < key.end; j++) sum += WEIGHT[matrix.code(i, j) as number];
    column[place] = sum / (matrices.length * (end - start));
  }
  return column;
}
