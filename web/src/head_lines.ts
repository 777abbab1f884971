/** Drawing of the head view: lines between two columns of tokens, and bars beside them. */

import { theme } from "./colour";
import type { HeadScene, Row } from "./head_scene";
import { weightText } from "./numbers";
import type { Picture } from "./part";
import { fitted, textWidth } from "./picture";

export const ROW = 24;

/** Left to right: bars, queries, lines, keys, bars. All in pixels from the left edge. */
export interface Geometry {
  width: number;
  height: number;
  queries: number;
  lines: number;
  keys: number;
  bars: number;
  /** Width of a column of tokens and of a column of bars. */
  column: number;
  bar: number;
}

/** The part that is scrolled into view, and what is looked at. Places are those of shown units. */
export interface Look {
  scroll: number;
  queries: number[];
  keys: number[];
}

/** Room for everything: tokens as wide as the longest of them, the lines take what is left. */
export function geometry(width: number, height: number, longest: number): Geometry {
  const column = Math.round(
    Math.min(Math.max(56, longest + 20), 200, Math.max(70, width * (width < 560 ? 0.21 : 0.24))),
  );
  const bar = Math.round(Math.min(130, Math.max(34, width * (width < 560 ? 0.1 : 0.15))));
  const lines = Math.min(560, Math.max(60, width - 2 * column - 2 * bar));
  const start = Math.max(0, Math.floor((width - lines - 2 * column - 2 * bar) / 2));
  const queries = start + bar;
  const keys = queries + column + lines;
  return { width, height, queries, lines: queries + column, keys, bars: keys + column, column, bar };
}

/** Shown places of the rows in view, from the first up to, not including, the second. */
export function inView(scroll: number, height: number, count: number): [number, number] {
  const first = Math.min(count, Math.max(0, Math.floor(scroll / ROW)));
  return [first, Math.min(count, Math.max(first, Math.ceil((scroll + height) / ROW)))];
}

/** A weight of one is solid. The faint ones of a single token are brought out; those of many heads at once recede. */
function opacity(weight: number, power: number): number {
  return 0.92 * Math.min(1, weight) ** power;
}

/** Fainter lines than this cannot be seen. Those of single tokens are drawn no fainter; among those of all tokens at
 * once they are left out, and what they stand for counts as not drawn. */
const FAINTEST = 0.012;

export class HeadDrawing {
  private readonly firstQuery: number;
  private readonly endQuery: number;
  private readonly firstKey: number;
  private readonly endKey: number;
  private readonly power: number;
  private leftOut = 0;

  constructor(
    private readonly p: Picture,
    private readonly scene: HeadScene,
    private readonly at: Geometry,
    private readonly look: Look,
    private readonly dark: boolean,
    private readonly most: BarScale = barScale(scene, look),
  ) {
    const several = Math.min(1, (scene.series.length - 1) / 6);
    this.power = look.queries.length || look.keys.length ? 0.65 : 0.75 + 0.6 * several;
    [this.firstQuery, this.endQuery] = inView(look.scroll, at.height, scene.from.length);
    [this.firstKey, this.endKey] = inView(look.scroll, at.height, scene.to.length);
  }

  /** Answers the mass of lines too faint to draw, mean over the rows in view. */
  draw(): number {
    const { queries, keys } = this.look;
    if (!queries.length && !keys.length) return this.everything();
    else {
      if (queries.length && keys.length) this.pairs();
      else if (queries.length) this.fromQueries();
      else this.toKeys();
      if (queries.length) this.barsBesideKeys();
      if (keys.length) this.barsBesideQueries();
    }
    return 0;
  }

  /** Tokens as text, for pictures that are saved; on screen they are elements. */
  tokens(pinned: { queries: number[]; keys: number[] }, rtl: { queries: boolean; keys: boolean }): void {
    const { ink, soft, accent } = theme(this.dark);
    const sides = [
      {
        places: this.scene.from,
        units: this.scene.queries,
        first: this.firstQuery,
        end: this.endQuery,
        x: this.at.queries,
        right: true,
        marked: pinned.queries,
        rtl: rtl.queries,
      },
      {
        places: this.scene.to,
        units: this.scene.keys,
        first: this.firstKey,
        end: this.endKey,
        x: this.at.keys,
        right: false,
        marked: pinned.keys,
        rtl: rtl.keys,
      },
    ];
    for (const side of sides) {
      for (let place = side.first; place < side.end; place++) {
        const y = this.y(place);
        if (y < ROW / 2 - 1 || y > this.at.height - ROW / 2 + 1) continue;
        const unit = side.units[side.places[place]];
        const style = {
          size: 13.5,
          colour: unit.special ? soft : ink,
          weight: side.marked.includes(place) ? 600 : 400,
          italic: unit.special,
        };
        if (side.marked.includes(place)) this.p.rect(side.x, y - ROW / 2, this.at.column, ROW, accent, 0.18);
        const text = fitted(visible(unit.text), this.at.column - 16, style);
        const x = side.right ? side.x + this.at.column - 8 : side.x + 8;
        this.p.text(x, y + 4.5, text, { ...style, anchor: side.right ? "end" : "start", rtl: side.rtl });
      }
    }
  }

