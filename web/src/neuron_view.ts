/** One query of one head: how its neurons and those of every key make the attention weights. */

import { stepLayer } from "./controls";
import { WEIGHT, type Block, type State, type TokenList } from "./contract";
import { theme } from "./colour";
import { button, el, fill, labelledCheck, labelledSelect, markPainted } from "./dom";
import { drawHead, drawRows, headHeight, queryTop, type NeuronLook } from "./neuron_drawing";
import { visible } from "./head_lines";
import { drawLaidText } from "./laid_text";
import { columnAt, neuronLayout } from "./neuron_layout";
import {
  describeKey, describeNeuron, describeScene, makeScene, placesShown, queryPlace, scales, softmaxNote,
  type NeuronScene, type Row,
} from "./neuron_scene";
import type { Context, MakeView, Picture, ViewPart } from "./part";
import { CanvasPicture, fitted, sharpContext, shifted } from "./picture";

const TOKEN_SIZE = 13;

/** What decides the picture; other parts of the state do not concern this view. */
const FOLLOWED: (keyof State)[] = [
  "mode", "block", "layer", "head", "unit", "left", "right", "hideSpecial", "hideSinks", "from", "to", "theme",
];

class NeuronView implements ViewPart {
  readonly element = el("section", { class: "neurons", "aria-label": "Neuron view" });
  private readonly absent = el("div", { class: "absent" });
  private readonly note = el("p", { class: "remark" });
  private readonly headCanvas = el("canvas", { "aria-hidden": "true" });
  private readonly canvas = el("canvas", { class: "sheet", "aria-hidden": "true" });
  private readonly list = el("div", { class: "list" });
  private readonly scroller = el("div", { class: "keys", tabindex: 0, role: "listbox" });
  private readonly shown = el("div", { class: "shown" }, [this.headCanvas, this.scroller]);
  private readonly queries = labelledSelect("Query", "The token that looks; the keys ↑ and ↓ step through them", (value) =>
    this.choose(Number(value)));
  private readonly original = labelledCheck(
    "Neurons in the model's order",
    "Off: neurons that make the dot product with the chosen key are at the left, those that work against it at the right",
    (on) => {
      this.sorted = !on;
      void this.load();
    },
  );
  private readonly rows: HTMLElement[] = [];
  private readonly watcher = new ResizeObserver(() => this.draw());
  private scene: NeuronScene | null = null;
  private look: NeuronLook | null = null;
  private sorted = true;
  private asked = 0;
  private frame = 0;
  private hoverKey = -1;
  private hoverPlace = -1;
  /** The key that was last brought into sight. */
  private sought = -1;

  constructor(private readonly context: Context, private readonly panel: number) {
    const before = button("‹", "Token before (key ↑)", () => this.stepQuery(-1), "step");
    const after = button("›", "Token after (key ↓)", () => this.stepQuery(1), "step");
    before.setAttribute("aria-label", "Token before");
    after.setAttribute("aria-label", "Token after");
    const choices = el("div", { class: "controls", role: "group", "aria-label": "Query and order of neurons" }, [
      el("div", { class: "together" }, [before, this.queries.element, after]),
      this.original.element,
      el("p", { class: "hint" }, "Click a key to sort the neurons by it; ↑ and ↓ change the query, ← and → the layer."),
    ]);
    this.shown.prepend(choices);
    this.scroller.append(el("div", { class: "track" }, [this.canvas, this.list]));
    this.element.append(this.absent, this.shown, this.note);
    this.scroller.addEventListener("scroll", () => {
      this.draw();
      markPainted("scroll");
    });
    this.shown.addEventListener("pointermove", (event) => this.point(event));
    this.shown.addEventListener("pointerleave", () => this.hover(-1, -1));
    this.scroller.addEventListener("click", () => {
      if (this.hoverKey >= 0) this.context.store.set({ ...this.inTokens(), right: [this.hoverKey] });
    });
    this.scroller.addEventListener("dblclick", () => {
      const { block } = this;
      if (this.hoverKey >= 0 && block && block.queries === block.keys) this.choose(this.hoverKey);
    });
    this.element.addEventListener("keydown", (event) => this.press(event));
    this.watcher.observe(this.element);
  }

