/** A text coloured by a value per token, then values and predictions per layer below it. */

import { css, heat, theme } from "./colour";
import type { State, TextData, TokenList } from "./contract";
import { sentenceCase } from "./controls";
import { button, el, fill, labelledSelect, markPainted } from "./dom";
import { visible } from "./head_lines";
import { drawLaidText, drawSelect } from "./laid_text";
import { quoted } from "./neuron_scene";
import { number } from "./numbers";
import type { Context, MakeView, Picture, ViewPart } from "./part";
import { shifted } from "./picture";
import { Lens, readMap, readTrack } from "./text_data";
import { TextFlow } from "./text_flow";
import { TokenGrid, type GridPlace } from "./token_grid";
import { colourTable, mapScale, tablePlace, valueColour, valueScale, type ValueScale } from "./value_colours";

const PROBABILITY: ValueScale = { low: 0, high: 1, signed: false, beyond: null };

/** A caption with its legend; both are drawn again for export where they stand. */
class Caption {
  readonly about = el("span", { class: "about-values" });
  private readonly numbers = [el("span"), el("span"), el("span")];
  private readonly ramp = el("span", { class: "ramp", "aria-hidden": "true" });
  readonly legend = el("span", { class: "legend" }, [this.numbers[0], this.ramp, this.numbers[2], this.numbers[1]]);
  private scale: ValueScale | null = null;

  show(about: string, scale: ValueScale, unit: string, dark: boolean): void {
    this.scale = scale;
    const beyond = scale.beyond === null ? "" : ` Colours stop at ${number(scale.high)}; the largest is ${number(scale.beyond)}.`;
    this.about.textContent = about + beyond;
    const colours = this.stops(9, dark);
    this.ramp.style.background = `linear-gradient(to right, ${colours.join(", ")})`;
    this.numbers[0].textContent = number(scale.low);
    this.numbers[2].textContent = number(scale.high);
    this.numbers[1].textContent = unit;
  }

  private stops(count: number, dark: boolean): string[] {
    const { low, high } = this.scale!;
    return Array.from({ length: count }, (_, i) => css(valueColour(low + ((high - low) * i) / (count - 1), this.scale!, dark)!));
  }

  picture(p: Picture, origin: DOMRect, dark: boolean): void {
    if (!this.scale) return;
    const colours = theme(dark);
    const box = this.ramp.getBoundingClientRect();
    const stops = this.stops(32, dark);
    stops.forEach((colour, i) =>
      p.rect(box.left - origin.left + (i * box.width) / 32, box.top - origin.top, box.width / 32 + 0.4, box.height, colour, 1));
    for (const element of [this.legend, this.about]) drawLaidText(p, element, origin, colours.soft);
  }
}

class TextView implements ViewPart {
  readonly element = el("section", { class: "text-view", "aria-label": "Text view" });
  private readonly tokens: TokenList;
  private readonly text: TextData | undefined;
  private readonly flow: TextFlow;
  private readonly trackCaption = new Caption();
  private readonly mapCaption = new Caption();
  private readonly lensCaption = new Caption();
  private readonly tip = el("div", { class: "tip", hidden: true });
  private readonly tracks = labelledSelect("Colour", "What the colours of the text show", (track) => this.context.store.set({ track }));
  private readonly maps = labelledSelect("Values", "What the table shows", (map) => this.context.store.set({ map }));
  private readonly wholeButton = button("Whole text", "Squeeze all tokens into the width, or make room for their names", () => {
    this.whole = !this.whole;
    this.showMap();
  }, "small");
  private readonly mapGrid: TokenGrid;
  private readonly lensGrid: TokenGrid;
  private readonly mapPart: HTMLElement;
  private readonly lensPart: HTMLElement;
  private readonly absent = el("p", { class: "absent", hidden: true });
  private values: Float32Array | null = null;
  private map: Float32Array | null = null;
  private lens: Lens | null = null;
  private whole = false;
  private asked = 0;

