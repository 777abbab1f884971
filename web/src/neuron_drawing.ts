/** Draws the neuron view: the head with the query and the scales, then one row per key. */

import { css, diverging, theme } from "./colour";
import { columnCorner, type Bar, type NeuronLayout } from "./neuron_layout";
import type { NeuronScene } from "./neuron_scene";
import { number } from "./numbers";
import type { Picture } from "./part";
import { fitted, textWidth } from "./picture";
import { colourTable, tablePlace, type ValueScale } from "./value_colours";

/** How it looks at this moment. */
export interface NeuronLook {
  layout: NeuronLayout;
  scales: Record<"query" | "keys" | "product", ValueScale>;
  /** What the pointer is on: a key and a place in the order of neurons; −1 for none. */
  key: number;
  place: number;
  dark: boolean;
}

const LEGEND_HEIGHT = 22;
const TITLES_HEIGHT = 18;

export function headHeight(layout: NeuronLayout): number {
  return LEGEND_HEIGHT + TITLES_HEIGHT + queryHeight(layout) + 6;
}

/** Where the query's strip begins inside the head. */
export function queryTop(layout: NeuronLayout): number {
  return LEGEND_HEIGHT + TITLES_HEIGHT + Math.floor((queryHeight(layout) - layout.lines * layout.lineHeight) / 2);
}

function queryHeight(layout: NeuronLayout): number {
  return Math.max(20, layout.lines * layout.lineHeight);
}

/** Strips one above the other, one for each start in `values`, clear between them. */
function drawStrips(
  p: Picture, x: number, y: number, values: Float32Array, starts: number[], order: number[], scale: ValueScale,
  { layout, dark }: NeuronLook,
): void {
  const { columns, lines, lineHeight, rowHeight } = layout;
  const table = colourTable(true, dark);
  const height = Math.max(1, starts.length * rowHeight);
  const pixels = new Uint8ClampedArray(columns * height * 4);
  const inset = Math.floor((rowHeight - lines * lineHeight) / 2);
  const thick = lines === 1 ? lineHeight : lineHeight - 1;
  starts.forEach((start, row) => {
    order.forEach((neuron, place) => {
      const entry = tablePlace(values[start + neuron], scale) * 4;
      if (entry < 0) return;
      const line = Math.floor(place / columns);
      const top = row * rowHeight + inset + line * lineHeight;
      for (let up = 0; up < thick; up++) {
        const pixel = ((top + up) * columns + (place - line * columns)) * 4;
        for (let channel = 0; channel < 4; channel++) pixels[pixel + channel] = table[entry + channel];
      }
    });
  });
  p.image(x, y, columns * layout.cell, height, pixels, columns, height);
}

/** Where zero stands in the bars of the dot products, and how many pixels one unit takes. */
function dotAxis(scene: NeuronScene, bar: Bar): { zero: number; unit: number; low: number; high: number } {
  let low = 0;
  let high = 0;
  for (const key of scene.rows) {
    low = Math.min(low, scene.dots[key]);
    high = Math.max(high, scene.dots[key]);
  }
  const unit = high > low ? bar.width / (high - low) : 0;
  return { zero: bar.bar - low * unit, unit, low, high };
}

function largestWeight(scene: NeuronScene): number {
  return scene.rows.reduce((most, key) => Math.max(most, scene.weights[key]), 0);
}

/** What the colours stand for, at the right; what is shown, at the left. */
function drawLegend(p: Picture, scene: NeuronScene, { layout, scales, dark }: NeuronLook): void {
  const { ink, soft } = theme(dark);
  const wide = layout.width >= 640;
  const style = { size: wide ? 12 : 11, colour: soft };
  const full = `q ±${number(scales.query.high)}, k ±${number(scales.keys.high)}, q∘k ±${number(scales.product.high)}`;
  const text = wide ? `full colour at ${full}` : full;
  p.text(layout.width, 14, text, { ...style, anchor: "end" });
  const [ramp, steps] = [wide ? 96 : 48, 24];
  const start = layout.width - textWidth(text, style) - 26 - ramp;
  p.text(start - 5, 14, "−", { ...style, anchor: "end" });
  p.text(start + ramp + 5, 14, "+", style);
  for (let step = 0; step < steps; step++) {
    const colour = css(diverging(-1 + (2 * step) / (steps - 1), dark));
    p.rect(start + (step * ramp) / steps, 5, ramp / steps + 0.4, 10, colour, 1);
  }
  const title = `Layer ${scene.layer}, head ${scene.head}`;
  p.text(0, 14, fitted(title, start - 20, { size: 13, weight: 600 }), { size: 13, colour: ink, weight: 600 });
}

