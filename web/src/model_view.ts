/** All heads of all layers as thumbnails; a click opens one in the head view. */

import type { Block, State } from "./contract";
import { css, diverging, heat, theme, type Rgb } from "./colour";
import { sentenceCase } from "./controls";
import { el, fill, markPainted } from "./dom";
import { cellAt, codeColours, layOut, thumbPixels, type Cell, type Layout } from "./model_layout";
import type { Context, MakeView, Picture, ViewPart } from "./part";
import { number } from "./numbers";
import { CanvasPicture, sharpContext } from "./picture";

interface Data {
  block: Block;
  thumbs: Uint8Array;
  statistics: Float32Array | null;
}

export const makeModelView: MakeView = (context, panel) => new ModelView(context, panel);

let views = 0;

class ModelView implements ViewPart {
  private readonly canvas = el("canvas", { "aria-hidden": true });
  private readonly focusRing = el("div", { class: "ring focus" });
  private readonly hoverRing = el("div", { class: "ring", hidden: true });
  private readonly tip = el("div", { class: "tip", hidden: true });
  private readonly spoken = el("div", { role: "gridcell", id: `pellucid-head-${views++}` });
  private readonly grid: HTMLElement;
  private readonly absent = el("p", { class: "absent", hidden: true });
  readonly element: HTMLElement;
  private readonly observer: ResizeObserver;
  private data: Data | null = null;
  private layout: Layout | null = null;
  private span: Span | null = null;
  private focused = 0;
  private width = 0;
  private asked = 0;
  private painted = false;

  constructor(
    private readonly context: Context,
    private readonly panel: number,
  ) {
    this.grid = el(
      "div",
      {
        class: "grid",
        tabindex: 0,
        role: "grid",
        "aria-activedescendant": this.spoken.id,
        "aria-label": "Heads of the model. Arrow keys move, Enter opens a head.",
      },
      [this.canvas, this.hoverRing, this.focusRing, el("div", { class: "unseen", role: "row" }, this.spoken)],
    );
    this.element = el("div", { class: "model", style: "position: relative" }, [
      el("div", { class: "grid-scroll" }, this.grid),
      this.tip,
      this.absent,
    ]);
    this.grid.addEventListener("pointermove", (event) =>
      this.hover(cellAt(this.layout ?? NONE, event.offsetX, event.offsetY)),
    );
    this.grid.addEventListener("pointerleave", () => this.hover(null));
    this.grid.addEventListener("click", (event) =>
      this.open(cellAt(this.layout ?? NONE, event.offsetX, event.offsetY)),
    );
    this.grid.addEventListener("keydown", (event) => this.key(event));
    this.grid.addEventListener("focus", () => this.focus(this.focused));
    this.observer = new ResizeObserver(() => this.resized());
    this.observer.observe(this.element);
  }

  update(state: Readonly<State>, changed: Set<keyof State>): void {
    const needed: (keyof State)[] = ["mode", "block", "weighting", "sort", "colour", "theme"];
    if (!needed.some((key) => changed.has(key))) return;
    void this.load(state);
  }

  picture(p: Picture): { width: number; height: number } {
    if (!this.layout || !this.data) return { width: 0, height: 0 };
    this.draw(p, this.data, this.layout);
    return { width: this.layout.width, height: this.layout.height };
  }

  destroy(): void {
    this.observer.disconnect();
  }

  private async load(state: Readonly<State>): Promise<void> {
    const asked = ++this.asked;
    const { name, blocks } = this.context.source.header.panels[this.panel];
    const block = blocks.find((candidate) => candidate.name === state.block);
    const offered = block && state.weighting in block.weightings;
    this.absent.hidden = Boolean(offered);
    this.grid.hidden = !offered;
    if (!block || !offered) {
      this.absent.textContent = `${name} has no ${block ? `"${state.weighting}" weights` : `"${state.block}" attention`}.`;
      this.data = this.layout = null;
      return;
    }
    try {
      const thumbs = await this.context.heads.thumbs(this.panel, block.name, state.weighting);
      const wanted = Object.keys(block.statistics).length > 0;
      // The first paint waits for the statistics only where they lay out or colour the heads.
      const waiting = wanted ? this.context.heads.statistics(this.panel, block.name) : Promise.resolve(null);
      const needed = state.sort !== null || state.colour !== null;
      if (asked !== this.asked) return;
      const data: Data = { block, thumbs, statistics: needed ? await waiting : null };
      const span = state.colour === null ? null : await this.sharedSpan(block.name, state.colour);
      if (asked !== this.asked) return;
      this.data = data;
      this.span = span;
      this.render();
      data.statistics = await waiting;
    } catch (error) {
      this.absent.hidden = false;
      this.absent.textContent = error instanceof Error ? error.message : String(error);
    }
  }

