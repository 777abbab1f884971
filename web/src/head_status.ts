/** The sentence under the head view: what is looked at, with numbers, and what is not drawn. */

import type { State } from "./contract";
import { inView, visible, type Look } from "./head_lines";
import type { HeadScene, Row } from "./head_scene";
import { thousands, weightText } from "./numbers";
import type { Context } from "./part";
import { largest, sumRows, type Unit } from "./weights";

/** Weights that are named. */
const NAMED = 5;
/** Most heads whose exact weights are asked for at once. */
const EXACT_HEADS = 16;

/** `faint` is the mass of lines too faint to draw, mean over the rows in view. */
export function describe(
  scene: HeadScene,
  look: Look,
  height: number,
  state: Readonly<State>,
  faint: number,
  exact?: Float32Array,
): string {
  if (!scene.series.length) return "No head is shown: choose one or more above.";
  if (!scene.from.length || !scene.to.length)
    return "Everything is hidden: show special tokens or sinks, or choose another part of the text.";
  const parts = [headsOf(scene, state)];
  if (look.queries.length) parts.push(...ofQueries(scene, look.queries, exact));
  if (look.keys.length) parts.push(...ofKeys(scene, look.keys));
  if (!look.queries.length && !look.keys.length) parts.push(...ofAll(scene, look, height, faint));
  return parts.join(" · ");
}

/** Exact weights of one shown query over the shown keys, mean over the heads shown; null where there are too many. */
export async function exactSums(
  context: Context,
  panel: number,
  scene: HeadScene,
  state: Readonly<State>,
  place: number,
): Promise<Float32Array | null> {
  const { source } = context;
  const heads = scene.series.flatMap(({ head }) => (head === null ? [] : [head]));
  if (!source.exact || !heads.length || heads.length > EXACT_HEADS) return null;
  const query = scene.queries[scene.from[place]].start;
  const rows: Float32Array[] = [];
  for (const head of heads)
    rows.push(await source.exact(panel, scene.block.name, state.weighting, state.layer, head, query));
  const whole = sumRows(rows);
  return Float32Array.from(scene.to, (key) => whole[scene.keys[key].start] / heads.length);
}

function headsOf(scene: HeadScene, state: Readonly<State>): string {
  const layer = state.average === "layers" ? "" : `Layer ${state.layer}, `;
  const heads = scene.series.map((series) => series.head);
  if (scene.series.length === 1) return sentence(`${layer}${scene.series[0].name}`);
  return sentence(`${layer}${heads.length > 6 ? `${heads.length} heads` : `heads ${heads.join(", ")}`}`);
}

function ofQueries(scene: HeadScene, places: number[], exact?: Float32Array): string[] {
  const rows = scene.series.map((_, series) => scene.sum(series, places)).filter((row): row is Row => row !== null);
  if (!rows.length) return ["loading"];
  const mean = (what: "dropped" | "hidden" | "unkept") => rows.reduce((sum, row) => sum + row[what], 0) / rows.length;
  const values = exact ?? sumRows(rows.map((row) => row.values)).map((value) => value / rows.length);
  const named = largest(values, NAMED).map(
    (key) => `${quoted(scene.keys[scene.to[key]])} ${exact ? values[key].toFixed(4) : weightText(values[key])}`,
  );
  const verb = places.length > 1 ? "together look at" : "looks at";
  return [
    `${list(places.map((place) => scene.queries[scene.from[place]]))} ${verb} ${named.join(", ") || "nothing shown"}${exact ? " (exact)" : ""}`,
    ...masses(mean("dropped"), mean("hidden"), mean("unkept")),
  ];
}

function ofKeys(scene: HeadScene, places: number[]): string[] {
  const columns = scene.series.map((_, series) => scene.column(series, places));
  const values = sumRows(columns).map((value) => value / columns.length);
  const named = largest(values, NAMED).map(
    (query) => `${quoted(scene.queries[scene.from[query]])} ${weightText(values[query])}`,
  );
  const loading = values.some(Number.isNaN) ? " (still loading)" : "";
  return [
    `${list(places.map((place) => scene.keys[scene.to[place]]))} ${places.length > 1 ? "are" : "is"} looked at by ${named.join(", ") || "nothing shown"}${loading}`,
  ];
}

function ofAll(scene: HeadScene, look: Look, height: number, faint: number): string[] {
  const [first, end] = inView(look.scroll, height, scene.from.length);
  const sums = { dropped: 0, hidden: 0, unkept: 0, rows: 0 };
  for (let series = 0; series < scene.series.length; series++) {
    for (let place = first; place < end; place++) {
      const row = scene.row(series, place);
      if (!row) continue;
      sums.dropped += row.dropped;
      sums.hidden += row.hidden;
      sums.unkept += row.unkept;
      sums.rows++;
    }
  }
  const count = scene.from.length;
  const where =
    end - first < count ? `${first + 1} to ${end} of ${thousands(count)} in view` : `${thousands(count)} in view`;
  if (!sums.rows) return [where];
  const said = masses(sums.dropped / sums.rows + faint, sums.hidden / sums.rows, sums.unkept / sums.rows);
  return said.length ? [where, `on average ${said.join(", ")}`] : [where];
}

function masses(dropped: number, hidden: number, unkept: number): string[] {
  const said = (value: number, text: string) => (value >= 0.0005 ? [`${weightText(value)} ${text}`] : []);
  return [...said(dropped, "not drawn"), ...said(hidden, "hidden"), ...said(unkept, "not kept in the file")];
}

/** Isolated, so that right-to-left tokens do not turn the sentence around. */
function quoted(unit: Unit): string {
  return `“\u2068${visible(unit.text)}\u2069”`;
}

function list(units: Unit[]): string {
  const names = units.slice(0, 4).map(quoted);
  return units.length > 4 ? `${names.join(" + ")} and ${units.length - 4} more` : names.join(" + ");
}

function sentence(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
