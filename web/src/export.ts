/** Saves what is on screen as SVG or PNG, drawn by the views themselves, and the choices as JSON. */

import type { State } from "./contract";
import { theme } from "./colour";
import type { Picture, ViewPart } from "./part";
import { CanvasPicture, shifted, SvgPicture, textWidth } from "./picture";

export interface OnScreen {
  title: string;
  /** Names of the panels. */
  names: string[];
  parts: ViewPart[];
  status: string;
  dark: boolean;
}

const MARGIN = 24;
/** A PNG has twice the pixels, so that it can be printed. */
const SHARPNESS = 2;

/** A picture that draws nothing, to learn the sizes first. */
const NOWHERE: Picture = { line() {}, curve() {}, rect() {}, text() {}, image() {} };

/** Draws title, panels and status line; answers the size of the whole. */
export function compose(p: Picture, shown: OnScreen): { width: number; height: number } {
  const colours = theme(shown.dark);
  const sizes = shown.parts.map((part) => part.picture(NOWHERE));
  const width = Math.max(
    320,
    sizes.reduce((sum, size) => sum + size.width + MARGIN, MARGIN),
  );
  let y = MARGIN + 16;
  for (const line of broken(shown.title, width - 2 * MARGIN, 17)) {
    p.text(MARGIN, y, line, { size: 17, weight: 600, colour: colours.ink });
    y += 22;
  }
  if (shown.names.length) {
    let x = MARGIN;
    shown.names.forEach((name, panel) => {
      p.text(x, y, name, { size: 14, weight: 600, colour: colours.soft });
      x += sizes[panel].width + MARGIN;
    });
    y += 20;
  }
  let x = MARGIN;
  shown.parts.forEach((part, panel) => {
    part.picture(shifted(p, x, y));
    x += sizes[panel].width + MARGIN;
  });
  y += Math.max(0, ...sizes.map((size) => size.height)) + MARGIN;
  for (const line of broken(shown.status, width - 2 * MARGIN, 12)) {
    p.text(MARGIN, y, line, { size: 12, colour: colours.soft });
    y += 17;
  }
  return { width, height: y + MARGIN - 12 };
}

export async function saveSvg(shown: OnScreen): Promise<string> {
  const picture = new SvgPicture(pngAddress);
  const { width, height } = compose(picture, shown);
  const text = picture.document(width, height, theme(shown.dark).paper);
  return save(new Blob([text], { type: "image/svg+xml" }), `${fileName(shown.title)}.svg`);
}

export async function savePng(shown: OnScreen): Promise<string> {
  const { width, height } = compose(NOWHERE, shown);
  const canvas = document.createElement("canvas");
  canvas.width = Math.ceil(width * SHARPNESS);
  canvas.height = Math.ceil(height * SHARPNESS);
  const context = canvas.getContext("2d");
  if (!context) throw new Error("this browser gives no drawing surface of that size");
  context.scale(SHARPNESS, SHARPNESS);
  const picture = new CanvasPicture(context);
  picture.rect(0, 0, width, height, theme(shown.dark).paper, 1);
  compose(picture, shown);
  const blob = await new Promise<Blob | null>((done) => canvas.toBlob(done, "image/png"));
  if (!blob) throw new Error("the picture is too large for this browser; save it as SVG");
  return save(blob, `${fileName(shown.title)}.png`);
}

/** To the clipboard; to a file where the clipboard is closed, as it is in some notebooks. */
export async function copyState(state: Readonly<State>): Promise<string> {
  const text = JSON.stringify(state, null, 2);
  try {
    await navigator.clipboard.writeText(text);
    return "The settings are on the clipboard.";
  } catch {
    return save(new Blob([text], { type: "application/json" }), "pellucid-state.json");
  }
}

function save(blob: Blob, name: string): string {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  return `Saved as ${name}.`;
}

function fileName(title: string): string {
  return (
    title
      .toLowerCase()
      .replace(/[^\p{L}\p{N}]+/gu, "-")
      .replace(/^-|-$/g, "")
      .slice(0, 60) || "pellucid"
  );
}

function pngAddress(pixels: Uint8ClampedArray, pw: number, ph: number): string {
  const canvas = document.createElement("canvas");
  canvas.width = pw;
  canvas.height = ph;
  canvas.getContext("2d")?.putImageData(new ImageData(pixels as Uint8ClampedArray<ArrayBuffer>, pw, ph), 0, 0);
  return canvas.toDataURL("image/png");
}

/** Lines of at most this width, broken between words. */
function broken(text: string, width: number, size: number): string[] {
  const lines: string[] = [];
  let line = "";
  for (const word of text.split(" ").filter(Boolean)) {
    const longer = line ? `${line} ${word}` : word;
    if (line && textWidth(longer, { size }) > width) {
      lines.push(line);
      line = word;
    } else line = longer;
  }
  return line ? [...lines, line] : lines;
}