  constructor(private readonly context: Context, private readonly panel: number) {
    const given = context.source.header.panels[panel];
    this.text = given.text;
    this.tokens = Object.values(given.tokens)[0];
    const dark = () => context.dark();
    const choose = (token: number) => {
      const chosen = context.store.state.left[0] === token ? [] : [token];
      context.store.set({ left: chosen });
    };
    this.flow = new TextFlow(this.tokens, { dark, choose, look: (token) => this.lookAtToken(token) }, `pellucid-text-${panel}`);
    this.mapGrid = new TokenGrid({
      dark, choose, look: (place) => this.lookAtMap(place), scrolled: (left) => this.lensGrid.scrollTo(left),
    });
    this.lensGrid = new TokenGrid({
      dark, choose, look: (place, box) => this.lookAtLens(place, box), scrolled: (left) => this.mapGrid.scrollTo(left),
    });
    const tools = [this.maps.element, this.wholeButton, this.mapCaption.legend];
    this.mapPart = part("", tools, this.mapCaption.about, this.mapGrid.element);
    this.lensPart = part("Predictions", [this.lensCaption.legend], this.lensCaption.about, this.lensGrid.element);
    const head = el("div", { class: "controls" }, [this.tracks.element, this.trackCaption.legend]);
    fill(this.element, [this.absent, head, this.trackCaption.about, this.flow.element, this.mapPart, this.lensPart, this.tip]);
    head.hidden = this.trackCaption.about.hidden = !Object.keys(this.text?.tracks ?? {}).length;
    this.mapPart.hidden = !Object.keys(this.text?.maps ?? {}).length;
    this.lensPart.hidden = !this.text?.lens;
  }

  update(state: Readonly<State>, changed: Set<keyof State>): void {
    if (["mode", "track", "map"].some((key) => changed.has(key as keyof State))) void this.load();
    else if (changed.has("theme")) this.show();
    if (changed.has("left") || changed.has("mode")) {
      this.markAll(-1);
      const chosen = this.chosen(state);
      if (chosen >= 0) {
        this.flow.seek(chosen);
        this.mapGrid.seek(chosen);
        this.lensGrid.seek(chosen);
      }
    }
  }

  picture(p: Picture): { width: number; height: number } {
    const origin = this.element.getBoundingClientRect();
    const dark = this.context.dark();
    const { ink } = theme(dark);
    const at = (element: HTMLElement): Picture => {
      const box = element.getBoundingClientRect();
      return shifted(p, box.left - origin.left, box.top - origin.top);
    };
    if (this.values) {
      drawSelect(p, this.tracks.element, origin, ink);
      this.trackCaption.picture(p, origin, dark);
    }
    this.flow.picture(at(this.flow.element));
    drawLaidText(p, this.absent, origin, ink);
    const parts: [HTMLElement, Caption, TokenGrid][] = [
      [this.mapPart, this.mapCaption, this.mapGrid], [this.lensPart, this.lensCaption, this.lensGrid],
    ];
    for (const [element, caption, grid] of parts) {
      if (element.hidden) continue;
      const title = element.querySelector("h3");
      if (title) drawLaidText(p, title, origin, ink);
      if (grid === this.mapGrid) drawSelect(p, this.maps.element, origin, ink);
      caption.picture(p, origin, dark);
      grid.picture(at(grid.element));
    }
    return { width: origin.width, height: origin.height };
  }

  destroy(): void {
    this.asked++;
    this.mapGrid.destroy();
    this.lensGrid.destroy();
    this.element.remove();
  }

  private get trackName(): string {
    const names = Object.keys(this.text?.tracks ?? {});
    const { track } = this.context.store.state;
    return track !== null && names.includes(track) ? track : (names[0] ?? "");
  }

  private get mapName(): string {
    const names = Object.keys(this.text?.maps ?? {});
    const { map } = this.context.store.state;
    return map !== null && names.includes(map) ? map : (names[0] ?? "");
  }

