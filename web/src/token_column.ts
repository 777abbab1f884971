/** One column of tokens in the head view: elements for the rows in view only, with pointer and keyboard. */

import { el } from "./dom";
import { ROW, visible } from "./head_lines";
import { textWidth } from "./picture";
import type { Unit } from "./weights";

export type Side = "left" | "right";

export interface TokenRow {
  text: string;
  special: boolean;
  pinned: boolean;
  looked: boolean;
}

interface Listeners {
  hover(place: number | null): void;
  pin(place: number): void;
  /** Asks for the row to be scrolled into view. */
  show(place: number): void;
}

let columns = 0;

export class TokenColumn {
  readonly element: HTMLElement;
  private readonly name = `pellucid-tokens-${columns++}`;
  private readonly pool = new Map<number, HTMLElement>();
  private active = -1;
  private count = 0;

  constructor(
    side: Side,
    private readonly listeners: Listeners,
  ) {
    const label = side === "left" ? "Tokens that look" : "Tokens looked at";
    this.element = el("div", {
      class: side === "left" ? "tokens from" : "tokens",
      tabindex: 0,
      role: "listbox",
      "aria-multiselectable": "true",
      "aria-label": `${label}: arrow keys move, Enter keeps a token, Escape lets all go`,
    });
    this.element.addEventListener("pointerover", (event) => listeners.hover(placeOf(event)));
    this.element.addEventListener("pointerleave", () => listeners.hover(null));
    this.element.addEventListener("click", (event) => {
      const place = placeOf(event);
      if (place === null) return;
      this.active = place;
      listeners.pin(place);
    });
    this.element.addEventListener("keydown", (event) => this.key(event));
    this.element.addEventListener("blur", () => listeners.hover(null));
  }

  place(left: number, width: number, rtl: boolean): void {
    Object.assign(this.element.style, { left: `${left}px`, width: `${width}px` });
    this.element.dir = rtl ? "rtl" : "ltr";
  }

  /** Makes the elements of these rows, and lets go of all others. */
  show(first: number, end: number, count: number, describe: (place: number) => TokenRow): void {
    this.count = count;
    for (const [place, row] of this.pool) {
      if (place >= first && place < end) continue;
      row.remove();
      this.pool.delete(place);
    }
    for (let place = first; place < end; place++) {
      let row = this.pool.get(place);
      if (!row) {
        row = el("div", {
          class: "token",
          role: "option",
          id: `${this.name}-${place}`,
          "aria-posinset": place + 1,
          style: `top: ${place * ROW}px`,
        });
        row.dataset.place = String(place);
        this.pool.set(place, row);
        this.element.append(row);
      }
      const { text, special, pinned, looked } = describe(place);
      if (row.textContent !== text) {
        row.textContent = text;
        row.title = text;
      }
      row.className = [
        "token",
        special && "special",
        pinned && "pinned",
        looked && "looked",
        place === this.active && "active",
      ]
        .filter(Boolean)
        .join(" ");
      row.setAttribute("aria-selected", String(pinned));
      row.setAttribute("aria-setsize", String(count));
    }
    if (this.active >= first && this.active < end)
      this.element.setAttribute("aria-activedescendant", `${this.name}-${this.active}`);
    else this.element.removeAttribute("aria-activedescendant");
  }

  private key(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey || !this.count) return;
    const last = this.count - 1;
    const targets: Record<string, number> = {
      ArrowUp: this.active < 0 ? last : this.active - 1,
      ArrowDown: this.active + 1,
      PageUp: this.active - 15,
      PageDown: this.active + 15,
      Home: 0,
      End: last,
    };
    if (event.key in targets) {
      this.active = Math.min(last, Math.max(0, targets[event.key]));
      this.listeners.show(this.active);
      this.listeners.hover(this.active);
    } else if ((event.key === "Enter" || event.key === " ") && this.active >= 0) this.listeners.pin(this.active);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
}

function placeOf(event: Event): number | null {
  const row = (event.target as HTMLElement).closest<HTMLElement>("[data-place]");
  return row ? Number(row.dataset.place) : null;
}

/** Width of the widest text, in pixels. */
export function longestText(units: Unit[]): number {
  let longest = 0;
  let most = 0;
  for (const text of new Set(units.map((unit) => unit.text))) {
    // Measuring is slow: only texts that may be the widest are measured.
    if (text.length < most * 0.6) continue;
    most = Math.max(most, text.length);
    longest = Math.max(longest, textWidth(visible(text), { size: 13.5, weight: 600 }));
  }
  return longest;
}
