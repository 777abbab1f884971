/** The shapes that travel between Python, the page and its parts. Python writes the header; chunks are bytes. */

export interface Header {
  format: 1;
  kind: "attention" | "text" | "compare";
  title: string;
  /** Sentences that belong under the picture: what was cut, what a number means. */
  notes: string[];
  panels: Panel[];
  /** Name → where its bytes lie; sources that fetch by name (live ones) may leave it empty. */
  chunks: Record<string, ChunkPlace>;
  state: Partial<State>;
  /** Version of the library that wrote it. */
  pellucid: string;
}

export interface ChunkPlace {
  /** Bytes as stored (deflated, zlib format) and after inflating. */
  stored: number;
  raw: number;
}

export interface Panel {
  name: string;
  model: string;
  fingerprint: string;
  tokens: Record<string, TokenList>;
  /** Empty for text views. */
  blocks: Block[];
  text?: TextData;
}

export interface TokenList {
  /** As the tokenizer spells them, made readable (no Ġ, ▁, ##): the text between two tokens is in `space`. */
  text: string[];
  /** "1" where a space stands before the token in the text, "0" where it continues a word; one character per token. */
  space: string;
  /** Number of the word of each token, −1 for special tokens. */
  word: number[];
  /** Places of special tokens ([CLS], <s> …). */
  special: number[];
  /** Places of tokens that draw attention whatever the text says. */
  sinks: number[];
  /** Segment of each token for sentence pairs and prompt → generated; names of the segments. */
  segment: number[];
  segments: string[];
  /** Right-to-left text. */
  rtl: boolean;
}

export interface Block {
  /** "self", "encoder", "decoder" or "cross". */
  name: string;
  causal: boolean;
  /** Names of the token lists of queries and keys. */
  queries: string;
  keys: string;
  /** Numbers of the layers that are there, and heads of each of them. */
  layers: number[];
  heads: number[];
  /** "attention" first; then others ("effective", "norm"), each with a sentence. */
  weightings: Record<string, string>;
  /** Query rows of one weights chunk. */
  strip: number;
  /** Share of each row's attention that is kept in the file; 1 keeps everything. */
  quality: number;
  /** Side of a thumbnail in pixels. */
  thumb: number;
  /** Statistics of heads by name, each with a sentence. */
  statistics: Record<string, string>;
  /** Layers whose queries and keys are there for the neuron view; width of each head's vectors; factor of q·k. */
  vectors: { layers: number[]; width: number; scale: number } | null;
}

export interface TextData {
  /** One number per token: name → sentence and kind; values are in the chunk text/PANEL/tracks, float32 [tracks, tokens]. */
  tracks: Record<string, { about: string; signed: boolean; unit: string }>;
  /** Maps of rows × tokens: name → what goes from row to row, sentence, labels; values in text/PANEL/map/NAME, float32. */
  maps: Record<string, { heading: string; about: string; rows: string[]; signed: boolean; unit: string }>;
  /** Predictions per layer: the `most` likeliest tokens of every row and token. Strings of the chunk text/PANEL/lens/words
   * (UTF-8, joined by \n), their numbers in text/PANEL/lens/ids (uint32 [rows, tokens, most]) and probabilities in
   * text/PANEL/lens/probs (bytes [rows, tokens, most], see weight()). */
  lens: { rows: string[]; most: number; about: string } | null;
}

/** Everything that a picture depends on beside its data. Small, JSON, the same in every host. */
export interface State {
  mode: "model" | "heads" | "neurons" | "text";
  block: string;
  weighting: string;
  layer: number;
  /** Heads shown in the head view. */
  heads: number[];
  /** What is averaged: nothing, the chosen heads, or all layers (of the chosen heads). */
  average: "none" | "heads" | "layers";
  unit: "tokens" | "words";
  hideSpecial: boolean;
  hideSinks: boolean;
  /** Share of each query's attention that is drawn, from the largest weight down; 1 draws everything. */
  mass: number;
  /** Only from this segment to that one; null for all. */
  from: number | null;
  to: number | null;
  /** Chosen places (of units shown): queries on the left, keys on the right. Several are summed. */
  left: number[];
  right: number[];
  /** Model view: statistic that sorts and colours, or null for layer order and plain colour. */
  sort: string | null;
  colour: string | null;
  /** Neuron view: head; the query is left[0], the key right[0]. */
  head: number;
  /** Text view: the track, map or lens row looked at. */
  track: string | null;
  map: string | null;
  theme: "auto" | "light" | "dark";
}

/** Chunks (all deflated with zlib):
 * a/PANEL/BLOCK/WEIGHTING/LAYER/HEAD/STRIP   weights of the strip's rows, one byte each, see weight(); a causal block
 *     (queries = keys) has i + 1 bytes in row i, others all keys; filtered: byte −= byte above in the same column (mod
 *     256, the first row of a strip as it is; for packed rows the missing last byte above counts as 0); then one byte
 *     per row: the mass that `quality` dropped, in the same code.
 * t/PANEL/BLOCK/WEIGHTING                    thumbnails, bytes [layers, most heads, side, side], the largest weight of each
 *     tile (queries down, keys across), in the same code; absent heads are zero.
 * s/PANEL/BLOCK                              statistics, float32 [statistics, layers, most heads], little-endian.
 * q/PANEL/BLOCK/LAYER, k/PANEL/BLOCK/LAYER   float16 [heads, tokens, width], after position codes; keys are repeated for
 *     every query head that shares them.
 */
export interface Source {
  header: Header;
  /** The stored (deflated) bytes of a chunk. */
  chunk(name: string): Promise<Uint8Array>;
  /** Whether a model stands behind it: then exact() answers. */
  live: boolean;
  /** Exact weights of one query row, where live. */
  exact?(panel: number, block: string, weighting: string, layer: number, head: number, query: number): Promise<Float32Array>;
}

/** The weight that a byte stands for: (b/255)². */
export const WEIGHT: Float32Array = Float32Array.from({ length: 256 }, (_, b) => (b / 255) ** 2);