  private y(place: number): number {
    return place * ROW + ROW / 2 - this.look.scroll;
  }

  /** The edge, for tokens that are out of view. */
  private clipped(place: number): number {
    return Math.min(this.at.height, Math.max(0, this.y(place)));
  }

  /** Heads that share a row stand a little apart. */
  private apart(series: number): number {
    const count = this.scene.series.length;
    return (series - (count - 1) / 2) * Math.min(1.6, 13 / count);
  }

  private curve(series: number, from: number, to: number, weight: number, width: number): void {
    const alpha = Math.max(FAINTEST, opacity(weight, this.power));
    const shift = this.apart(series);
    this.p.curve(this.at.lines, from + shift, this.at.keys, to + shift, this.scene.series[series].colour, alpha, width);
  }

  /** Lines to the keys in view; what goes above and below is drawn as one line to the edge. Answers those masses. */
  private linesOf(series: number, place: number, row: Pick<Row, "kept">, least?: number): [number, number] {
    const from = this.clipped(place);
    let above = 0;
    let below = 0;
    for (let key = 0; key < this.firstKey; key++) above += row.kept[key];
    for (let key = this.endKey; key < row.kept.length; key++) below += row.kept[key];
    const line = (to: number, weight: number) => {
      // Of everything at once, strong lines are thick and weak ones thin.
      if (least === undefined) this.curve(series, from, to, weight, 1.8);
      else if (weight >= least) this.curve(series, from, to, weight, 0.8 + 1.4 * Math.min(1, weight));
      else this.leftOut += weight;
    };
    for (let key = this.firstKey; key < this.endKey; key++) {
      if (row.kept[key] > 0) line(this.clipped(key), row.kept[key]);
    }
    if (above > 0) line(0, above);
    if (below > 0) line(this.at.height, below);
    return [above, below];
  }

  private everything(): number {
    const least = (FAINTEST / opacity(1, this.power)) ** (1 / this.power);
    let above = 0;
    let below = 0;
    let rows = 0;
    for (let series = 0; series < this.scene.series.length; series++) {
      for (let place = this.firstQuery; place < this.endQuery; place++) {
        const row = this.scene.row(series, place);
        if (!row) continue;
        const [up, down] = this.linesOf(series, place, row, least);
        above += up;
        below += down;
        rows++;
      }
    }
    if (rows) this.edges("keys", above / rows, below / rows, "on average ", "to");
    return rows ? this.leftOut / rows : 0;
  }

  private fromQueries(): void {
    const { queries } = this.look;
    let above = 0;
    let below = 0;
    for (let series = 0; series < this.scene.series.length; series++) {
      const sum = this.scene.sum(series, queries);
      if (!sum) continue;
      for (const place of queries) {
        const own = this.scene.values(series, place);
        if (!own) continue;
        // Lines and bars show the same keys: those that the cut of the sum keeps.
        const kept = queries.length > 1 ? own.map((value, key) => (sum.kept[key] > 0 ? value : 0)) : sum.kept;
        const [up, down] = this.linesOf(series, place, { kept });
        above += up;
        below += down;
      }
    }
    const count = this.scene.series.length;
    this.edges("keys", above / count, below / count, "", "to");
  }

  private toKeys(): void {
    const { keys } = this.look;
    let above = 0;
    let below = 0;
    for (let series = 0; series < this.scene.series.length; series++) {
      for (const key of keys) {
        const column = this.scene.column(series, [key]);
        let up = 0;
        let down = 0;
        for (let place = 0; place < column.length; place++) {
          if (Number.isNaN(column[place])) continue;
          if (place < this.firstQuery) up += column[place];
          else if (place >= this.endQuery) down += column[place];
          else if (column[place] > 0) this.curve(series, this.y(place), this.clipped(key), column[place], 1.8);
        }
        if (up > 0) this.curve(series, 0, this.clipped(key), up, 1.8);
        if (down > 0) this.curve(series, this.at.height, this.clipped(key), down, 1.8);
        above += up;
        below += down;
      }
    }
    const count = this.scene.series.length;
    this.edges("queries", above / count, below / count, "", "from");
  }

  private pairs(): void {
    for (let series = 0; series < this.scene.series.length; series++) {
      for (const query of this.look.queries) {
        const values = this.scene.values(series, query);
        if (!values) continue;
        for (const key of this.look.keys) {
          if (values[key] > 0) this.curve(series, this.clipped(query), this.clipped(key), values[key], 1.8);
        }
      }
    }
  }