  update(_state: Readonly<State>, changed: Set<keyof State>): void {
    if (!FOLLOWED.some((key) => changed.has(key))) {
      this.draw();
      return;
    }
    void this.load().then(() => {
      if (changed.has("layer")) markPainted("layer");
    });
  }

  picture(p: Picture): { width: number; height: number } {
    const { scene, look } = this;
    const origin = this.element.getBoundingClientRect();
    if (!scene || !look) {
      drawLaidText(p, this.absent, origin, theme(this.context.dark()).ink);
      return { width: origin.width, height: origin.height };
    }
    const { layout } = look;
    const top = headHeight(layout);
    const height = this.scroller.clientHeight;
    const { first, last, y } = this.window();
    drawRows(shifted(p, 0, top), scene, look, first, last, y);
    const { rtl } = this.keys!;
    const { ink, soft, paper } = theme(look.dark);
    scene.rows.slice(first, last + 1).forEach((key, row) => {
      const style = { size: TOKEN_SIZE, weight: key === scene.chosen ? 600 : 400 };
      const text = fitted(visible(this.keys!.text[key]), layout.tokenWidth - 4, style);
      const middle = top + y + (row + 0.5) * layout.rowHeight;
      const anchor = rtl ? "end" : "start";
      p.text(rtl ? layout.tokenWidth : 4, middle + 4.5, text, { ...style, colour: ink, rtl, anchor });
    });
    // Rows that the window cuts are cut here too: the head and the end of the picture lie over them.
    p.rect(0, 0, layout.width, top, paper, 1);
    drawHead(p, scene, look);
    p.rect(0, top + height, layout.width, layout.rowHeight, paper, 1);
    // The choices above the head are not part of the picture: what stands below moves up by as much.
    const above = this.headCanvas.getBoundingClientRect().top - origin.top;
    drawLaidText(shifted(p, 0, -above), this.note, origin, soft);
    return { width: layout.width, height: origin.height - above };
  }

  destroy(): void {
    this.asked++;
    cancelAnimationFrame(this.frame);
    this.watcher.disconnect();
    this.element.remove();
  }

  private get block(): Block | undefined {
    const { store, source } = this.context;
    return source.header.panels[this.panel].blocks.find((block) => block.name === store.state.block);
  }

  private get keys(): TokenList | undefined {
    const { block } = this;
    return block && this.context.source.header.panels[this.panel].tokens[block.keys];
  }

  /** Why there is nothing to draw, and a way to what there is. */
  private missing(): (HTMLElement | string)[] | null {
    const { block } = this;
    const { store } = this.context;
    const { layer } = store.state;
    const more = (layers: string) => el("code", {}, `neuron_view(model, text, layers=[${layers}])`);
    if (!block) return [`This panel has no attention called “${store.state.block}”.`];
    if (!block.vectors?.layers.length) return ["Queries and keys were not kept here; ", more("0"), " keeps those of layer 0."];
    if (block.vectors.layers.includes(layer)) return null;
    const there = block.vectors.layers;
    const which = there.length === 1 ? `layer ${there[0]}` : `layers ${there.join(", ")}`;
    const near = there.reduce((best, other) => (Math.abs(other - layer) < Math.abs(best - layer) ? other : best));
    const wanted = [...there, layer].sort((a, b) => a - b).join(", ");
    return [
      `Queries and keys are here for ${which}, not for layer ${layer}; `, more(wanted), " brings it too. ",
      button(`Show layer ${near}`, `Go to layer ${near}`, () => store.set({ layer: near })),
    ];
  }

  private async load(): Promise<void> {
    const turn = ++this.asked;
    const missing = this.missing();
    const { block } = this;
    this.shown.hidden = this.note.hidden = missing !== null;
    fill(this.absent, missing ?? []);
    this.absent.hidden = missing === null;
    if (missing !== null || !block) {
      this.scene = this.look = null;
      return;
    }
    const { heads, source, store } = this.context;
    const { state } = store;
    const panel = source.header.panels[this.panel];
    const query = queryPlace(state, panel.tokens[block.queries]);
    const head = Math.min(state.head, block.heads[block.layers.indexOf(state.layer)] - 1);
    const weighting = Object.keys(block.weightings)[0];
    try {
      const [vectors, row] = await Promise.all([
        heads.vectors(this.panel, block.name, state.layer),
        this.weights(block.name, weighting, state.layer, head, query),
      ]);
      if (turn !== this.asked) return;
      this.scene = makeScene(state, panel, block, query, head, vectors, row, this.sorted);
      this.show(state, panel.tokens[block.queries]);
    } catch (error) {
      if (turn !== this.asked) return;
      this.scene = this.look = null;
      this.shown.hidden = true;
      fill(this.absent, error instanceof Error ? error.message : String(error));
      this.absent.hidden = false;
    }
  }

