/** Reads the numbers of a text view: a track or a map by name, and the predictions of every layer. */

import { floats } from "./chunks";
import { WEIGHT, type TextData, type TokenList } from "./contract";
import type { Heads } from "./part";

/** One number per token; NaN where there is none. */
export async function readTrack(heads: Heads, panel: number, text: TextData, name: string, tokens: number): Promise<Float32Array> {
  const place = Object.keys(text.tracks).indexOf(name);
  const all = floats(await heads.bytes(`text/${panel}/tracks`));
  return all.subarray(place * tokens, (place + 1) * tokens);
}

/** Values [rows, tokens]. */
export async function readMap(heads: Heads, panel: number, name: string): Promise<Float32Array> {
  return floats(await heads.bytes(`text/${panel}/map/${name}`));
}

export interface Prediction {
  word: string;
  probability: number;
}

/** Predictions of every row (layer) after every token, likeliest first. */
export class Lens {
  private constructor(
    private readonly words: string[],
    private readonly ids: Uint32Array,
    private readonly codes: Uint8Array,
    private readonly tokens: TokenList,
    private readonly most: number,
  ) {}

  static async read(heads: Heads, panel: number, text: TextData, tokens: TokenList): Promise<Lens> {
    const [words, ids, codes] = await Promise.all(
      ["words", "ids", "probs"].map((part) => heads.bytes(`text/${panel}/lens/${part}`)),
    );
    return Lens.from(words, ids, codes, tokens, text.lens!.most);
  }

  static from(words: Uint8Array, ids: Uint8Array, codes: Uint8Array, tokens: TokenList, most: number): Lens {
    return new Lens(new TextDecoder().decode(words).split("\n"), new Uint32Array(ids.slice().buffer), codes, tokens, most);
  }

  top(row: number, token: number): Prediction {
    return this.at((row * this.tokens.text.length + token) * this.most);
  }

  all(row: number, token: number): Prediction[] {
    const start = (row * this.tokens.text.length + token) * this.most;
    return Array.from({ length: this.most }, (_, rank) => this.at(start + rank));
  }

  /** Whether a prediction is the token that follows; blanks around it do not matter. */
  comesTrue(word: string, token: number): boolean {
    const next = this.tokens.text[token + 1];
    return next !== undefined && word.trim() === next.trim() && word.trim() !== "";
  }

  private at(place: number): Prediction {
    return { word: this.words[this.ids[place]] ?? "", probability: WEIGHT[this.codes[place]] };
  }
}
