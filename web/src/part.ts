/** What the views share: the data they ask for, the state they follow, the surface they draw on. */

import type { Source, State } from "./contract";

/** Holds the state of one mounted view and tells its followers what changed. */
export interface Store {
  readonly state: Readonly<State>;
  /** Followers are called only when a value differs. */
  set(change: Partial<State>): void;
  /** Answers the function that ends the following. */
  subscribe(follower: (state: Readonly<State>, changed: Set<keyof State>) => void): () => void;
}

/** Weights of one head as codes (see `WEIGHT` in the contract); strips of rows arrive when `ensure` asks for them. */
export interface HeadMatrix {
  readonly queries: number;
  readonly keys: number;
  /** Loads the strips that hold these query rows; without an argument, all of them. */
  ensure(rows?: Iterable<number>): Promise<void>;
  /** Whether the row can be read now. */
  has(i: number): boolean;
  /** Codes of query row i, length `keys`, zero after i where causal. Throws where the row is not loaded. */
  row(i: number): Uint8Array;
  /** One code of query row i; undefined where the row is not loaded. */
  code(i: number, j: number): number | undefined;
  /** Code of the mass that the file does not keep of row i. */
  dropped(i: number): number;
}

/** Everything that is asked of a source, decoded and kept for a while. */
export interface Heads {
  matrix(panel: number, block: string, weighting: string, layer: number, head: number): Promise<HeadMatrix>;
  /** The matrix where it was asked for before (its rows may still be missing: see `has`). */
  peek(panel: number, block: string, weighting: string, layer: number, head: number): HeadMatrix | undefined;
  /** Codes [layers, most heads, side, side]. */
  thumbs(panel: number, block: string, weighting: string): Promise<Uint8Array>;
  /** Values [statistics, layers, most heads]. */
  statistics(panel: number, block: string): Promise<Float32Array>;
  /** Values [heads, tokens, width] of the queries and of the keys. */
  vectors(panel: number, block: string, layer: number): Promise<{ q: Float32Array; k: Float32Array }>;
  /** Any chunk, inflated: the text view reads its own chunks with it. */
  bytes(name: string): Promise<Uint8Array>;
}

export interface Context {
  source: Source;
  store: Store;
  heads: Heads;
  dark(): boolean;
  /** Writes the status line, which screen readers read out. */
  announce(text: string): void;
}

export interface TextStyle {
  /** Pixels. */
  size?: number;
  colour: string;
  anchor?: "start" | "middle" | "end";
  weight?: number;
  italic?: boolean;
  rtl?: boolean;
  mono?: boolean;
}

/** A surface to draw on, in CSS pixels: a canvas on screen, SVG for export. Text stands on its baseline. */
export interface Picture {
  line(x1: number, y1: number, x2: number, y2: number, colour: string, alpha: number, width: number): void;
  /** A line that leaves and arrives horizontally. */
  curve(x1: number, y1: number, x2: number, y2: number, colour: string, alpha: number, width: number): void;
  rect(x: number, y: number, w: number, h: number, colour: string, alpha: number): void;
  text(x: number, y: number, string: string, style: TextStyle): void;
  /** RGBA pixels, stretched without smoothing to w × h. */
  image(x: number, y: number, w: number, h: number, pixels: Uint8ClampedArray, pw: number, ph: number): void;
}

export interface ViewPart {
  element: HTMLElement;
  update(state: Readonly<State>, changed: Set<keyof State>): void;
  /** Draws what is on screen, and answers its size. */
  picture(p: Picture): { width: number; height: number };
  destroy(): void;
}

export type MakeView = (context: Context, panel: number) => ViewPart;
