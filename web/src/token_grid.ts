/** A table of rows × tokens on one canvas: rows named at the left, tokens at the top, only what is in sight is drawn. */

import { theme, type Rgb } from "./colour";
import { el, markPainted } from "./dom";
import { gridLayout, gridWindow, type GridLayout } from "./grid_layout";
import { visible } from "./head_lines";
import type { Picture } from "./part";
import { CanvasPicture, fitted, sharpContext, textWidth } from "./picture";
import { inkOn } from "./value_colours";

export interface Cell {
  /** Null: no value. */
  colour: Rgb | null;
  text: string;
  framed: boolean;
}

export interface GridContent {
  label: string;
  rows: string[];
  tokens: string[];
  rtl: boolean;
  rowHeight: number;
  cell(row: number, token: number): Cell;
}

/** Where the pointer or the keyboard is; −1 for none. */
export interface GridPlace {
  row: number;
  token: number;
}

export interface GridEvents {
  dark(): boolean;
  /** The place under the pointer or the keyboard, with its box on the page; null where it left. */
  look(place: GridPlace | null, box: DOMRect | null): void;
  choose(token: number): void;
  scrolled(left: number): void;
}

const HEAD = 22;
const LABEL = { size: 12 };
/** Columns that are narrower have no room for text. */
const LEAST_NAMED = 24;

export class TokenGrid {
  readonly element = el("div", { class: "token-grid", tabindex: 0, role: "application" });
  private readonly canvas = el("canvas", { "aria-hidden": "true" });
  private readonly track = el("div", { class: "track" }, this.canvas);
  private readonly watcher = new ResizeObserver(() => this.draw());
  private content: GridContent | null = null;
  private layout: GridLayout | null = null;
  private whole = false;
  private place: GridPlace = { row: -1, token: -1 };
  private marked = -1;
  private frame = 0;
  private placed = false;

  constructor(private readonly events: GridEvents) {
    this.element.append(this.track);
    this.element.addEventListener("scroll", () => {
      this.draw();
      if (!this.whole) events.scrolled(this.element.scrollLeft);
      markPainted("scroll");
    });
    this.element.addEventListener("pointermove", (event) => this.look(this.under(event)));
    this.element.addEventListener("pointerleave", () => this.look({ row: -1, token: -1 }));
    this.element.addEventListener("click", (event) => {
      const { token } = this.under(event);
      if (token >= 0) events.choose(token);
    });
    this.element.addEventListener("keydown", (event) => this.press(event));
    this.element.addEventListener("blur", () => this.look({ row: -1, token: -1 }));
    this.watcher.observe(this.element);
  }

  /** `whole` squeezes all tokens into the width. */
  show(content: GridContent, whole = false): void {
    this.content = content;
    this.whole = whole;
    this.element.setAttribute("aria-label", `${content.label}: arrow keys move, the values are read out`);
    this.paint();
    if (!this.placed && content.rtl) this.element.scrollLeft = this.element.scrollWidth;
    this.placed = true;
  }

  /** Whether the tokens do not all fit side by side. */
  get scrolls(): boolean {
    return this.layout !== null && this.content !== null && this.layout.cell * this.content.tokens.length > this.layout.room;
  }

  /** Marks a token's column (−1: none). */
  mark(token: number): void {
    if (this.marked === token) return;
    this.marked = token;
    this.draw();
  }

  scrollTo(left: number): void {
    if (!this.whole && Math.abs(this.element.scrollLeft - left) > 0.5) this.element.scrollLeft = left;
  }

  /** Brings a token's column into sight. */
  seek(token: number): void {
    const { content, layout, element } = this;
    if (!content || !layout || this.whole) return;
    const x = this.columnX(token);
    if (x < element.scrollLeft || x + layout.cell > element.scrollLeft + layout.room) {
      element.scrollLeft = x - (layout.room - layout.cell) / 2;
    }
  }

