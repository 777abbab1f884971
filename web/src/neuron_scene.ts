/** Gathers what the neuron view shows from the state, the vectors of a layer and a row of weights. */

import { WEIGHT, type Block, type Panel, type State, type TokenList } from "./contract";
import {
  checkSoftmax, halfPrecisionError, neuronsByShare, products, scaledDots, type SoftmaxCheck,
} from "./dot_product";
import { visible } from "./head_lines";
import { number } from "./numbers";
import { signedScale } from "./value_colours";
import { shown, units } from "./weights";

/** Share of the numbers whose colours are not full yet: a few outlying neurons must not make the others pale. */
const COLOURED = 0.99;

/** One query of one head: its numbers, rows and order of neurons. */
export interface NeuronScene {
  layer: number;
  head: number;
  /** Places of the query and of the key that the order follows. */
  query: number;
  chosen: number;
  queryToken: string;
  rtl: boolean;
  scale: number;
  neurons: number;
  queryVector: Float32Array;
  /** [keys × neurons], like `product`; `dots` (scaled) and `weights` have one number per key. */
  keyVectors: Float32Array;
  product: Float32Array;
  dots: Float64Array;
  weights: Float32Array;
  /** Keys that have a row, neurons from left to right. */
  rows: number[];
  order: number[];
  /** Attention to keys that have no row because the user hid them. */
  hidden: number;
  check: SoftmaxCheck;
}

/** A token inside a sentence, with its place; marks keep right-to-left text from turning the sentence round. */
export function quoted(text: string, place: number): string {
  return `“\u2068${visible(text)}\u2069” (${place})`;
}

/** The token that is asked about: the first chosen one, else the last that is a word or a part of one. */
export function queryPlace(state: Readonly<State>, tokens: TokenList): number {
  const asked = state.left[0];
  const found = asked === undefined ? undefined : units(tokens, state.unit)[asked]?.start;
  if (found !== undefined) return found;
  const special = new Set(tokens.special);
  const places = tokens.text.map((_, place) => place).filter((place) => !special.has(place));
  return (
    places.findLast((place) => /[\p{L}\p{N}]/u.test(tokens.text[place])) ?? places.at(-1) ?? tokens.text.length - 1
  );
}

/** Places that a user sees of a list of tokens. */
export function placesShown(state: Readonly<State>, tokens: TokenList, segment: number | null): number[] {
  return [...shown(units(tokens, "tokens"), segment, state.hideSpecial, state.hideSinks)];
}

/** Keys that a query may look at: those up to itself where attention is causal. */
export function reach(block: Block, query: number, keys: number): number {
  return block.causal && block.queries === block.keys ? Math.min(query + 1, keys) : keys;
}

export interface Row {
  codes: Uint8Array;
  /** Mass that the file does not keep. */
  dropped: number;
  /** Exact weights, where a model stands behind the view. */
  exact: Float32Array | null;
}

export function makeScene(
  state: Readonly<State>, panel: Panel, block: Block, query: number, head: number,
  vectors: { q: Float32Array; k: Float32Array }, row: Row, sorted: boolean,
): NeuronScene {
  const shape = block.vectors!;
  const neurons = shape.width;
  const [queries, keys] = [panel.tokens[block.queries], panel.tokens[block.keys]];
  const near = reach(block, query, keys.text.length);
  const queryStart = (head * queries.text.length + query) * neurons;
  const keysStart = head * keys.text.length * neurons;
  const queryVector = vectors.q.subarray(queryStart, queryStart + neurons);
  const keyVectors = vectors.k.subarray(keysStart, keysStart + near * neurons);
  const product = products(queryVector, keyVectors);
  const dots = scaledDots(product, neurons, shape.scale);
  const codes = row.codes.subarray(0, near);
  const weights = row.exact?.slice(0, near) ?? Float32Array.from(codes, (code) => WEIGHT[code]);
  const rows = placesShown(state, keys, state.to).filter((key) => key < near);
  const chosen = chosenKey(state, keys, rows, weights);
  const own = product.subarray(chosen * neurons, (chosen + 1) * neurons);
  const seen = new Set(rows);
  return {
    layer: state.layer, head, query, chosen,
    queryToken: visible(queries.text[query] ?? ""), rtl: queries.rtl,
    scale: shape.scale, neurons, queryVector, keyVectors, product, dots, weights, rows,
    order: sorted && chosen >= 0 ? neuronsByShare(own) : Array.from({ length: neurons }, (_, neuron) => neuron),
    hidden: weights.reduce((sum, weight, key) => sum + (seen.has(key) ? 0 : weight), 0),
    check: checkSoftmax(dots, codes, row.dropped, halfPrecisionError(product, neurons, shape.scale)),
  };
}

