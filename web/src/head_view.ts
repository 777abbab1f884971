/** Which token looks at which: lines between two columns of tokens, of which only those in view are there. */

import type { State, TokenList } from "./contract";
import { theme } from "./colour";
import { CurvePicture } from "./curve_raster";
import { afterPaint, el, markPainted } from "./dom";
import {
  barScale,
  drawLegend,
  geometry,
  HeadDrawing,
  inView,
  ROW,
  visible,
  type BarScale,
  type Geometry,
  type Look,
} from "./head_lines";
import { describe, exactSums } from "./head_status";
import { HeadScene } from "./head_scene";
import type { Context, MakeView, Picture, ViewPart } from "./part";
import { sharpContext, shifted } from "./picture";
import { longestText, TokenColumn, type Side } from "./token_column";

export const makeHeadView: MakeView = (context, panel) => new HeadView(context, panel);

/** Panels of one comparison scroll together and point at the same token. */
const siblings = new WeakMap<Context, Set<HeadView>>();

/** Height of the column names in a saved picture. */
const NAMES = 26;
/** Rows that are loaded beyond those in view, so that scrolling finds them there. */
const AHEAD = 256;

class HeadView implements ViewPart {
  readonly element: HTMLElement;
  private readonly canvas = el("canvas", { "aria-hidden": true });
  private readonly columns: Record<Side, TokenColumn>;
  private readonly tall: HTMLElement;
  private readonly window: HTMLElement;
  private readonly names: Record<Side, HTMLElement>;
  private readonly absent = el("p", { class: "absent", hidden: true });
  private readonly frame: HTMLElement;
  private readonly observer: ResizeObserver;
  private scene: HeadScene | null = null;
  private at: Geometry | null = null;
  /** The token under the pointer or the keyboard's cursor, as a place of shown units. */
  private hovered: { side: Side; place: number } | null = null;
  /** Pins of a panel whose tokens differ from the first panel's: the shared state cannot speak of them. */
  private own: Pick<State, "left" | "right"> = { left: [], right: [] };
  private speaks: boolean;
  private asked = 0;
  private waiting = new Set<string>(["painted"]);
  private scheduled = 0;
  private longest = 0;
  /** Width that everything was last laid out for. */
  private measured = 0;
  private aheadTimer: ReturnType<typeof setTimeout> | undefined;
  private exactTimer: ReturnType<typeof setTimeout> | undefined;