  private async weights(block: string, weighting: string, layer: number, head: number, query: number): Promise<Row> {
    const { heads, source } = this.context;
    const matrix = await heads.matrix(this.panel, block, weighting, layer, head);
    await matrix.ensure([query]);
    const exact = source.live && source.exact ? await source.exact(this.panel, block, weighting, layer, head, query) : null;
    return { codes: matrix.row(query), dropped: WEIGHT[matrix.dropped(query)], exact };
  }

  /** Shows a new scene: choices, note, the chosen key in sight. */
  private show(state: Readonly<State>, queries: TokenList): void {
    const scene = this.scene!;
    const places = new Set([...placesShown(state, queries, state.from), scene.query]);
    const choices = [...places].sort((a, b) => a - b)
      .map((place) => ({ value: String(place), label: `${place}  ${visible(queries.text[place])}` }));
    this.queries.set(String(scene.query), choices);
    this.original.set(!this.sorted);
    const words = state.unit === "words" ? "Neurons belong to tokens, so tokens are shown here instead of words." : null;
    const remarks = [softmaxNote(scene, this.keys!), words].filter((text) => text !== null);
    this.note.textContent = remarks.join(" ");
    this.note.hidden = !remarks.length;
    this.scroller.setAttribute("aria-label", `Keys of query ${scene.queryToken}, layer ${scene.layer}, head ${scene.head}`);
    this.look = null;
    this.paint();
    if (scene.chosen !== this.sought) this.seek(scene.chosen);
    this.context.announce(describeScene(scene, this.keys!));
    markPainted("neurons");
  }

  /** Scrolls a key's row into sight. */
  private seek(key: number): void {
    this.sought = key;
    const { scene, look, scroller } = this;
    const row = scene?.rows.indexOf(key) ?? -1;
    if (!look || row < 0) return;
    const top = row * look.layout.rowHeight;
    const outside = top < scroller.scrollTop || top + look.layout.rowHeight > scroller.scrollTop + scroller.clientHeight;
    if (outside) scroller.scrollTop = top - scroller.clientHeight / 2;
  }

  /** Rows in sight and where the first of them begins. */
  private window(): { first: number; last: number; y: number } {
    const height = this.look!.layout.rowHeight;
    const first = Math.floor(this.scroller.scrollTop / height);
    const last = Math.ceil((this.scroller.scrollTop + this.scroller.clientHeight) / height) - 1;
    return { first, last: Math.min(last, this.scene!.rows.length - 1), y: first * height - this.scroller.scrollTop };
  }

  private draw(): void {
    if (!this.frame) this.frame = requestAnimationFrame(() => this.paint());
  }

  private paint(): void {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    const { scene } = this;
    if (!scene || this.shown.hidden) return;
    const width = this.scroller.clientWidth || this.element.clientWidth;
    if (!width) return;
    const dark = this.context.dark();
    const layout = neuronLayout(width, scene.neurons);
    this.look = { layout, scales: this.look?.scales ?? scales(scene), key: this.hoverKey, place: this.hoverPlace, dark };
    const track = this.scroller.firstElementChild as HTMLElement;
    track.style.height = `${scene.rows.length * layout.rowHeight}px`;
    const head = sharpContext(this.headCanvas, width, headHeight(layout));
    if (head) drawHead(new CanvasPicture(head), scene, this.look);
    const { first, last, y } = this.window();
    const body = sharpContext(this.canvas, width, this.scroller.clientHeight);
    if (body) drawRows(new CanvasPicture(body), scene, this.look, first, last, y);
    this.placeRows(first, last);
  }