/** The key that the user chose, where it has a row; else the one with most weight; −1 where there are no rows. */
function chosenKey(state: Readonly<State>, keys: TokenList, rows: number[], weights: Float32Array): number {
  const asked = state.right[0];
  const place = asked === undefined ? undefined : units(keys, state.unit)[asked]?.start;
  if (place !== undefined && rows.includes(place)) return place;
  return rows.reduce((best, key) => (best < 0 || weights[key] > weights[best] ? key : best), -1);
}

/** Scales of the colours: of the query, of all keys in reach, of all products. */
export function scales(scene: NeuronScene): Record<"query" | "keys" | "product", ReturnType<typeof signedScale>> {
  return {
    query: signedScale(scene.queryVector, 1),
    keys: signedScale(scene.keyVectors, COLOURED),
    product: signedScale(scene.product, COLOURED),
  };
}

/** What stands in the way of reading the weights as the softmax of the dot products; null where nothing does. */
export function softmaxNote(scene: NeuronScene, keys: TokenList): string | null {
  const { verdict, difference, key } = scene.check;
  if (verdict === "same") return null;
  const where = quoted(keys.text[key], key);
  if (verdict === "window") {
    return "Only some keys are within this query's reach (a local window): the weights are the softmax over those.";
  }
  return (
    `The softmax of q·k × ${number(scene.scale)} differs from the weights by up to ${number(difference)}, at ${where}: ` +
    "this model adds position terms to q·k, or masks keys."
  );
}

/** One key's numbers in a sentence. */
export function describeKey(scene: NeuronScene, key: number, keys: TokenList, live: boolean): string {
  const own = scene.product.subarray(key * scene.neurons, (key + 1) * scene.neurons);
  const most = [...own.keys()].sort((a, b) => Math.abs(own[b]) - Math.abs(own[a])).slice(0, 3);
  const dot = scene.dots[key] / scene.scale;
  const weight = live ? scene.weights[key].toPrecision(6) : number(scene.weights[key]);
  return (
    `Key ${quoted(keys.text[key], key)}: q·k ${number(dot)}, scaled ${number(scene.dots[key])}, weight ${weight}. ` +
    `Largest neurons: ${most.map((neuron) => `${neuron} (${number(own[neuron])})`).join(", ")}.`
  );
}

/** One neuron's numbers for one key, or its query alone. */
export function describeNeuron(scene: NeuronScene, neuron: number, key: number, keys: TokenList): string {
  const q = `Neuron ${neuron}: q ${number(scene.queryVector[neuron])}`;
  if (key < 0) return `${q}.`;
  const place = key * scene.neurons + neuron;
  const dot = scene.dots[key] / scene.scale;
  const share = dot === 0 ? "" : ` (${number((100 * scene.product[place]) / dot)}% of q·k ${number(dot)})`;
  return (
    `${q}; for key ${quoted(keys.text[key], key)}: k ${number(scene.keyVectors[place])}, ` +
    `q∘k ${number(scene.product[place])}${share}.`
  );
}

/** The whole picture in a sentence. */
export function describeScene(scene: NeuronScene, keys: TokenList): string {
  const start = `Layer ${scene.layer}, head ${scene.head}, query ${quoted(scene.queryToken, scene.query)}`;
  if (scene.chosen < 0) return `${start}: no key is shown.`;
  const hidden = scene.hidden > 0.0005 ? ` Hidden keys have ${number(scene.hidden)}.` : "";
  return (
    `${start}: weight ${number(scene.weights[scene.chosen])} on ${quoted(keys.text[scene.chosen], scene.chosen)}.${hidden}`
  );
}
