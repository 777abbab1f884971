/** Where the columns of the neuron view stand: token, key strip, product strip, dot product, weight. */

export interface Bar {
  /** Left edge of the number, right edge of the number, left edge and width of the bar. */
  x: number;
  numberEnd: number;
  bar: number;
  width: number;
}

export interface NeuronLayout {
  width: number;
  tokenWidth: number;
  keysX: number;
  productsX: number;
  /** Neurons in one line of a strip; lines that a strip is folded into; width of a neuron; height of a line. */
  columns: number;
  lines: number;
  cell: number;
  lineHeight: number;
  rowHeight: number;
  dot: Bar;
  weight: Bar;
}

const LEAST_CELL = 2;
const MOST_CELL = 10;

/** A strip is folded into several lines where one line would need neurons thinner than 2 pixels. */
export function neuronLayout(available: number, neurons: number): NeuronLayout {
  const width = Math.max(320, Math.floor(available));
  const wide = width >= 900;
  const gap = wide ? 16 : 9;
  const number = wide ? 54 : 44;
  let token = wide ? 130 : width >= 640 ? 100 : 76;
  let bar = wide ? 76 : width >= 640 ? 50 : 32;
  const half = Math.floor((width - token - 2 * (number + 6 + bar) - 4 * gap) / 2);
  let [lines, columns, cell] = [0, 0, 0];
  do {
    lines++;
    columns = Math.ceil(neurons / lines);
    cell = Math.min(MOST_CELL, Math.floor(half / columns));
  } while (cell < LEAST_CELL && columns > 1);
  cell = Math.max(cell, 1);
  const spare = Math.max(0, 2 * (half - columns * cell));
  token += Math.min(60, Math.floor(spare / 4));
  bar += Math.min(110, Math.floor((spare * 3) / 8));
  const lineHeight = lines === 1 ? 15 : lines === 2 ? 8 : 5;
  const keysX = token + gap;
  const productsX = keysX + columns * cell + gap;
  const place = (x: number): Bar => ({ x, numberEnd: x + number, bar: x + number + 6, width: bar });
  const dot = place(productsX + columns * cell + gap);
  const weight = place(dot.bar + bar + gap);
  return {
    width: weight.bar + bar, tokenWidth: token, keysX, productsX, columns, lines, cell, lineHeight,
    rowHeight: Math.max(21, lines * lineHeight + 6), dot, weight,
  };
}

/** Which place of the order lies under a point of a strip, −1 for none; `y` counts from the top of the strip. */
export function columnAt(layout: NeuronLayout, neurons: number, x: number, y: number): number {
  const column = Math.floor(x / layout.cell);
  if (column < 0 || column >= layout.columns) return -1;
  const line = Math.max(0, Math.min(layout.lines - 1, Math.floor(y / layout.lineHeight)));
  const place = line * layout.columns + column;
  return place < neurons ? place : -1;
}

/** Left edge and top of a place of the order inside a strip. */
export function columnCorner(layout: NeuronLayout, place: number): { x: number; y: number } {
  const line = Math.floor(place / layout.columns);
  return { x: (place - line * layout.columns) * layout.cell, y: line * layout.lineHeight };
}