  picture(p: Picture): { width: number; height: number } {
    const { content, layout } = this;
    if (!content || !layout) return { width: 0, height: 0 };
    this.drawOn(p, content, layout);
    return { width: layout.labels + layout.room, height: HEAD + content.rows.length * content.rowHeight };
  }

  destroy(): void {
    cancelAnimationFrame(this.frame);
    this.watcher.disconnect();
  }

  /** Left edge of a token's column, counted from the first one at the left. */
  private columnX(token: number): number {
    const { content, layout } = this;
    return (content!.rtl ? content!.tokens.length - 1 - token : token) * layout!.cell;
  }

  private draw(): void {
    if (!this.frame) this.frame = requestAnimationFrame(() => this.paint());
  }

  private paint(): void {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    const { content, element } = this;
    if (!content || !element.clientWidth) return;
    const widest = Math.max(...content.rows.map((row) => textWidth(row, LABEL)));
    this.layout = gridLayout(element.clientWidth, content.tokens.length, widest, this.whole);
    const height = HEAD + content.rows.length * content.rowHeight;
    const wanted = this.layout.labels + this.layout.cell * content.tokens.length;
    this.track.style.width = `${Math.max(element.clientWidth, wanted)}px`;
    this.track.style.height = `${height}px`;
    const context = sharpContext(this.canvas, element.clientWidth, height);
    if (context) this.drawOn(new CanvasPicture(context), content, this.layout);
  }

  private drawOn(p: Picture, content: GridContent, layout: GridLayout): void {
    const { cell, labels, room } = layout;
    const { rows, tokens, rowHeight, rtl } = content;
    const colours = theme(this.events.dark());
    const { first, last, x } = gridWindow(layout, tokens.length, this.whole ? 0 : this.element.scrollLeft);
    if (last < first) return;
    const seen = Array.from({ length: last - first + 1 }, (_, c) => (rtl ? tokens.length - 1 - first - c : first + c));
    const start = labels + x;
    const bottom = HEAD + rows.length * rowHeight;
    this.drawCells(p, content, seen, start, cell);
    this.drawMarks(p, content, layout, x - first * cell);
    if (cell >= LEAST_NAMED) {
      seen.forEach((token, c) => {
        const style = { ...LABEL, weight: token === this.marked ? 600 : 400 };
        const text = fitted(visible(tokens[token]), cell - 4, style);
        p.text(start + (c + 0.5) * cell, 15, text, { ...style, colour: colours.ink, anchor: "middle", rtl });
      });
    }
    // Columns that the names and the right edge cut are covered.
    p.rect(0, 0, labels, bottom, colours.paper, 1);
    p.rect(labels + room, 0, cell, bottom, colours.paper, 1);
    rows.forEach((name, row) => {
      const style = { ...LABEL, weight: row === this.place.row ? 600 : 400 };
      const text = fitted(name, labels - 12, style);
      p.text(labels - 8, HEAD + (row + 0.5) * rowHeight + 4, text, { ...style, colour: colours.soft, anchor: "end" });
    });
  }

  /** Colours in one image, thin gaps over it, then the cells' texts and frames. */
  private drawCells(p: Picture, content: GridContent, seen: number[], start: number, cell: number): void {
    const { rows, rowHeight } = content;
    const colours = theme(this.events.dark());
    const [width, bottom] = [seen.length * cell, HEAD + rows.length * rowHeight];
    const cells = rows.map((_, row) => seen.map((token) => content.cell(row, token)));
    const pixels = new Uint8ClampedArray(seen.length * rows.length * 4);
    cells.flat().forEach(({ colour }, place) => colour && pixels.set([...colour, 255], place * 4));
    p.image(start, HEAD, width, rows.length * rowHeight, pixels, seen.length, rows.length);
    for (let c = 1; c < seen.length && cell >= 8; c++) {
      p.line(start + c * cell, HEAD, start + c * cell, bottom, colours.paper, 1, 1);
    }
    for (let row = 1; row < rows.length; row++) {
      p.line(start, HEAD + row * rowHeight, start + width, HEAD + row * rowHeight, colours.paper, 1, 1);
    }
    cells.forEach((across, row) => across.forEach(({ colour, text, framed }, c) => {
      const [left, top] = [start + c * cell, HEAD + row * rowHeight];
      if (text && cell >= LEAST_NAMED) {
        const style = { size: 11.5, colour: colour ? inkOn(colour) : colours.ink };
        p.text(left + cell / 2, top + rowHeight / 2 + 4, fitted(text, cell - 6, style), { ...style, anchor: "middle" });
      }
      if (framed) frame(p, left + 1.5, top + 1.5, cell - 3, rowHeight - 3, colours.accent, 2);
    }));
  }

