/** Draws thousands of curves at once. A canvas without a graphics card takes some 50 µs for each of them, which would
 * make scrolling stutter; here all curves run between the same two columns, so one table of heights serves them all. */

import type { Rgb } from "./colour";
import type { Picture, TextStyle } from "./part";
import { CanvasPicture, HANDLE } from "./picture";

/** Fewer curves than this are left to the canvas. */
const FEW = 150;
/** With every so many curves, columns become one pixel wider. */
const DENSE = 700;

export interface Curve {
  y1: number;
  y2: number;
  /** Curves of one colour share one array. */
  rgb: Rgb;
  alpha: number;
  width: number;
}

/** Share of the way down that a curve has gone at each of `columns` places across, the same Bézier as Picture.curve. */
export function descent(columns: number): Float32Array {
  const table = new Float32Array(columns);
  let t = 0;
  for (let column = 0; column < columns; column++) {
    const x = (column + 0.5) / columns;
    // Newton steps; x grows steadily with t, and the last column's answer is a good start.
    for (let step = 0; step < 8; step++) {
      const s = 1 - t;
      const at = 3 * s * s * t * HANDLE + 3 * s * t * t * (1 - HANDLE) + t * t * t;
      const slope = 3 * s * s * HANDLE + 6 * s * t * (1 - 2 * HANDLE) + 3 * t * t * HANDLE;
      t = Math.min(1, Math.max(0, t - (at - x) / slope));
    }
    table[column] = t * t * (3 - 2 * t);
  }
  return table;
}

/** RGBA pixels [height, width] of curves from the left edge to the right edge, over a ground of one colour; a pixel may
 * be `wide` times as wide as it is high. Column by column, for what one column needs stays in the fastest memory. */
export function rasterise(curves: Curve[], width: number, height: number, ground: Rgb, wide = 1): Uint8ClampedArray {
  const table = descent(width);
  const groups = grouped(curves);
  const bytes = new Uint8ClampedArray(width * height * 4);
  const words = new Uint32Array(bytes.buffer);
  const colours = new Float32Array(height * 3);
  const through = new Float32Array(height).fill(1);
  const touched = new Uint8Array(Math.ceil(height / PART));
  for (let x = 0; x < width; x++) {
    const slope = (x + 1 < width ? table[x + 1] - table[x] : table[x] - table[x - 1]) / wide;
    for (let i = 0; i < colours.length; i += 3) {
      colours[i] = ground[0];
      colours[i + 1] = ground[1];
      colours[i + 2] = ground[2];
    }
    for (const { rgb, numbers } of groups) {
      dim(through, touched, numbers, table[x], slope, height);
      for (let part = 0; part < touched.length; part++) {
        if (touched[part] === 0) continue;
        touched[part] = 0;
        const end = Math.min(height, (part + 1) * PART);
        for (let y = part * PART; y < end; y++) {
          if (through[y] === 1) continue;
          const share = 1 - through[y];
          through[y] = 1;
          const i = y * 3;
          colours[i] += (rgb[0] - colours[i]) * share;
          colours[i + 1] += (rgb[1] - colours[i + 1]) * share;
          colours[i + 2] += (rgb[2] - colours[i + 2]) * share;
        }
      }
    }
    for (let y = 0, i = 0, place = x; y < height; y++, i += 3, place += width)
      words[place] = LITTLE
        ? (0xff000000 | ((colours[i + 2] + 0.5) << 16) | ((colours[i + 1] + 0.5) << 8) | (colours[i] + 0.5)) >>> 0
        : (((colours[i] + 0.5) << 24) | ((colours[i + 1] + 0.5) << 16) | ((colours[i + 2] + 0.5) << 8) | 255) >>> 0;
  }
  return bytes;
}

/** Pixels of a column that are looked through together: most parts are touched by no curve of a colour. */
const PART = 16;

/** Whether the first byte of a word is its lowest. */
const LITTLE = new Uint8Array(Uint32Array.of(1).buffer)[0] === 1;

/** Curves of one colour that follow each other are laid over each other first: that needs one channel, not three. Of
 * each curve: its first height, how far it falls, half its width, its alpha. */
function grouped(curves: Curve[]): { rgb: Rgb; numbers: Float32Array }[] {
  const groups: { rgb: Rgb; numbers: Float32Array }[] = [];
  for (let start = 0; start < curves.length;) {
    const { rgb } = curves[start];
    let end = start;
    while (end < curves.length && curves[end].rgb === rgb) end++;
    const numbers = new Float32Array((end - start) * 4);
    for (let i = 0; start < end; start++, i += 4) {
      const { y1, y2, width, alpha } = curves[start];
      numbers[i] = y1;
      numbers[i + 1] = y2 - y1;
      numbers[i + 2] = width / 2;
      numbers[i + 3] = alpha;
    }
    groups.push({ rgb, numbers });
  }
  return groups;
}

