/** Where each head's thumbnail stands in the model view, and the thumbnails' pixels. */

import type { Block } from "./contract";
import { sequential } from "./colour";

export interface Cell {
  /** Place of the layer in the block's list, its number, and the head. */
  place: number;
  layer: number;
  head: number;
  row: number;
  column: number;
  x: number;
  y: number;
}

export interface Layout {
  cells: Cell[];
  rows: number;
  columns: number;
  /** Side of a thumbnail, and of the coloured band under it. */
  size: number;
  band: number;
  /** Ranked heads carry their names under them; in layer order the margins do. */
  ranked: boolean;
  left: number;
  top: number;
  width: number;
  height: number;
}

const LARGEST = 80;
const SMALLEST = 22;
const RANKED = 96;
/** A name such as "Layer 31, head 31" is wider than its head. */
const RANKED_GAP = 18;
const BAND = 6;
/** Lines of text under a ranked head. */
const NAMES = 34;

/** Layers down and heads across; or, ranked by values [layers, most heads], in lines from the largest value on. */
export function layOut(
  block: Block,
  width: number,
  options: { ranking: Float32Array | null; band: boolean; legend: boolean },
): Layout {
  const most = Math.max(...block.heads);
  const cells: Cell[] = block.layers.flatMap((layer, place) =>
    Array.from({ length: block.heads[place] }, (_, head) => ({
      place,
      layer,
      head,
      row: place,
      column: head,
      x: 0,
      y: 0,
    })),
  );
  const { ranking } = options;
  const top = (options.legend ? 44 : 0) + (ranking ? 4 : 24);
  const left = ranking ? 4 : 66;
  const room = Math.max(200, width - left - 4);
  const band = options.band ? BAND : 0;
  let size = RANKED;
  let columns = Math.max(1, Math.floor(room / (RANKED + RANKED_GAP)));
  let rows = 0;
  if (ranking) {
    const value = (cell: Cell) => ranking[cell.place * most + cell.head];
    const order = (v: number) => (Number.isNaN(v) ? -Infinity : v);
    cells.sort((a, b) => order(value(b)) - order(value(a)) || a.place - b.place || a.head - b.head);
    columns = Math.min(columns, cells.length);
    rows = Math.ceil(cells.length / columns);
    cells.forEach((cell, rank) => Object.assign(cell, { row: Math.floor(rank / columns), column: rank % columns }));
  } else {
    columns = most;
    rows = block.layers.length;
    // Few heads may be large; many stay readable, and the page scrolls rather than they shrink.
    const largest = LARGEST * (cells.length <= 6 ? 3 : cells.length <= 24 ? 2 : 1);
    size = Math.max(SMALLEST, Math.min(largest, Math.floor(room / most) - gap(room / most)));
    // Whole multiples of the stored thumbnail look even; they are taken where little room is lost by it.
    const whole = block.thumb * Math.floor(size / block.thumb);
    if (whole >= 0.8 * size) size = whole;
  }
  const across = size + (ranking ? RANKED_GAP : gap(size));
  const down = size + band + (ranking ? NAMES + 10 : gap(size));
  for (const cell of cells) {
    cell.x = left + cell.column * across;
    cell.y = top + cell.row * down;
  }
  return {
    cells,
    rows,
    columns,
    size,
    band,
    ranked: ranking !== null,
    left,
    top,
    width: left + columns * across,
    height: top + rows * down,
  };
}

function gap(size: number): number {
  return size < 40 ? 3 : 6;
}

/** The cell at a point; null between and outside the thumbnails. */
export function cellAt(layout: Layout, x: number, y: number): Cell | null {
  const tall = layout.size + layout.band + (layout.ranked ? NAMES : 0);
  return (
    layout.cells.find(
      (cell) => x >= cell.x - 2 && x < cell.x + layout.size + 2 && y >= cell.y - 2 && y < cell.y + tall + 2,
    ) ?? null
  );
}

/** RGBA of one thumbnail at another size: the largest code wins where several share a pixel, so that lines stay. */
export function thumbPixels(
  codes: Uint8Array,
  side: number,
  size: number,
  scale: Uint8ClampedArray,
): Uint8ClampedArray {
  const pixels = new Uint8ClampedArray(size * size * 4);
  const starts = Array.from({ length: size }, (_, i) => Math.floor((i * side) / size));
  const ends = starts.map((start, i) => Math.max(start + 1, Math.floor(((i + 1) * side) / size)));
  for (let y = 0; y < size; y++) {
    for (let x = 0; x < size; x++) {
      let most = 0;
      for (let j = starts[y]; j < ends[y]; j++) {
        for (let i = starts[x]; i < ends[x]; i++) most = Math.max(most, codes[j * side + i]);
      }
      pixels.set(scale.subarray(most * 4, most * 4 + 4), (y * size + x) * 4);
    }
  }
  return pixels;
}

/** RGBA of each of the 256 codes. */
export function codeColours(dark: boolean): Uint8ClampedArray {
  const colours = new Uint8ClampedArray(1024);
  for (let code = 0; code < 256; code++) colours.set([...sequential(code / 255, dark), 255], code * 4);
  return colours;
}