  /** The tokens in sight as elements, which screen readers find too. */
  private placeRows(first: number, last: number): void {
    const scene = this.scene!;
    const { layout } = this.look!;
    const keys = this.keys!;
    while (this.rows.length <= last - first) {
      const made = el("div", { class: "key", role: "option" }, el("span", {}));
      this.rows.push(made);
      this.list.append(made);
    }
    this.scroller.removeAttribute("aria-activedescendant");
    this.rows.forEach((element, i) => {
      element.hidden = first + i > last;
      if (element.hidden) return;
      const key = scene.rows[first + i];
      const text = visible(keys.text[key]);
      const label = element.firstElementChild as HTMLElement;
      label.textContent = text;
      label.dir = keys.rtl ? "rtl" : "auto";
      label.style.width = `${layout.tokenWidth - 4}px`;
      element.id = `${this.panel}-key-${key}`;
      element.style.top = `${(first + i) * layout.rowHeight}px`;
      element.style.height = element.style.lineHeight = `${layout.rowHeight}px`;
      element.setAttribute("aria-selected", String(key === scene.chosen));
      element.setAttribute("aria-label", describeKey(scene, key, keys, false));
      if (key === scene.chosen) this.scroller.setAttribute("aria-activedescendant", element.id);
    });
  }

  private point(event: PointerEvent): void {
    const { scene, look } = this;
    if (!scene || !look) return;
    const { layout } = look;
    const frame = this.scroller.getBoundingClientRect();
    const x = event.clientX - frame.left;
    const y = event.clientY - frame.top + this.scroller.scrollTop;
    const inside = event.clientY >= frame.top && event.clientY < frame.bottom;
    const row = inside ? Math.floor(y / layout.rowHeight) : -1;
    const thick = layout.lines * layout.lineHeight;
    const down = inside
      ? y - row * layout.rowHeight - Math.floor((layout.rowHeight - thick) / 2)
      : event.clientY - this.headCanvas.getBoundingClientRect().top - queryTop(layout);
    const onStrip = inside ? row < scene.rows.length : down >= 0 && down < thick && x < layout.productsX;
    const under = (start: number): number => columnAt(layout, scene.neurons, x - start, down);
    const place = onStrip ? Math.max(under(layout.keysX), under(layout.productsX)) : -1;
    this.hover(scene.rows[row] ?? -1, place);
  }

  private hover(key: number, place: number): void {
    const { scene, keys } = this;
    if (!scene || !keys || (key === this.hoverKey && place === this.hoverPlace)) return;
    this.hoverKey = key;
    this.hoverPlace = place;
    this.draw();
    if (place >= 0) this.context.announce(describeNeuron(scene, scene.order[place], key, keys));
    else if (key >= 0) this.context.announce(describeKey(scene, key, keys, this.context.source.live));
    else this.context.announce(describeScene(scene, keys));
    markPainted("hover");
  }

  /** Chosen places count tokens here: where the state counts words, it changes to tokens with the choice. */
  private inTokens(): Partial<State> {
    const { scene } = this;
    if (this.context.store.state.unit === "tokens" || !scene) return {};
    return { unit: "tokens", left: [scene.query], right: [] };
  }

  private choose(query: number): void {
    this.context.store.set({ ...this.inTokens(), left: [query] });
  }

  private stepQuery(step: number): void {
    const { scene, block } = this;
    const { store, source } = this.context;
    if (!scene || !block) return;
    const tokens = source.header.panels[this.panel].tokens[block.queries];
    const places = placesShown(store.state, tokens, store.state.from);
    const next = step < 0 ? places.findLast((place) => place < scene.query) : places.find((place) => place > scene.query);
    if (next !== undefined) this.choose(next);
  }

  private stepKey(step: number): void {
    const { scene } = this;
    const next = scene?.rows[scene.rows.indexOf(scene.chosen) + step];
    if (next !== undefined) this.context.store.set({ ...this.inTokens(), right: [next] });
  }

  private press(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target instanceof HTMLSelectElement || event.target instanceof HTMLInputElement) return;
    if (event.key === "ArrowUp" || event.key === "ArrowDown") {
      const step = event.key === "ArrowUp" ? -1 : 1;
      if (event.shiftKey) this.stepKey(step);
      else this.stepQuery(step);
    } else if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
      stepLayer(this.context, event.key === "ArrowLeft" ? -1 : 1);
    } else if (event.key === "Escape") {
      this.context.store.set({ right: [] });
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }
}

export const makeNeuronView: MakeView = (context, panel) => new NeuronView(context, panel);