/** Takes the curves' shares off what shines through each pixel of a column, a share `down` of the way down, and notes
 * the parts that were touched. */
function dim(
  through: Float32Array,
  touched: Uint8Array,
  numbers: Float32Array,
  down: number,
  slope: number,
  height: number,
): void {
  for (let i = 0; i < numbers.length; i += 4) {
    const fall = numbers[i + 1];
    const alpha = numbers[i + 3];
    const steep = fall * slope;
    const half = numbers[i + 2] * Math.sqrt(1 + steep * steep);
    const centre = numbers[i] + fall * down;
    const top = centre - half < 0 ? 0 : centre - half;
    const bottom = centre + half > height ? height : centre + half;
    if (bottom <= top) continue;
    const first = top | 0;
    const last = Math.ceil(bottom) - 1;
    for (let part = (first / PART) | 0; part * PART <= last; part++) touched[part] = 1;
    if (last === first) {
      through[first] *= 1 - alpha * (bottom - top);
      continue;
    }
    through[first] *= 1 - alpha * (first + 1 - top);
    const whole = 1 - alpha;
    for (let y = first + 1; y < last; y++) through[y] *= whole;
    through[last] *= 1 - alpha * (bottom - last);
  }
}

/** Draws a few curves for nobody, so that the browser has made fast code of it when the first head is opened. */
export function rehearse(): void {
  const curves = Array.from({ length: 200 }, (_, i) => ({ y1: i, y2: 200 - i, rgb: BLACK, alpha: 0.1, width: 1 }));
  for (let turn = 0; turn < 3; turn++) rasterise(curves, 120, 200, BLACK);
}

const BLACK: Rgb = [0, 0, 0];

/** A canvas that gathers curves between two columns and draws them together before anything else is drawn over them. */
export class CurvePicture implements Picture {
  private readonly plain: CanvasPicture;
  private waiting: { y1: number; y2: number; colour: string; alpha: number; width: number }[] = [];

  constructor(
    private readonly context: CanvasRenderingContext2D,
    private readonly from: number,
    private readonly to: number,
    private readonly height: number,
    private readonly ground: string,
  ) {
    this.plain = new CanvasPicture(context);
  }

  curve(_x1: number, y1: number, _x2: number, y2: number, colour: string, alpha: number, width: number): void {
    this.waiting.push({ y1, y2, colour, alpha, width });
  }

  line(x1: number, y1: number, x2: number, y2: number, colour: string, alpha: number, width: number): void {
    this.flush();
    this.plain.line(x1, y1, x2, y2, colour, alpha, width);
  }

  rect(x: number, y: number, w: number, h: number, colour: string, alpha: number): void {
    this.flush();
    this.plain.rect(x, y, w, h, colour, alpha);
  }

  text(x: number, y: number, string: string, style: TextStyle): void {
    this.flush();
    this.plain.text(x, y, string, style);
  }

  image(x: number, y: number, w: number, h: number, pixels: Uint8ClampedArray, pw: number, ph: number): void {
    this.flush();
    this.plain.image(x, y, w, h, pixels, pw, ph);
  }

  /** Draws what was gathered; to be called at the end. */
  flush(): void {
    const curves = this.waiting;
    this.waiting = [];
    if (curves.length < FEW) {
      for (const { y1, y2, colour, alpha, width } of curves)
        this.plain.curve(this.from, y1, this.to, y2, colour, alpha, width);
      return;
    }
    // In a thicket of lines nobody sees that it was drawn with fewer pixels and stretched.
    const ratio = curves.length > DENSE ? 1 : this.context.getTransform().a;
    const coarse = Math.min(3, 1 + Math.floor(curves.length / DENSE));
    const across = Math.round(((this.to - this.from) * ratio) / coarse);
    const down = Math.round(this.height * ratio);
    const colours = new Map<string, Rgb>();
    const scaled = curves.map(({ y1, y2, colour, alpha, width }) => {
      const known = colours.get(colour) ?? rgb(colour);
      colours.set(colour, known);
      return { y1: y1 * ratio, y2: y2 * ratio, rgb: known, alpha, width: width * ratio };
    });
    const pixels = rasterise(scaled, across, down, rgb(this.ground), coarse);
    const stamp = new OffscreenCanvas(across, down);
    stamp.getContext("2d")?.putImageData(new ImageData(pixels as Uint8ClampedArray<ArrayBuffer>, across, down), 0, 0);
    this.context.globalAlpha = 1;
    this.context.imageSmoothingEnabled = curves.length > DENSE;
    this.context.drawImage(stamp, this.from, 0, this.to - this.from, down / ratio);
  }
}

function rgb(colour: string): Rgb {
  const value = parseInt(colour.slice(1), 16);
  return [value >> 16, (value >> 8) & 255, value & 255];
}