  private chosen(state: Readonly<State>): number {
    const token = state.left[0];
    return token !== undefined && token < this.tokens.text.length ? token : -1;
  }

  private async load(): Promise<void> {
    const turn = ++this.asked;
    const { text, panel } = this;
    const { heads } = this.context;
    if (!text) {
      this.absent.textContent = "This panel has no values for its text.";
      this.absent.hidden = false;
      return;
    }
    try {
      const [values, map, lens] = await Promise.all([
        this.trackName ? readTrack(heads, panel, text, this.trackName, this.tokens.text.length) : null,
        this.mapName ? readMap(heads, panel, this.mapName) : null,
        text.lens ? (this.lens ?? Lens.read(heads, panel, text, this.tokens)) : null,
      ]);
      if (turn !== this.asked) return;
      [this.values, this.map, this.lens] = [values, map, lens];
      this.show();
      markPainted("text");
    } catch (error) {
      if (turn !== this.asked) return;
      this.absent.textContent = error instanceof Error ? error.message : String(error);
      this.absent.hidden = false;
    }
  }

  private show(): void {
    this.showTrack();
    this.showMap();
    this.showLens();
  }

  private showTrack(): void {
    const { values, text } = this;
    if (!values || !text) return;
    const dark = this.context.dark();
    const track = text.tracks[this.trackName];
    const scale = valueScale(values, track.signed);
    this.tracks.set(this.trackName, names(text.tracks));
    this.trackCaption.show(track.about, scale, track.unit, dark);
    this.flow.paint([...values].map((value) => valueColour(value, scale, dark)), (token) => this.describeToken(token));
  }

  private showMap(): void {
    const { map, text, tokens } = this;
    if (!map || !text) return;
    const dark = this.context.dark();
    const { heading, about, rows, signed, unit } = text.maps[this.mapName];
    retitle(this.mapPart, heading);
    const scale = mapScale(map, signed);
    const table = colourTable(signed, dark);
    this.maps.set(this.mapName, names(text.maps));
    this.mapCaption.show(about, scale, unit, dark);
    const count = tokens.text.length;
    this.mapGrid.show({
      label: sentenceCase(this.mapName), rows, tokens: tokens.text, rtl: tokens.rtl, rowHeight: rows.length > 24 ? 14 : 18,
      cell: (row, token) => {
        const entry = tablePlace(map[row * count + token], scale) * 4;
        return { colour: entry < 0 ? null : [table[entry], table[entry + 1], table[entry + 2]], text: "", framed: false };
      },
    }, this.whole);
    if (this.lens) this.mapGrid.scrollTo(this.lensGrid.element.scrollLeft);
    this.wholeButton.hidden = !this.whole && !this.mapGrid.scrolls;
    this.wholeButton.setAttribute("aria-pressed", String(this.whole));
  }

  private showLens(): void {
    const { lens, text, tokens } = this;
    if (!lens || !text?.lens) return;
    const dark = this.context.dark();
    this.lensCaption.show(`${text.lens.about} A frame marks predictions of the token that does follow.`, PROBABILITY, "probability", dark);
    this.lensGrid.show({
      label: "Predictions", rows: text.lens.rows, tokens: tokens.text, rtl: tokens.rtl, rowHeight: 22,
      cell: (row, token) => {
        const { word, probability } = lens.top(row, token);
        return { colour: heat(probability, dark), text: visible(word.trim() || word), framed: lens.comesTrue(word, token) };
      },
    });
  }

  private markAll(looked: number): void {
    const chosen = this.chosen(this.context.store.state);
    this.flow.mark(chosen, looked);
    this.mapGrid.mark(looked >= 0 ? looked : chosen);
    this.lensGrid.mark(looked >= 0 ? looked : chosen);
  }

  private token(token: number): string {
    return quoted(this.tokens.text[token], token);
  }