  /** Says how much goes out of view, at the edge where it goes. */
  private edges(side: "queries" | "keys", above: number, below: number, before: string, way: string): void {
    const { paper, soft } = theme(this.dark);
    const right = side === "keys";
    const x = right ? this.at.keys - 6 : this.at.lines + 6;
    const width = this.at.keys - this.at.lines - 12;
    const write = (y: number, text: string) => {
      const style = { size: 11.5, colour: soft };
      // In a narrow window the arrow and the number say it.
      const said =
        textWidth(text, style) <= width
          ? text
          : text
              .split(" ")
              .filter((word) => /^[↑↓\d]/.test(word))
              .join(" ");
      const wide = Math.min(width, said.length * 6.2 + 8);
      this.p.rect(right ? x - wide + 4 : x - 4, y - 12, wide, 16, paper, 0.85);
      this.p.text(x, y, said, { ...style, anchor: right ? "end" : "start" });
    };
    if (above >= 0.005) write(14, `↑ ${before}${above.toFixed(2)} ${way} tokens above`);
    if (below >= 0.005) write(this.at.height - 6, `↓ ${before}${below.toFixed(2)} ${way} tokens below`);
  }

  private barsBesideKeys(): void {
    this.bars(besideKeys(this.scene, this.look), this.most.keys, this.firstKey, this.endKey, this.at.bars + 4, 1);
  }

  private barsBesideQueries(): void {
    this.bars(
      besideQueries(this.scene, this.look),
      this.most.queries,
      this.firstQuery,
      this.endQuery,
      this.at.queries - 4,
      -1,
    );
  }

  /** Stacked by head; the whole bar is the mean over heads, and its number stands at its end. */
  private bars(
    values: (Float32Array | null)[],
    most: number,
    first: number,
    end: number,
    x: number,
    way: 1 | -1,
  ): void {
    const count = values.length;
    const totals = meanOver(values);
    if (!(most > 0)) return;
    const numbers = this.at.bar >= 64;
    const full = this.at.bar - 6 - (numbers ? 34 : 0);
    const { soft } = theme(this.dark);
    for (let place = first; place < end; place++) {
      let length = 0;
      for (let series = 0; series < count; series++) {
        const part = (((values[series]?.[place] || 0) / count) * full) / most;
        if (part <= 0) continue;
        this.p.rect(
          way > 0 ? x + length : x - length - part,
          this.y(place) - 6,
          part,
          12,
          this.scene.series[series].colour,
          1,
        );
        length += part;
      }
      if (numbers && totals[place] >= 0.0005) {
        this.p.text(x + way * (length + 5), this.y(place) + 4, weightText(totals[place]), {
          size: 11.5,
          colour: soft,
          anchor: way > 0 ? "start" : "end",
        });
      }
    }
  }
}

/** The value that the longest bar on each side stands for; panels side by side share the larger. */
export interface BarScale {
  keys: number;
  queries: number;
}

export function barScale(scene: HeadScene, look: Look): BarScale {
  const most = (values: (Float32Array | null)[]) => meanOver(values).reduce((a, b) => Math.max(a, b), 0);
  return {
    keys: look.queries.length ? most(besideKeys(scene, look)) : 0,
    queries: look.keys.length ? most(besideQueries(scene, look)) : 0,
  };
}

/** What the chosen queries give to every shown key, head by head. */
function besideKeys(scene: HeadScene, look: Look): (Float32Array | null)[] {
  return scene.series.map((_, series) => scene.sum(series, look.queries)?.kept ?? null);
}

/** What every shown query gives to the chosen keys, head by head. */
function besideQueries(scene: HeadScene, look: Look): (Float32Array | null)[] {
  return scene.series.map((_, series) => scene.column(series, look.keys));
}

/** Mean over heads; what is not loaded yet counts as nothing. */
function meanOver(values: (Float32Array | null)[]): Float64Array {
  const means = new Float64Array(Math.max(0, ...values.map((row) => row?.length ?? 0)));
  for (const row of values) {
    if (!row) continue;
    for (let place = 0; place < row.length; place++) means[place] += (row[place] || 0) / values.length;
  }
  return means;
}

/** Which colour is which head, for saved pictures; answers its height. On screen the controls say it. */
export function drawLegend(p: Picture, scene: HeadScene, width: number, dark: boolean): number {
  const { soft } = theme(dark);
  let x = 0;
  let y = 14;
  for (const { name, colour } of scene.series) {
    const wide = 22 + name.length * 7;
    if (x > 0 && x + wide > width) {
      x = 0;
      y += 18;
    }
    p.rect(x, y - 9, 10, 10, colour, 1);
    p.text(x + 15, y, name, { size: 12, colour: soft });
    x += wide + 6;
  }
  return scene.series.length ? y + 8 : 0;
}

/** Tokens of white space, made visible. */
export function visible(text: string): string {
  if (text.trim() !== "" && !/[\n\t\r]/.test(text)) return text;
  return (
    text
      .replace(/\n/g, "↵")
      .replace(/\t/g, "⇥")
      .replace(/\r/g, "␍")
      .replace(/^ +$/, (spaces) => "␣".repeat(spaces.length)) || "∅"
  );
}