  constructor(
    private readonly context: Context,
    private readonly panel: number,
  ) {
    this.speaks = panel === 0;
    const column = (side: Side) =>
      new TokenColumn(side, {
        hover: (place) => this.hover(place === null ? null : { side, place }),
        pin: (place) => this.pin(side, place),
        show: (place) => this.scrollTo(place),
      });
    this.columns = { left: column("left"), right: column("right") };
    this.tall = el("div", { class: "lines-tall" }, [
      this.canvas,
      this.columns.left.element,
      this.columns.right.element,
    ]);
    this.window = el("div", { class: "lines-window" }, this.tall);
    this.names = {
      left: el("span", { class: "end", title: "Queries: the tokens whose attention is shown" }, "Looks from"),
      right: el("span", { title: "Keys: the tokens that attention goes to" }, "Looks at"),
    };
    this.frame = el("div", {}, [
      el("div", { class: "column-names" }, [this.names.left, this.names.right]),
      this.window,
    ]);
    this.element = el("div", { class: "head-view" }, [this.frame, this.absent]);
    this.window.addEventListener("scroll", () => this.scrolled(), { passive: true });
    siblings.set(context, (siblings.get(context) ?? new Set()).add(this));
    this.element.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && (this.own.left.length || this.own.right.length)) {
        this.own = { left: [], right: [] };
        this.schedule();
      }
    });
    this.observer = new ResizeObserver(() => {
      if (this.element.clientWidth !== this.measured) this.measure();
    });
    this.observer.observe(this.element);
  }

  update(state: Readonly<State>, changed: Set<keyof State>): void {
    const light: (keyof State)[] = ["left", "right", "head", "mass"];
    const lightly = [...changed].every((key) => light.includes(key));
    if (changed.has("layer") && !changed.has("mode")) this.waiting.add("layer");
    else if (changed.has("mode") || changed.has("heads")) this.waiting.add("head");
    if (changed.has("unit") || changed.has("block")) this.own = { left: [], right: [] };
    if (changed.has("mode")) this.hovered = null; // a token that was pointed at when the view went away never said goodbye
    if (lightly && this.scene) {
      if (changed.has("mass")) this.scene.cut(state);
      this.schedule();
      if (state.right.length) this.loadAll();
    } else void this.load(state);
  }

  picture(p: Picture): { width: number; height: number } {
    if (!this.scene || !this.at) return { width: 0, height: 0 };
    const { soft } = theme(this.context.dark());
    const top = drawLegend(p, this.scene, this.at.width, this.context.dark()) + NAMES;
    p.text(this.at.lines - 8, top - 11, "Looks from", { size: 13, colour: soft, anchor: "end" });
    p.text(this.at.keys + 8, top - 11, "Looks at", { size: 13, colour: soft });
    const drawing = new HeadDrawing(
      shifted(p, 0, top),
      this.scene,
      this.at,
      this.look(),
      this.context.dark(),
      this.scale(this.look()),
    );
    drawing.draw();
    const { left, right } = this.pinned();
    drawing.tokens(
      { queries: left, keys: right },
      { queries: this.tokens("left").rtl, keys: this.tokens("right").rtl },
    );
    return { width: this.at.width, height: this.at.height + top };
  }

  destroy(): void {
    siblings.get(this.context)?.delete(this);
    this.observer.disconnect();
    cancelAnimationFrame(this.scheduled);
    clearTimeout(this.exactTimer);
    clearTimeout(this.aheadTimer);
  }

  private async load(state: Readonly<State>): Promise<void> {
    const asked = ++this.asked;
    try {
      const scene = await HeadScene.make(this.context, this.panel, state);
      const [first, end] = inView(this.window.scrollTop, this.window.clientHeight || 800, scene.from.length);
      await scene.ensure(span(first, end));
      // What came before stays on screen until the new rows are there.
      if (asked !== this.asked) return;
      scene.cut(this.context.store.state);
      const unitsChanged = this.scene?.from.length !== scene.from.length || this.scene.to.length !== scene.to.length;
      this.scene = scene;
      if (unitsChanged) this.hovered = null;
      this.absent.hidden = true;
      this.frame.hidden = false;
      this.longest = longestText([...scene.queries, ...scene.keys]);
      this.measure();
      if (this.pinned().right.length) this.loadAll();
    } catch (error) {
      if (asked !== this.asked) return;
      this.scene = null;
      this.frame.hidden = true;
      this.absent.hidden = false;
      this.absent.textContent = error instanceof Error ? error.message : String(error);
    }
  }

  /** Lays everything out for the element's width and draws. */
  private measure(): void {
    const { scene } = this;
    if (!scene || !this.element.clientWidth) return;
    this.measured = this.element.clientWidth;
    const rows = Math.max(scene.from.length, scene.to.length);
    const most = Math.min(760, Math.max(264, this.room()));
    // Whole rows, so that the window does not cut the last one.
    const height = Math.min(rows * ROW, Math.floor(most / ROW) * ROW);
    this.window.style.height = `${height + 2}px`;
    this.tall.style.height = `${rows * ROW}px`;
    this.at = geometry(this.window.clientWidth, height, this.longest);
    const { queries, keys, column } = this.at;
    this.columns.left.place(queries, column, this.tokens("left").rtl);
    this.columns.right.place(keys, column, this.tokens("right").rtl);
    this.names.left.style.width = `${queries + column}px`;
    this.names.right.style.left = `${keys}px`;
    this.schedule();
  }

  /** Height for the tokens: down to the status line where they start high up on the page, else most of a screen. */
  private room(): number {
    const top = this.window.getBoundingClientRect().top + window.scrollY;
    // The status line takes up to three lines in a narrow window.
    const below = window.innerHeight - top - (this.element.clientWidth < 600 ? 100 : 70);
    return below >= 0.4 * window.innerHeight ? below : 0.6 * window.innerHeight;
  }

  /** Draws before the next frame; marks are set for whoever measures. */
  private schedule(mark?: string): void {
    if (mark) this.waiting.add(mark);
    if (this.scheduled) return;
    this.scheduled = requestAnimationFrame(() => {
      this.scheduled = 0;
      this.render();
    });
  }

  private render(): void {
    const { scene, at } = this;
    if (!scene || !at || !this.element.isConnected) return;
    const drawing = sharpContext(this.canvas, at.width, at.height);
    if (!drawing) return;
    const look = this.look();
    const dark = this.context.dark();
    const surface = new CurvePicture(drawing, at.lines, at.keys, at.height, theme(dark).paper);
    const faint = new HeadDrawing(surface, scene, at, look, dark, this.scale(look)).draw();
    surface.flush();
    this.showTokens(scene, look);
    const state = this.context.store.state;
    if (this.speaks) this.context.announce(this.named(describe(scene, look, at.height, state, faint)));
    this.askExact(scene, look);
    const [first, end] = inView(look.scroll, at.height, scene.from.length);
    const wanted = [...span(first, end), ...look.queries];
    if (scene.series.some((_, series) => wanted.some((place) => scene.row(series, place) === null))) {
      void scene.ensure(wanted).then(
        () => this.scene === scene && this.schedule(),
        (error: unknown) => this.context.announce(String(error)),
      );
      return; // marks wait for the full picture
    }
    for (const mark of this.waiting) markPainted(mark, true);
    this.waiting.clear();
    clearTimeout(this.aheadTimer);
    this.aheadTimer = setTimeout(
      () => void scene.ensure(span(Math.max(0, first - AHEAD), Math.min(end + AHEAD, scene.from.length))),
      60,
    );
  }

  /** With the panel's name before it, where there are several. */
  private named(sentence: string): string {
    const { panels } = this.context.source.header;
    return panels.length > 1 ? `${panels[this.panel].name}: ${sentence}` : sentence;
  }

  private showTokens(scene: HeadScene, look: Look): void {
    const at = this.at as Geometry;
    const { left, right } = this.pinned();
    const sides = [
      { side: "left", units: scene.queries, shown: scene.from, pinned: left, looked: look.queries },
      { side: "right", units: scene.keys, shown: scene.to, pinned: right, looked: look.keys },
    ] as const;
    for (const { side, units, shown, pinned, looked } of sides) {
      const [first, end] = inView(look.scroll, at.height, shown.length);
      this.columns[side].show(first, end, shown.length, (place) => {
        const unit = units[shown[place]];
        return {
          text: visible(unit.text),
          special: unit.special,
          pinned: pinned.includes(place),
          looked: looked.includes(place),
        };
      });
    }
  }

  private look(): Look {
    const { hovered, scene } = this;
    const scroll = this.window.scrollTop;
    if (!scene) return { scroll, queries: [], keys: [] };
    if (hovered)
      return {
        scroll,
        queries: hovered.side === "left" ? [hovered.place] : [],
        keys: hovered.side === "right" ? [hovered.place] : [],
      };
    const { left, right } = this.pinned();
    return { scroll, queries: left, keys: right };
  }

  /** Pins as places of shown units; pins on hidden units rest. */
  private pinned(): Pick<State, "left" | "right"> {
    const { scene } = this;
    if (!scene) return { left: [], right: [] };
    const pins = this.shared() ? this.context.store.state : this.own;
    const places = (chosen: number[], shown: Int32Array) =>
      chosen.map((place) => shown.indexOf(place)).filter((place) => place >= 0);
    return { left: places(pins.left, scene.from), right: places(pins.right, scene.to) };
  }

  private pin(side: Side, place: number): void {
    if (!this.scene) return;
    const unit = (side === "left" ? this.scene.from : this.scene.to)[place];
    const before = (this.shared() ? this.context.store.state : this.own)[side];
    const after = before.includes(unit) ? before.filter((other) => other !== unit) : [...before, unit];
    if (this.shared()) this.context.store.set({ [side]: after });
    else {
      this.own = { ...this.own, [side]: after };
      this.schedule();
    }
    // Several pins are meant to be seen together, so the pointer that still rests here must not hide the others.
    this.hovered = null;
    if (side === "right") this.loadAll();
  }

  private scrolled(): void {
    this.schedule("scroll");
    for (const other of this.alike()) other.window.scrollTop = this.window.scrollTop;
  }

  /** The other panels whose tokens are the same. */
  private alike(): HeadView[] {
    if (!this.shared()) return [];
    return [...(siblings.get(this.context) ?? [])].filter((other) => other !== this && other.scene && other.shared());
  }

  /** Bars of panels that show the same tokens can be compared by eye. */
  private scale(look: Look): BarScale {
    const scales = [this, ...this.alike()].map((view) => barScale(view.scene as HeadScene, look));
    return {
      keys: Math.max(...scales.map((scale) => scale.keys)),
      queries: Math.max(...scales.map((scale) => scale.queries)),
    };
  }

  private hover(hovered: { side: Side; place: number } | null): void {
    this.point(hovered);
    for (const other of this.alike()) other.point(hovered, false);
  }

  /** Looks at a token; `own` where the pointer is in this panel, so that it speaks in the status line. */
  private point(hovered: { side: Side; place: number } | null, own = true): void {
    this.speaks = hovered ? own : this.panel === 0;
    if (hovered?.side === this.hovered?.side && hovered?.place === this.hovered?.place) return;
    this.hovered = hovered;
    this.schedule("hover");
    if (hovered?.side === "right") this.loadAll();
  }

  /** What looks at a key is known only when all rows are there; what is in view is painted before they are asked for. */
  private loadAll(): void {
    const { scene } = this;
    if (!scene || scene.complete()) return;
    afterPaint(() => {
      if (this.scene !== scene) return;
      void scene.ensureAll().then(
        () => this.scene === scene && this.schedule(),
        (error: unknown) => this.context.announce(String(error)),
      );
    });
  }

  private scrollTo(place: number): void {
    const y = place * ROW;
    const { scrollTop, clientHeight } = this.window;
    if (y < scrollTop) this.window.scrollTop = y;
    else if (y + ROW > scrollTop + clientHeight) this.window.scrollTop = y + ROW - clientHeight;
  }

  private tokens(side: Side): TokenList {
    const { tokens } = this.context.source.header.panels[this.panel];
    const block = (this.scene as HeadScene).block;
    return tokens[side === "left" ? block.queries : block.keys];
  }

  /** Whether this panel's places mean the same as the first panel's. */
  private shared(): boolean {
    if (this.panel === 0 || !this.scene) return true;
    const first = this.context.source.header.panels[0];
    const block = first.blocks.find((candidate) => candidate.name === this.scene?.block.name);
    if (!block) return true;
    const same = (a: TokenList, b: TokenList) =>
      a.text.length === b.text.length && a.text.every((text, i) => text === b.text[i]);
    return (
      same(first.tokens[block.queries], this.tokens("left")) && same(first.tokens[block.keys], this.tokens("right"))
    );
  }

  /** Where a model stands behind the view, its exact weights follow once the pointer rests. */
  private askExact(scene: HeadScene, look: Look): void {
    clearTimeout(this.exactTimer);
    const state = this.context.store.state;
    if (!this.context.source.live || look.queries.length !== 1 || state.unit !== "tokens" || state.average !== "none")
      return;
    this.exactTimer = setTimeout(() => {
      const asked = this.asked;
      void exactSums(this.context, this.panel, scene, state, look.queries[0]).then(
        (exact) => {
          const now = this.look();
          if (exact && asked === this.asked && now.queries[0] === look.queries[0] && this.at) {
            this.context.announce(this.named(describe(scene, now, this.at.height, state, 0, exact)));
          }
        },
        () => undefined, // the stored weights stay in the status line
      );
    }, 200);
  }
}

function span(first: number, end: number): number[] {
  return Array.from({ length: end - first }, (_, i) => first + i);
}
