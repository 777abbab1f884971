/** The text as it reads, every token on the colour of its value. */

import { css, theme, type Rgb } from "./colour";
import type { TokenList } from "./contract";
import { el, markPainted } from "./dom";
import { visible } from "./head_lines";
import type { Picture } from "./part";
import { fitted } from "./picture";
import { inkOn } from "./value_colours";

export interface FlowEvents {
  dark(): boolean;
  /** The token under the pointer or the keyboard, −1 where it left. */
  look(token: number): void;
  choose(token: number): void;
}

export class TextFlow {
  readonly element: HTMLElement;
  private readonly spans: HTMLElement[];
  private colours: (Rgb | null)[] = [];
  private active = -1;
  private marked = -1;
  private looked = -1;

  constructor(
    private readonly tokens: TokenList,
    private readonly events: FlowEvents,
    id: string,
  ) {
    const special = new Set(tokens.special);
    this.spans = tokens.text.map((text, place) =>
      el("span", { class: special.has(place) ? "token special" : "token", id: `${id}-${place}`, role: "option" }, visible(text)));
    const pieces = this.spans.flatMap((span, place) => {
      const before = place > 0 && tokens.space[place] === "1" ? [" "] : [];
      const after = tokens.text[place].includes("\n") ? [el("br")] : [];
      return [...before, span, ...after];
    });
    this.element = el("div", {
      class: "flow", tabindex: 0, role: "listbox", dir: tokens.rtl ? "rtl" : "auto",
      "aria-label": "The text: arrow keys move from token to token",
    }, pieces);
    this.element.addEventListener("pointerover", (event) => this.look(this.under(event)));
    this.element.addEventListener("pointerleave", () => this.look(-1));
    this.element.addEventListener("click", (event) => {
      const token = this.under(event);
      if (token >= 0) events.choose(token);
    });
    this.element.addEventListener("keydown", (event) => this.press(event));
    this.element.addEventListener("blur", () => this.look(-1));
  }

  /** Colours by place; `described` is what a screen reader says of a token. */
  paint(colours: (Rgb | null)[], described: (token: number) => string): void {
    this.colours = colours;
    this.spans.forEach((span, place) => {
      const colour = colours[place];
      span.style.backgroundColor = colour ? css(colour) : "";
      span.style.color = colour ? inkOn(colour) : "";
      span.setAttribute("aria-label", described(place));
    });
  }

  /** Marks the chosen token and the one that is looked at elsewhere. */
  mark(chosen: number, looked: number): void {
    if (chosen !== this.marked) {
      this.spans[this.marked]?.classList.remove("pinned");
      this.spans[chosen]?.classList.add("pinned");
      this.marked = chosen;
    }
    if (looked !== this.looked) {
      this.spans[this.looked]?.classList.remove("looked");
      this.spans[looked]?.classList.add("looked");
      this.looked = looked;
    }
  }

  /** Brings a token into sight, moving nothing but this box. */
  seek(token: number): void {
    const span = this.spans[token];
    if (!span) return;
    const [box, own] = [this.element.getBoundingClientRect(), span.getBoundingClientRect()];
    if (own.top < box.top || own.bottom > box.bottom) this.element.scrollTop += own.top - box.top - box.height / 2;
  }

  /** Draws the tokens in sight, relative to this box. */
  picture(p: Picture): { width: number; height: number } {
    const box = this.element.getBoundingClientRect();
    const { ink, soft } = theme(this.events.dark());
    const plain = Number.parseFloat(getComputedStyle(this.element).fontSize);
    this.spans.forEach((span, place) => {
      const rect = span.getClientRects()[0];
      if (!rect || rect.top < box.top - 1 || rect.bottom > box.bottom + 1) return;
      const [x, y] = [rect.left - box.left, rect.top - box.top];
      const colour = this.colours[place];
      if (colour) p.rect(x, y, rect.width, rect.height, css(colour), 1);
      if (place === this.marked || place === this.looked) {
        for (const edge of [y, y + rect.height]) p.line(x, edge, x + rect.width, edge, ink, 1, 1.5);
      }
      const special = span.classList.contains("special");
      const size = special ? Number.parseFloat(getComputedStyle(span).fontSize) : plain;
      p.text(x + rect.width / 2, y + rect.height * 0.76, fitted(visible(this.tokens.text[place]), rect.width + 2, { size }), {
        size, colour: colour ? inkOn(colour) : special ? soft : ink, anchor: "middle", rtl: this.tokens.rtl,
      });
    });
    return { width: box.width, height: box.height };
  }

  private under(event: Event): number {
    return event.target instanceof HTMLElement ? this.spans.indexOf(event.target) : -1;
  }

  private look(token: number): void {
    if (this.active === token) return;
    this.active = token;
    if (token >= 0) this.element.setAttribute("aria-activedescendant", this.spans[token].id);
    this.events.look(token);
    markPainted("hover");
  }

  private press(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const onward = this.tokens.rtl ? -1 : 1;
    const last = this.spans.length - 1;
    const from = this.active >= 0 ? this.active : this.marked;
    const goals: Record<string, number> = {
      ArrowLeft: from - onward, ArrowRight: from + onward, ArrowUp: this.lineAway(from, -1), ArrowDown: this.lineAway(from, 1),
      Home: 0, End: last,
    };
    if (event.key === "Enter" || event.key === " ") {
      if (from >= 0) this.events.choose(from);
    } else if (event.key in goals) {
      const next = from < 0 ? 0 : Math.max(0, Math.min(last, goals[event.key]));
      this.seek(next);
      this.look(next);
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** The token nearest above or below. */
  private lineAway(from: number, step: -1 | 1): number {
    const own = this.spans[from]?.getBoundingClientRect();
    if (!own) return from;
    let best = from;
    let nearest = Infinity;
    for (let place = from + step; place >= 0 && place < this.spans.length; place += step) {
      const rect = this.spans[place].getBoundingClientRect();
      const lines = Math.round(Math.abs(rect.top - own.top) / own.height);
      if (lines > 1 && best !== from && rect.top !== this.spans[best].getBoundingClientRect().top) break;
      const away = Math.abs(rect.left + rect.width / 2 - own.left - own.width / 2);
      if (lines >= 1 && away < nearest) [best, nearest] = [place, away];
    }
    return best;
  }
}