/** The legend, the titles of the columns, the query's strip and the ends of the bars. */
export function drawHead(p: Picture, scene: NeuronScene, look: NeuronLook): void {
  const { layout } = look;
  const { accent, soft, line } = theme(look.dark);
  drawLegend(p, scene, look);
  const wide = layout.width >= 640;
  const titles = LEGEND_HEIGHT + 13;
  const quiet = { size: 11.5, colour: soft };
  const stripWidth = layout.columns * layout.cell;
  p.text(0, titles, "query, then keys".slice(0, wide ? 99 : 5), quiet);
  p.text(layout.keysX, titles, fitted(stripWidth > 140 ? "q of the query, k of each key" : "q, then k", stripWidth, quiet), quiet);
  p.text(layout.productsX, titles, fitted("q∘k, neuron by neuron", stripWidth, quiet), quiet);
  p.text(layout.dot.x, titles, wide ? `q·k × ${number(scene.scale)}` : "q·k scaled", quiet);
  p.text(layout.weight.x, titles, wide ? "weight (softmax)" : "weight", quiet);

  const top = LEGEND_HEIGHT + TITLES_HEIGHT;
  const own = { ...look, layout: { ...layout, rowHeight: queryHeight(layout) } };
  const base = top + own.layout.rowHeight / 2 + 4;
  const bold = { size: 13, weight: 600 };
  p.text(scene.rtl ? layout.tokenWidth : 4, base, fitted(scene.queryToken, layout.tokenWidth - 4, bold), {
    ...bold, colour: accent, rtl: scene.rtl, anchor: scene.rtl ? "end" : "start",
  });
  drawStrips(p, layout.keysX, top, scene.queryVector, [0], scene.order, look.scales.query, own);
  const axis = dotAxis(scene, layout.dot);
  const ends = { size: 10.5, colour: soft };
  const room = layout.dot.width >= 60;
  if (axis.low < 0 && (room || axis.high === 0)) p.text(layout.dot.bar, base, number(axis.low), ends);
  if (axis.high > 0) p.text(layout.dot.bar + layout.dot.width, base, number(axis.high), { ...ends, anchor: "end" });
  const most = number(largestWeight(scene));
  p.text(layout.weight.bar + layout.weight.width, base, most, { ...ends, anchor: "end" });
  p.line(0, headHeight(layout) - 1.5, layout.width, headHeight(layout) - 1.5, line, 1, 1);
  if (look.place >= 0) {
    const neuron = scene.order[look.place];
    drawMark(p, layout.keysX, top, own, look.place, number(scene.queryVector[neuron]));
    p.text(layout.productsX, base, fitted(`neuron ${neuron}`, stripWidth, bold), { ...bold, colour: accent });
  }
}

/** A frame around one neuron of a strip, with its number beside it. */
function drawMark(p: Picture, x: number, y: number, { layout, dark }: NeuronLook, place: number, label: string): void {
  const { ink, paper } = theme(dark);
  const corner = columnCorner(layout, place);
  const left = x + corner.x;
  const top = y + Math.floor((layout.rowHeight - layout.lines * layout.lineHeight) / 2) + corner.y;
  for (const edge of [left - 0.5, left + layout.cell + 0.5]) {
    p.line(edge, top, edge, top + layout.lineHeight, ink, 1, 1);
  }
  const wide = textWidth(label, { size: 11 }) + 6;
  const fits = corner.x + layout.cell + 3 + wide <= layout.columns * layout.cell;
  const start = fits ? left + layout.cell + 2 : left - 2 - wide;
  const middle = y + layout.rowHeight / 2;
  p.rect(start, middle - 7.5, wide, 15, paper, 0.92);
  p.text(start + 3, middle + 4, label, { size: 11, colour: ink });
}

/** Rows first … last (of scene.rows), the first one's top edge at y. */
export function drawRows(p: Picture, scene: NeuronScene, look: NeuronLook, first: number, last: number, y: number): void {
  const { layout, dark } = look;
  const { rowHeight, dot, weight } = layout;
  const { ink, line, accent, fill } = theme(dark);
  const seen = scene.rows.slice(first, last + 1);
  seen.forEach((key, row) => {
    const alpha = (key === scene.chosen ? 0.16 : 0) + (key === look.key ? 0.08 : 0);
    if (alpha > 0) p.rect(0, y + row * rowHeight, layout.width, rowHeight, accent, alpha);
  });
  const starts = seen.map((key) => key * scene.neurons);
  drawStrips(p, layout.keysX, y, scene.keyVectors, starts, scene.order, look.scales.keys, look);
  drawStrips(p, layout.productsX, y, scene.product, starts, scene.order, look.scales.product, look);
  const axis = dotAxis(scene, dot);
  const most = largestWeight(scene);
  const [below, above] = [css(diverging(-0.66, dark)), css(diverging(0.66, dark))];
  for (const zero of [axis.zero, weight.bar]) p.line(zero, y, zero, y + seen.length * rowHeight, line, 1, 1);
  const style = { size: 12, colour: ink, anchor: "end" } as const;
  seen.forEach((key, row) => {
    const top = y + row * rowHeight;
    const middle = top + rowHeight / 2;
    const value = scene.dots[key];
    p.text(dot.numberEnd, middle + 4, number(value), style);
    const length = Math.abs(value) * axis.unit;
    p.rect(value < 0 ? axis.zero - length : axis.zero, middle - 4.5, length, 9, value < 0 ? below : above, 1);
    p.text(weight.numberEnd, middle + 4, number(scene.weights[key]), style);
    if (most > 0) p.rect(weight.bar, middle - 4.5, (weight.width * scene.weights[key]) / most, 9, fill, 1);
    if (look.place < 0) return;
    const place = key * scene.neurons + scene.order[look.place];
    drawMark(p, layout.keysX, top, look, look.place, number(scene.keyVectors[place]));
    drawMark(p, layout.productsX, top, look, look.place, number(scene.product[place]));
  });
}
