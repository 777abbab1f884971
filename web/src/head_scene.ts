/** What the head view shows of one panel and state: the units, and the weights of every chosen head between them. */

import type { Block, State } from "./contract";
import { headColour, theme } from "./colour";
import type { Context, HeadMatrix } from "./part";
import { usualMass } from "./state";
import { massCut, pick, shown, sumRows, total, unitColumn, unitRow, units, unkept, type Shown, type Unit } from "./weights";

/** One colour of lines: a head, or the mean of several. */
export interface Series {
  name: string;
  /** The head's number; null for a mean. */
  head: number | null;
  colour: string;
  matrices: HeadMatrix[];
}

/** The weights of one query, or of several added up, over the keys that are shown. */
interface Weights {
  values: Float32Array;
  /** Mass that goes to hidden keys, and that the file does not keep. */
  hidden: number;
  unkept: number;
}

export interface Row extends Weights {
  /** After the mass cut. */
  kept: Float32Array;
  /** Mass that the cut drops. */
  dropped: number;
}

/** Rows that are kept before all are let go; each has a few kB. */
const ROWS_KEPT = 4000;
const COLUMNS_KEPT = 500;

export class HeadScene {
  private readonly weights = new Map<number, Weights>();
  private readonly rows = new Map<number, Row>();
  private readonly columns = new Map<string, Float32Array>();
  /** Columns that lacked rows when they were made. */
  private readonly partial = new Set<string>();
  /** The queries that are shown. */
  private readonly lookers: Unit[];

  private constructor(
    readonly block: Block,
    readonly queries: Unit[],
    readonly keys: Unit[],
    /** Places of the units in view; drawing counts in places of these. */
    readonly from: Shown,
    readonly to: Shown,
    readonly series: Series[],
    private mass: number,
    private looked: number,
  ) {
    this.lookers = Array.from(from, (place) => queries[place]);
  }

  /** Throws, in a sentence for the reader, where the panel lacks what the state asks for. */
  static async make(context: Context, panel: number, state: Readonly<State>): Promise<HeadScene> {
    const { name, blocks, tokens } = context.source.header.panels[panel];
    const block = blocks.find((candidate) => candidate.name === state.block);
    if (!block) throw new Error(`${name} has no "${state.block}" attention.`);
    if (!(state.weighting in block.weightings)) throw new Error(`${name} has no "${state.weighting}" weights.`);
    if (state.average !== "layers" && !block.layers.includes(state.layer))
      throw new Error(`${name} has no layer ${state.layer}.`);
    const queries = units(tokens[block.queries], state.unit);
    const keys = units(tokens[block.keys], state.unit);
    return new HeadScene(
      block,
      queries,
      keys,
      shown(queries, state.from, state.hideSpecial, state.hideSinks),
      shown(keys, state.to, state.hideSpecial, state.hideSinks),
      await seriesOf(context, panel, block, state),
      state.mass,
      lookedMass(state),
    );
  }

  /** Draws another share of each row. */
  cut(state: Readonly<State>): void {
    if (state.mass === this.mass && lookedMass(state) === this.looked) return;
    this.mass = state.mass;
    this.looked = lookedMass(state);
    this.rows.clear();
  }

  /** Loads the rows of these shown queries. */
  async ensure(places: Iterable<number>): Promise<void> {
    const tokens: number[] = [];
    for (const place of places) {
      const unit = this.queries[this.from[place]];
      for (let i = unit.start; i < unit.end; i++) tokens.push(i);
    }
    await Promise.all(this.series.flatMap(({ matrices }) => matrices.map((matrix) => matrix.ensure(tokens))));
    this.forgetPartial();
  }

  /** Loads everything: what goes to one key is known only when all queries are. */
  async ensureAll(): Promise<void> {
    await Promise.all(this.series.flatMap(({ matrices }) => matrices.map((matrix) => matrix.ensure())));
    this.forgetPartial();
  }

  private forgetPartial(): void {
    for (const number of this.partial) this.columns.delete(number);
    this.partial.clear();
  }

  /** Whether every row is there. */
  complete(): boolean {
    return this.series.every(({ matrices }) =>
      matrices.every((matrix) => this.queries.every((unit) => matrix.has(unit.start))),
    );
  }

