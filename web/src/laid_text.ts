/** Draws text of the page into a picture, where the browser laid it. */

import type { Picture } from "./part";

/** Height of the letters below their line, as a share of the size; near enough for the usual fonts. */
const BELOW = 0.23;

/** All text inside an element, line by line; `origin` is the box that the picture's own corner stands for. */
export function drawLaidText(p: Picture, element: Element, origin: DOMRect, colour: string): void {
  const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
  const range = document.createRange();
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const parent = node.parentElement;
    if (!parent || parent.closest("select")) continue;
    const { fontSize, fontWeight, fontFamily } = getComputedStyle(parent);
    const size = Number.parseFloat(fontSize);
    const lines = new Map<number, { x: number; bottom: number; text: string }>();
    for (const word of (node.textContent ?? "").matchAll(/\S+\s*/g)) {
      range.setStart(node, word.index);
      range.setEnd(node, word.index + word[0].length);
      const box = range.getClientRects()[0];
      if (!box?.width) continue;
      const line = lines.get(Math.round(box.top));
      if (line) line.text += word[0];
      else lines.set(Math.round(box.top), { x: box.left, bottom: box.bottom, text: word[0] });
    }
    const style = { size, colour, weight: Number(fontWeight), mono: fontFamily.includes("mono") };
    for (const { x, bottom, text } of lines.values()) {
      p.text(x - origin.left, bottom - origin.top - BELOW * size, text.trimEnd(), style);
    }
  }
}

/** The chosen entry of a labelled select, with its label. */
export function drawSelect(p: Picture, field: HTMLElement, origin: DOMRect, colour: string): void {
  const select = field.querySelector("select");
  if (!select?.getClientRects().length) return;
  drawLaidText(p, field, origin, colour);
  const box = select.getBoundingClientRect();
  const { fontSize, paddingLeft } = getComputedStyle(select);
  const size = Number.parseFloat(fontSize);
  const x = box.left - origin.left + Number.parseFloat(paddingLeft);
  p.text(x, box.top - origin.top + box.height / 2 + 0.35 * size, select.selectedOptions[0]?.textContent ?? "", { size, colour });
}
