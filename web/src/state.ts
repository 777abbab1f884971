/** The state of one mounted view: its defaults, its followers, and its way into and out of JSON and the address. */

import type { Block, Header, State } from "./contract";
import type { Store } from "./part";

export type Mode = State["mode"];
type Follower = (state: Readonly<State>, changed: Set<keyof State>) => void;

/** The views that the data can fill. */
export function modes(header: Header): Mode[] {
  const blocks = header.panels.flatMap((panel) => panel.blocks);
  const found: Mode[] = [];
  if (blocks.length) found.push("model", "heads");
  if (blocks.some((block) => block.vectors)) found.push("neurons");
  if (header.panels.some((panel) => panel.text)) found.push("text");
  return found;
}

/** Blocks of this name, one per panel that has it. */
export function blocksNamed(header: Header, name: string): Block[] {
  return header.panels.flatMap((panel) => panel.blocks.filter((block) => block.name === name));
}

/** Names of all blocks, in the order of the panels. */
export function blockNames(header: Header): string[] {
  return [...new Set(header.panels.flatMap((panel) => panel.blocks.map((block) => block.name)))];
}

/** Numbers of the layers that any panel has. */
export function layerNumbers(header: Header, block: string): number[] {
  return [...new Set(blocksNamed(header, block).flatMap((found) => found.layers))].sort((a, b) => a - b);
}

/** Heads of a layer: the most that any panel has. */
export function headCount(header: Header, block: string, layer: number): number {
  const counts = blocksNamed(header, block).map((found) => found.heads[found.layers.indexOf(layer)] ?? 0);
  return Math.max(0, ...counts);
}

/** Share of the attention that is drawn where nobody chose one: of many heads at once only the strong lines tell. */
export function usualMass(state: Pick<State, "heads" | "average" | "left" | "right">): number {
  const many = state.average === "none" && state.heads.length > 3;
  return many && !state.left.length && !state.right.length ? 0.5 : 0.95;
}

/** What is shown when nothing was chosen: the header's wishes, completed and made fit. */
export function defaults(header: Header): State {
  const block = blockNames(header)[0] ?? "";
  const plain: State = {
    mode: modes(header)[0] ?? "text",
    block,
    weighting: Object.keys(blocksNamed(header, block)[0]?.weightings ?? {})[0] ?? "attention",
    layer: layerNumbers(header, block)[0] ?? 0,
    heads: [],
    average: "none",
    unit: "tokens",
    hideSpecial: false,
    hideSinks: false,
    mass: 0.95,
    from: null,
    to: null,
    left: [],
    right: [],
    sort: null,
    colour: null,
    head: 0,
    track: null,
    map: null,
    theme: "auto",
  };
  const wished = header.state;
  const asked = { ...plain, ...known(wished) };
  if (wished.heads === undefined) asked.heads = range(headCount(header, asked.block, asked.layer));
  if (known(wished).mass === undefined) asked.mass = usualMass(asked);
  return fit(asked, header);
}

/** Only what a state can hold, each value of the right kind: a state may come from an address that was typed. */
export function known(given: unknown): Partial<State> {
  if (typeof given !== "object" || given === null) return {};
  const found: Partial<State> = {};
  for (const [key, value] of Object.entries(given)) {
    if (key in CHECKS && CHECKS[key as keyof State](value)) Object.assign(found, { [key]: value });
  }
  return found;
}

const isText = (value: unknown) => typeof value === "string";
const isTextOrNull = (value: unknown) => value === null || typeof value === "string";
const isPlace = (value: unknown) => Number.isInteger(value) && (value as number) >= 0;
const isPlaceOrNull = (value: unknown) => value === null || isPlace(value);
const isPlaces = (value: unknown) => Array.isArray(value) && value.every(isPlace);
const isFlag = (value: unknown) => typeof value === "boolean";
const isOneOf =
  (...names: string[]) =>
  (value: unknown) =>
    names.includes(value as string);

const CHECKS: Record<keyof State, (value: unknown) => boolean> = {
  mode: isOneOf("model", "heads", "neurons", "text"),
  block: isText,
  weighting: isText,
  layer: isPlace,
  heads: isPlaces,
  average: isOneOf("none", "heads", "layers"),
  unit: isOneOf("tokens", "words"),
  hideSpecial: isFlag,
  hideSinks: isFlag,
  mass: (value) => typeof value === "number" && value > 0 && value <= 1,
  from: isPlaceOrNull,
  to: isPlaceOrNull,
  left: isPlaces,
  right: isPlaces,
  sort: isTextOrNull,
  colour: isTextOrNull,
  head: isPlace,
  track: isTextOrNull,
  map: isTextOrNull,
  theme: isOneOf("auto", "light", "dark"),
};