  /** The row of a shown query, cut as one of many; null where it is not loaded. */
  row(series: number, place: number): Row | null {
    const number = series * this.queries.length + place;
    const known = this.rows.get(number);
    if (known) return known;
    const weights = this.uncut(series, place);
    if (!weights) return null;
    const row = { ...weights, ...massCut(weights.values, this.mass) };
    if (this.rows.size >= ROWS_KEPT) this.rows.clear();
    this.rows.set(number, row);
    return row;
  }

  private uncut(series: number, place: number): Weights | null {
    const number = series * this.queries.length + place;
    const known = this.weights.get(number);
    if (known) return known;
    const { matrices } = this.series[series];
    const unit = this.queries[this.from[place]];
    for (const matrix of matrices) for (let i = unit.start; i < unit.end; i++) if (!matrix.has(i)) return null;
    const { values, hidden } = pick(unitRow(matrices, unit, this.keys), this.to);
    const weights = { values, hidden, unkept: unkept(matrices, unit) };
    if (this.weights.size >= ROWS_KEPT) this.weights.clear();
    this.weights.set(number, weights);
    return weights;
  }

  /** Rows of the shown queries that are looked at added up, and the cut made on the sum; null where one is not loaded. */
  sum(series: number, places: number[]): Row | null {
    const rows = places.map((place) => this.uncut(series, place));
    if (!rows.length || !rows.every((row): row is Weights => row !== null)) return null;
    const values = rows.length === 1 ? rows[0].values : sumRows(rows.map((row) => row.values));
    const added = (what: "hidden" | "unkept") => rows.reduce((sum, row) => sum + row[what], 0);
    return { values, ...massCut(values, this.looked), hidden: added("hidden"), unkept: added("unkept") };
  }

  /** Weights of one shown query over the shown keys; null where not loaded. */
  values(series: number, place: number): Float32Array | null {
    return this.uncut(series, place)?.values ?? null;
  }

  /** What every shown query gives to these shown keys together; NaN where not loaded. */
  column(series: number, places: number[]): Float32Array {
    const number = `${series}/${places.join()}`;
    const known = this.columns.get(number);
    if (known) return known;
    const { matrices } = this.series[series];
    const column = sumRows(places.map((place) => unitColumn(matrices, this.lookers, this.keys[this.to[place]])));
    if (this.columns.size >= COLUMNS_KEPT) this.columns.clear();
    if (Number.isNaN(total(column))) this.partial.add(number);
    this.columns.set(number, column);
    return column;
  }
}

/** A token that is pointed at shows as much as it would if it were pinned. */
function lookedMass(state: Readonly<State>): number {
  return state.mass === usualMass(state) ? Math.max(state.mass, usualMass({ ...state, left: [0] })) : state.mass;
}

async function seriesOf(context: Context, panel: number, block: Block, state: Readonly<State>): Promise<Series[]> {
  const { heads } = context;
  const matrix = (layer: number, head: number) => heads.matrix(panel, block.name, state.weighting, layer, head);
  const count = (layer: number) => block.heads[block.layers.indexOf(layer)] ?? 0;
  const dark = context.dark();
  const layers = state.average === "layers" ? block.layers : [state.layer];
  if (state.average === "none") {
    const chosen = state.heads.filter((head) => head < count(state.layer));
    return Promise.all(
      chosen.map(async (head) => ({
        name: `head ${head}`,
        head,
        colour: headColour(head, count(state.layer), dark),
        matrices: [await matrix(state.layer, head)],
      })),
    );
  }
  const wanted = layers.flatMap((layer) =>
    state.heads.filter((head) => head < count(layer)).map((head) => [layer, head]),
  );
  if (!wanted.length) return [];
  const matrices = await Promise.all(wanted.map(([layer, head]) => matrix(layer, head)));
  const over = state.heads.length === 1 ? `head ${state.heads[0]}` : `${state.heads.length} heads`;
  const name = layers.length > 1 ? `mean of ${over} over ${layers.length} layers` : `mean of ${over}`;
  return [{ name, head: null, colour: theme(dark).accent, matrices }];
}