  /** The range of a statistic over all panels, so that the same colour means the same value in each. */
  private async sharedSpan(name: string, statistic: string): Promise<Span> {
    const { panels } = this.context.source.header;
    const found: number[] = [];
    for (const [panel, { blocks }] of panels.entries()) {
      const block = blocks.find((candidate) => candidate.name === name);
      if (!block || !(statistic in block.statistics)) continue;
      const values = valuesOf(block, await this.context.heads.statistics(panel, name), statistic);
      const most = Math.max(...block.heads);
      block.heads.forEach((count, place) =>
        found.push(...(values?.subarray(place * most, place * most + count) ?? [])),
      );
    }
    return spanOf(found);
  }

  private resized(): void {
    if (!this.data || !this.element.clientWidth || this.element.clientWidth === this.width) return;
    this.render();
  }

  private render(): void {
    if (!this.data || !this.element.clientWidth) return;
    const { state } = this.context.store;
    this.width = this.element.clientWidth;
    const ranking = state.sort === null ? null : this.statistic(state.sort);
    const legend = state.colour !== null && this.statistic(state.colour) !== null;
    this.layout = layOut(this.data.block, this.width, { ranking, band: legend, legend });
    this.grid.setAttribute("aria-rowcount", String(this.layout.rows));
    this.grid.setAttribute("aria-colcount", String(this.layout.columns));
    const drawing = sharpContext(this.canvas, this.layout.width, this.layout.height);
    if (drawing) this.draw(new CanvasPicture(drawing), this.data, this.layout);
    this.hover(null);
    const current = this.layout.cells.findIndex((cell) => cell.layer === state.layer && cell.head === state.head);
    this.focused = Math.max(0, current);
    this.place(this.focusRing, this.layout.cells[this.focused]);
    if (!this.painted) {
      this.painted = true;
      markPainted("painted");
    }
  }

  /** Values [layers, most heads] of a statistic; null where it is not there. */
  private statistic(name: string): Float32Array | null {
    return this.data?.statistics ? valuesOf(this.data.block, this.data.statistics, name) : null;
  }

  private draw(p: Picture, data: Data, layout: Layout): void {
    const dark = this.context.dark();
    const colours = theme(dark);
    const { block, thumbs } = data;
    const side = block.thumb;
    const most = Math.max(...block.heads);
    const scale = codeColours(dark);
    const { state } = this.context.store;
    const band = state.colour === null ? null : this.statistic(state.colour);
    const { span } = this;
    const ranking = state.sort === null ? null : this.statistic(state.sort);
    if (band && span && state.colour) this.legend(p, state.colour, span);
    if (!layout.ranked) this.margins(p, layout);
    for (const cell of layout.cells) {
      const at = cell.place * most + cell.head;
      const codes = thumbs.subarray(at * side * side, (at + 1) * side * side);
      p.rect(cell.x - 1, cell.y - 1, layout.size + 2, layout.size + 2, colours.line, 1);
      p.image(
        cell.x,
        cell.y,
        layout.size,
        layout.size,
        thumbPixels(codes, side, layout.size, scale),
        layout.size,
        layout.size,
      );
      if (band && span) {
        const colour = Number.isNaN(band[at]) ? colours.line : css(tint(band[at], span, dark));
        p.rect(cell.x - 1, cell.y + layout.size + 1, layout.size + 2, layout.band, colour, 1);
      }
      if (ranking) {
        const y = cell.y + layout.size + layout.band + 15;
        p.text(cell.x, y, `Layer ${cell.layer}, head ${cell.head}`, { size: 11.5, colour: colours.ink });
        p.text(cell.x, y + 14, number(ranking[at]), { size: 11.5, colour: colours.soft });
      }
    }
  }

  private margins(p: Picture, layout: Layout): void {
    const colours = theme(this.context.dark());
    const style = { size: 12, colour: colours.soft };
    p.text(layout.left - 12, layout.top - 9, "Head", { ...style, anchor: "end" });
    for (const cell of layout.cells) {
      if (cell.row === 0)
        p.text(cell.x + layout.size / 2, layout.top - 9, String(cell.head), { ...style, anchor: "middle" });
      if (cell.column === 0)
        p.text(layout.left - 12, cell.y + layout.size / 2 + 4, `Layer ${cell.layer}`, { ...style, anchor: "end" });
    }
  }

  private legend(p: Picture, name: string, span: Span): void {
    const dark = this.context.dark();
    const colours = theme(dark);
    const pixels = new Uint8ClampedArray(120 * 4);
    for (let x = 0; x < 120; x++)
      pixels.set([...tint(span.low + ((span.high - span.low) * x) / 119, span, dark), 255], x * 4);
    p.text(4, 13, sentenceCase(name), { size: 12, weight: 600, colour: colours.ink });
    const low = number(span.low);
    p.text(4, 31, low, { size: 12, colour: colours.soft });
    const x = 10 + low.length * 7.5;
    p.image(x, 23, 120, 8, pixels, 120, 1);
    p.text(x + 127, 31, number(span.high), { size: 12, colour: colours.soft });
  }