  private drawMarks(p: Picture, content: GridContent, layout: GridLayout, start: number): void {
    const colours = theme(this.events.dark());
    const { rows, rowHeight } = content;
    const { cell, labels } = layout;
    if (this.marked >= 0) {
      const left = labels + start + this.columnX(this.marked);
      const alone = Math.max(cell, 3);
      frame(p, left, HEAD, alone, rows.length * rowHeight, colours.ink, 1);
    }
    const { row, token } = this.place;
    if (row >= 0 && token >= 0) {
      frame(p, labels + start + this.columnX(token), HEAD + row * rowHeight, Math.max(cell, 3), rowHeight, colours.ink, 2);
    }
  }

  private under(event: MouseEvent): GridPlace {
    const { content, layout } = this;
    const none = { row: -1, token: -1 };
    if (!content || !layout) return none;
    const box = this.element.getBoundingClientRect();
    const across = event.clientX - box.left - layout.labels;
    if (across < 0 || across >= layout.room) return none;
    const column = Math.floor((across + (this.whole ? 0 : this.element.scrollLeft)) / layout.cell);
    if (column < 0 || column >= content.tokens.length) return none;
    const row = Math.floor((event.clientY - box.top - HEAD) / content.rowHeight);
    const token = content.rtl ? content.tokens.length - 1 - column : column;
    return { row: row >= 0 && row < content.rows.length ? row : -1, token };
  }

  private look(place: GridPlace): void {
    const { content, layout } = this;
    if (!content || !layout || (place.row === this.place.row && place.token === this.place.token)) return;
    this.place = place;
    this.draw();
    if (place.token < 0) this.events.look(null, null);
    else {
      const box = this.element.getBoundingClientRect();
      const left = box.left + layout.labels + this.columnX(place.token) - (this.whole ? 0 : this.element.scrollLeft);
      const top = box.top + HEAD + Math.max(0, place.row) * content.rowHeight;
      this.events.look(place, new DOMRect(left, top, layout.cell, content.rowHeight));
    }
    markPainted("hover");
  }

  private press(event: KeyboardEvent): void {
    const { content } = this;
    if (!content || event.ctrlKey || event.metaKey || event.altKey) return;
    const [row, token] = [Math.max(0, this.place.row), this.place.token < 0 ? Math.max(0, this.marked) : this.place.token];
    const onward = content.rtl ? -1 : 1;
    const steps: Record<string, [number, number]> = {
      ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -onward], ArrowRight: [0, onward],
      Home: [0, -content.tokens.length], End: [0, content.tokens.length],
    };
    if (event.key === "Enter" || event.key === " ") this.events.choose(token);
    else if (event.key in steps) {
      const [down, across] = this.place.token < 0 ? [0, 0] : steps[event.key];
      const next = {
        row: Math.max(0, Math.min(content.rows.length - 1, row + down)),
        token: Math.max(0, Math.min(content.tokens.length - 1, token + across)),
      };
      this.seek(next.token);
      this.look(next);
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }
}

/** The outline of a box, inside its edges. */
function frame(p: Picture, x: number, y: number, w: number, h: number, colour: string, width: number): void {
  const half = width / 2;
  p.line(x, y + half, x + w, y + half, colour, 1, width);
  p.line(x, y + h - half, x + w, y + h - half, colour, 1, width);
  p.line(x + half, y, x + half, y + h, colour, 1, width);
  p.line(x + w - half, y, x + w - half, y + h, colour, 1, width);
}