/** The state with every choice that the data does not offer replaced by one that it does. */
export function fit(state: State, header: Header): State {
  const fitted = { ...state };
  const offered = modes(header);
  if (!offered.includes(fitted.mode)) fitted.mode = offered[0] ?? "text";
  const names = blockNames(header);
  if (!names.includes(fitted.block)) fitted.block = names[0] ?? "";
  const blocks = blocksNamed(header, fitted.block);
  const weightings = new Set(blocks.flatMap((block) => Object.keys(block.weightings)));
  if (!weightings.has(fitted.weighting)) fitted.weighting = [...weightings][0] ?? "attention";
  const layers = layerNumbers(header, fitted.block);
  if (!layers.includes(fitted.layer)) fitted.layer = layers[0] ?? 0;
  // The neuron view goes to the nearest layer whose vectors are there.
  const stored = blocks.flatMap((block) => block.vectors?.layers ?? []);
  if (fitted.mode === "neurons" && stored.length) fitted.layer = nearest(stored, fitted.layer);
  const heads = headCount(header, fitted.block, fitted.layer);
  fitted.heads = [...new Set(fitted.heads)].filter((head) => head < heads).sort((a, b) => a - b);
  if (fitted.head >= heads) fitted.head = 0;
  const statistics = new Set(blocks.flatMap((block) => Object.keys(block.statistics)));
  if (fitted.sort !== null && !statistics.has(fitted.sort)) fitted.sort = null;
  if (fitted.colour !== null && !statistics.has(fitted.colour)) fitted.colour = null;
  const segments = (list: "queries" | "keys") =>
    Math.max(
      0,
      ...header.panels.flatMap((panel) =>
        panel.blocks
          .filter((block) => block.name === fitted.block)
          .map((block) => panel.tokens[block[list]].segments.length),
      ),
    );
  if (fitted.from !== null && fitted.from >= segments("queries")) fitted.from = null;
  if (fitted.to !== null && fitted.to >= segments("keys")) fitted.to = null;
  return fitted;
}

/** The number of a list that is nearest; of two, the first. */
function nearest(numbers: number[], wanted: number): number {
  return numbers.reduce((best, other) => (Math.abs(other - wanted) < Math.abs(best - wanted) ? other : best));
}

export class StateStore implements Store {
  state: Readonly<State>;
  private readonly followers = new Set<Follower>();

  constructor(
    private readonly header: Header,
    start: Partial<State> = {},
  ) {
    this.state = changed(defaults(header), start, header);
  }

  set(change: Partial<State>): void {
    const before = this.state;
    const after = changed(before, change, this.header);
    const which = differences(before, after);
    if (!which.size) return;
    this.state = after;
    for (const follower of [...this.followers]) follower(after, which);
  }

  subscribe(follower: Follower): () => void {
    this.followers.add(follower);
    return () => this.followers.delete(follower);
  }
}

/** The state after a change. Until somebody chooses how much is drawn, it follows what is shown. */
function changed(before: Readonly<State>, change: unknown, header: Header): State {
  const given = known(change);
  const after = fit({ ...before, ...given }, header);
  if (given.mass === undefined && before.mass === usualMass(before)) after.mass = usualMass(after);
  return after;
}

function differences(a: Readonly<State>, b: Readonly<State>): Set<keyof State> {
  const keys = Object.keys(CHECKS) as (keyof State)[];
  return new Set(keys.filter((key) => JSON.stringify(a[key]) !== JSON.stringify(b[key])));
}

/** What differs from the defaults, for the part of an address after "#". */
export function toHash(state: Readonly<State>, header: Header): string {
  const plain = defaults(header);
  const chosen: Partial<State> = {};
  for (const key of differences(plain, state)) Object.assign(chosen, { [key]: state[key] });
  const { mass: _, ...others } = chosen;
  // What follows from the other choices need not be said.
  const told = changed(plain, others, header).mass === state.mass ? others : { ...others, mass: state.mass };
  return Object.keys(told).length ? `#state=${encodeURIComponent(JSON.stringify(told))}` : "";
}

/** The state in an address; an unreadable one says nothing. */
export function fromHash(hash: string): Partial<State> {
  const text = /[#&]state=([^&]*)/.exec(hash)?.[1];
  if (!text) return {};
  try {
    return known(JSON.parse(decodeURIComponent(text)));
  } catch {
    return {};
  }
}

export function range(count: number): number[] {
  return Array.from({ length: count }, (_, i) => i);
}