  private hover(cell: Cell | null): void {
    this.hoverRing.hidden = this.tip.hidden = cell === null;
    if (!cell || !this.layout) return;
    this.place(this.hoverRing, cell);
    fill(this.tip, this.about(cell));
    // The tip stands beside the head, on the side where there is room.
    const scroll = this.grid.parentElement?.scrollLeft ?? 0;
    const right = cell.x - scroll + this.layout.size + 10;
    const left = cell.x - scroll - this.tip.offsetWidth - 10;
    const x = right + this.tip.offsetWidth <= this.element.clientWidth ? right : Math.max(0, left);
    this.tip.style.left = `${x}px`;
    this.tip.style.top = `${cell.y + (this.grid.parentElement?.offsetTop ?? 0)}px`;
    this.context.announce(this.sentence(cell));
    void this.prepare(cell);
  }

  /** Reads the first rows of a head that is pointed at, for it may be opened next. */
  private async prepare({ layer, head }: Cell): Promise<void> {
    const { source, heads, store } = this.context;
    // A model behind the view would have to work for it.
    if (source.live || !this.data) return;
    const matrix = await heads.matrix(this.panel, this.data.block.name, store.state.weighting, layer, head);
    await matrix.ensure([0]).catch(() => undefined); // said where the head is opened
  }

  private facts(cell: Cell): [string, string][] {
    const { block } = this.data as Data;
    const at = cell.place * Math.max(...block.heads) + cell.head;
    return Object.keys(block.statistics).flatMap((name): [string, string][] => {
      const values = this.statistic(name);
      return values ? [[sentenceCase(name), number(values[at])]] : [];
    });
  }

  private about(cell: Cell): HTMLElement[] {
    const facts = this.facts(cell).flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]);
    return [
      el("b", {}, `Layer ${cell.layer}, head ${cell.head}`),
      el("dl", {}, facts),
      el("span", { class: "how" }, "Click to open"),
    ];
  }

  private sentence(cell: Cell): string {
    const facts = this.facts(cell).map(([name, value]) => `${name.toLowerCase()} ${value}`);
    return [`Layer ${cell.layer}, head ${cell.head}`, ...facts].join(" · ");
  }

  private place(ring: HTMLElement, cell: Cell | undefined): void {
    if (!cell || !this.layout) return;
    const { size, band } = this.layout;
    Object.assign(ring.style, {
      left: `${cell.x - 1}px`,
      top: `${cell.y - 1}px`,
      width: `${size + 2}px`,
      height: `${size + band + 2}px`,
    });
  }

  private focus(index: number): void {
    const cell = this.layout?.cells[index];
    if (!cell) return;
    this.focused = index;
    this.place(this.focusRing, cell);
    this.focusRing.scrollIntoView({ block: "nearest", inline: "nearest" });
    this.spoken.setAttribute("aria-rowindex", String(cell.row + 1));
    this.spoken.setAttribute("aria-colindex", String(cell.column + 1));
    this.spoken.textContent = this.sentence(cell);
    this.context.announce(this.sentence(cell));
  }

  private key(event: KeyboardEvent): void {
    const cell = this.layout?.cells[this.focused];
    if (!this.layout || !cell || event.ctrlKey || event.metaKey || event.altKey) return;
    const steps: Record<string, [number, number]> = {
      ArrowUp: [-1, 0],
      ArrowDown: [1, 0],
      ArrowLeft: [0, -1],
      ArrowRight: [0, 1],
    };
    const step = steps[event.key];
    if (event.key === "Enter" || event.key === " ") this.open(cell);
    else if (step) {
      const row = cell.row + step[0];
      const column = cell.column + step[1];
      const next = this.layout.cells.findIndex((other) => other.row === row && other.column === column);
      if (next >= 0) this.focus(next);
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }

  private open(cell: Cell | null): void {
    if (!cell) return;
    const { layer, head } = cell;
    this.context.store.set({ mode: "heads", layer, heads: [head], head, average: "none" });
  }
}

const NONE: Layout = {
  cells: [],
  rows: 0,
  columns: 0,
  size: 0,
  band: 0,
  ranked: false,
  left: 0,
  top: 0,
  width: 0,
  height: 0,
};

interface Span {
  low: number;
  high: number;
}

/** The part of a block's statistics [statistics, layers, most heads] that is one of them. */
function valuesOf(block: Block, statistics: Float32Array, name: string): Float32Array | null {
  const place = Object.keys(block.statistics).indexOf(name);
  const count = block.layers.length * Math.max(...block.heads);
  return place < 0 ? null : statistics.subarray(place * count, (place + 1) * count);
}

/** Smallest and largest value; around zero where values have both signs. */
function spanOf(values: number[]): Span {
  const there = values.filter((value) => Number.isFinite(value));
  if (!there.length) return { low: 0, high: 1 };
  const low = there.reduce((a, b) => Math.min(a, b));
  const high = there.reduce((a, b) => Math.max(a, b));
  const most = Math.max(-low, high);
  return low < 0 && high > 0 ? { low: -most, high: most } : { low, high };
}

function tint(value: number, { low, high }: Span, dark: boolean): Rgb {
  if (low < 0 && high > 0) return diverging(value / high, dark);
  return heat(high > low ? (value - low) / (high - low) : 0.5, dark);
}