  private describeToken(token: number): string {
    const track = this.text?.tracks[this.trackName];
    if (!track || !this.values) return this.token(token);
    const value = this.values[token];
    const said = Number.isNaN(value) ? "no value" : `${number(value)}${track.unit ? ` ${track.unit}` : ""}`;
    return `${this.token(token)}: ${this.trackName.replaceAll("_", " ")} ${said}`;
  }

  private lookAtToken(token: number): void {
    this.markAll(token);
    this.context.announce(token < 0 ? "" : `${this.describeToken(token)}.`);
  }

  private lookAtMap(place: GridPlace | null): void {
    this.markAll(place?.token ?? -1);
    if (!place || !this.map || !this.text) {
      this.context.announce("");
      return;
    }
    const { rows, unit } = this.text.maps[this.mapName];
    if (place.row < 0) this.context.announce(`${this.describeToken(place.token)}.`);
    else {
      const value = this.map[place.row * this.tokens.text.length + place.token];
      const said = Number.isNaN(value) ? "no value" : `${number(value)}${unit ? ` ${unit}` : ""}`;
      this.context.announce(`${rows[place.row]}, ${this.token(place.token)}: ${this.mapName.replaceAll("_", " ")} ${said}.`);
    }
  }

  private lookAtLens(place: GridPlace | null, box: DOMRect | null): void {
    this.markAll(place?.token ?? -1);
    this.tip.hidden = !place || place.row < 0;
    const rows = this.text?.lens?.rows;
    if (!place || place.row < 0 || !this.lens || !rows || !box) {
      this.context.announce(place ? `${this.describeToken(place.token)}.` : "");
      return;
    }
    const found = this.lens.all(place.row, place.token);
    const written = found.map(({ word, probability }) => ({ word: visible(word), share: number(probability) }));
    const next = this.tokens.text[place.token + 1];
    const follows = next === undefined ? "" : ` What follows is “\u2068${visible(next)}\u2069”.`;
    const title = `${rows[place.row]}, after ${this.token(place.token)}`;
    const list = written.map(({ word, share }) => `“\u2068${word}\u2069” ${share}`).join(", ");
    this.context.announce(`${title}: ${list}.${follows}`);
    const isTrue = (rank: number) => this.lens?.comesTrue(found[rank].word, place.token) === true;
    fill(this.tip, [
      el("b", {}, title),
      el("dl", {}, written.flatMap(({ word, share }, rank) => [
        el("dt", { dir: "auto", class: isTrue(rank) ? "true" : null }, word), el("dd", {}, share),
      ])),
    ]);
    this.placeTip(box);
  }

  /** Beside a cell, inside the view. */
  private placeTip(box: DOMRect): void {
    const origin = this.element.getBoundingClientRect();
    const left = box.right + 8 + this.tip.offsetWidth > origin.right ? box.left - 8 - this.tip.offsetWidth : box.right + 8;
    // The status line covers the end of the window.
    const top = Math.min(box.top, window.innerHeight - this.tip.offsetHeight - 60);
    this.tip.style.left = `${Math.max(0, left - origin.left)}px`;
    this.tip.style.top = `${Math.max(0, top - origin.top)}px`;
  }
}

function part(title: string, tools: HTMLElement[], about: HTMLElement, body: HTMLElement): HTMLElement {
  return el("section", { class: "part", "aria-label": title }, [
    el("div", { class: "controls" }, [el("h3", {}, title), ...tools]), about, body,
  ]);
}

function retitle(made: HTMLElement, title: string): void {
  made.setAttribute("aria-label", title);
  const heading = made.querySelector("h3");
  if (heading) heading.textContent = title;
}

function names(given: Record<string, { about: string }>): { value: string; label: string; title: string }[] {
  return Object.entries(given).map(([value, { about }]) => ({ value, label: sentenceCase(value), title: about }));
}

export const makeTextView: MakeView = (context, panel) => new TextView(context, panel);
