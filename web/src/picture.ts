/** The two surfaces that a view can draw on. What is exported is drawn by the same calls as what is on screen. */

import type { Picture, TextStyle } from "./part";

export const SANS =
  'system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Liberation Sans", Arial, "Noto Sans CJK SC", sans-serif';
export const MONO = 'ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", "Liberation Mono", monospace';

export function font(style: Pick<TextStyle, "size" | "weight" | "mono" | "italic">): string {
  return `${style.italic ? "italic " : ""}${style.weight ?? 400} ${style.size ?? 13}px ${style.mono ? MONO : SANS}`;
}

/** How far along a curve's way its handles stand: it leaves and arrives level. */
export const HANDLE = 0.45;

const ALIGN = { start: "left", middle: "center", end: "right" } as const;

export class CanvasPicture implements Picture {
  private stamp: HTMLCanvasElement | null = null;

  constructor(private readonly context: CanvasRenderingContext2D) {}

  line(x1: number, y1: number, x2: number, y2: number, colour: string, alpha: number, width: number): void {
    this.stroke(colour, alpha, width);
    this.context.beginPath();
    this.context.moveTo(x1, y1);
    this.context.lineTo(x2, y2);
    this.context.stroke();
  }

  curve(x1: number, y1: number, x2: number, y2: number, colour: string, alpha: number, width: number): void {
    const handle = (x2 - x1) * HANDLE;
    this.stroke(colour, alpha, width);
    this.context.beginPath();
    this.context.moveTo(x1, y1);
    this.context.bezierCurveTo(x1 + handle, y1, x2 - handle, y2, x2, y2);
    this.context.stroke();
  }

  rect(x: number, y: number, w: number, h: number, colour: string, alpha: number): void {
    this.context.globalAlpha = alpha;
    this.context.fillStyle = colour;
    this.context.fillRect(x, y, w, h);
  }

  text(x: number, y: number, string: string, style: TextStyle): void {
    const context = this.context;
    context.globalAlpha = 1;
    context.font = font(style);
    context.fillStyle = style.colour;
    context.direction = style.rtl ? "rtl" : "ltr";
    context.textAlign = ALIGN[style.anchor ?? "start"];
    context.textBaseline = "alphabetic";
    context.fillText(string, x, y);
  }

  image(x: number, y: number, w: number, h: number, pixels: Uint8ClampedArray, pw: number, ph: number): void {
    this.stamp ??= document.createElement("canvas");
    if (this.stamp.width !== pw || this.stamp.height !== ph) {
      this.stamp.width = pw;
      this.stamp.height = ph;
    }
    const stamp = this.stamp.getContext("2d");
    if (!stamp) return;
    stamp.putImageData(new ImageData(pixels as Uint8ClampedArray<ArrayBuffer>, pw, ph), 0, 0);
    this.context.globalAlpha = 1;
    this.context.imageSmoothingEnabled = false;
    this.context.drawImage(this.stamp, x, y, w, h);
  }

  private stroke(colour: string, alpha: number, width: number): void {
    this.context.globalAlpha = alpha;
    this.context.strokeStyle = colour;
    this.context.lineWidth = width;
  }
}

/** Collects SVG elements. Pictures inside it need a PNG coder: the caller gives one that answers a data URL. */
export class SvgPicture implements Picture {
  private readonly parts: string[] = [];

  constructor(private readonly png: (pixels: Uint8ClampedArray, pw: number, ph: number) => string) {}

  line(x1: number, y1: number, x2: number, y2: number, colour: string, alpha: number, width: number): void {
    this.parts.push(`<line x1="${n(x1)}" y1="${n(y1)}" x2="${n(x2)}" y2="${n(y2)}"${stroke(colour, alpha, width)}/>`);
  }

  curve(x1: number, y1: number, x2: number, y2: number, colour: string, alpha: number, width: number): void {
    const handle = (x2 - x1) * HANDLE;
    const way = `M${n(x1)} ${n(y1)}C${n(x1 + handle)} ${n(y1)} ${n(x2 - handle)} ${n(y2)} ${n(x2)} ${n(y2)}`;
    this.parts.push(`<path d="${way}" fill="none"${stroke(colour, alpha, width)}/>`);
  }

  rect(x: number, y: number, w: number, h: number, colour: string, alpha: number): void {
    const opacity = alpha < 1 ? ` fill-opacity="${n(alpha)}"` : "";
    this.parts.push(
      `<rect x="${n(x)}" y="${n(y)}" width="${n(w)}" height="${n(h)}" fill="${escape(colour)}"${opacity}/>`,
    );
  }

  text(x: number, y: number, string: string, style: TextStyle): void {
    // The anchor is meant as left and right; SVG counts it from the side where the text begins.
    const flipped = { start: "end", middle: "middle", end: "start" } as const;
    const anchor = style.rtl ? flipped[style.anchor ?? "start"] : (style.anchor ?? "start");
    const attributes = [
      `x="${n(x)}" y="${n(y)}" fill="${escape(style.colour)}" font-size="${n(style.size ?? 13)}"`,
      anchor === "start" ? "" : ` text-anchor="${anchor}"`,
      style.weight ? ` font-weight="${style.weight}"` : "",
      style.italic ? ' font-style="italic"' : "",
      style.mono ? ` font-family="${escape(MONO)}"` : "",
      style.rtl ? ' direction="rtl"' : "",
    ];
    this.parts.push(`<text ${attributes.join("")} xml:space="preserve">${escape(string)}</text>`);
  }

  image(x: number, y: number, w: number, h: number, pixels: Uint8ClampedArray, pw: number, ph: number): void {
    this.parts.push(
      `<image x="${n(x)}" y="${n(y)}" width="${n(w)}" height="${n(h)}" preserveAspectRatio="none" ` +
        `style="image-rendering:pixelated" href="${this.png(pixels, pw, ph)}"/>`,
    );
  }

  /** The document, on a ground of one colour. */
  document(width: number, height: number, ground: string): string {
    const size = `width="${n(width)}" height="${n(height)}"`;
    return (
      `<svg xmlns="http://www.w3.org/2000/svg" ${size} viewBox="0 0 ${n(width)} ${n(height)}" ` +
      `font-family="${escape(SANS)}"><rect ${size} fill="${escape(ground)}"/>${this.parts.join("\n")}</svg>\n`
    );
  }
}

/** The same picture with its origin elsewhere. */
export function shifted(p: Picture, dx: number, dy: number): Picture {
  return {
    line: (x1, y1, x2, y2, colour, alpha, width) => p.line(x1 + dx, y1 + dy, x2 + dx, y2 + dy, colour, alpha, width),
    curve: (x1, y1, x2, y2, colour, alpha, width) => p.curve(x1 + dx, y1 + dy, x2 + dx, y2 + dy, colour, alpha, width),
    rect: (x, y, w, h, colour, alpha) => p.rect(x + dx, y + dy, w, h, colour, alpha),
    text: (x, y, string, style) => p.text(x + dx, y + dy, string, style),
    image: (x, y, w, h, pixels, pw, ph) => p.image(x + dx, y + dy, w, h, pixels, pw, ph),
  };
}

/** Sizes a canvas for the screen's own pixels and answers a cleared context in CSS pixels. */
export function sharpContext(
  canvas: HTMLCanvasElement,
  width: number,
  height: number,
): CanvasRenderingContext2D | null {
  const ratio = Math.min(3, window.devicePixelRatio || 1);
  const w = Math.max(1, Math.round(width * ratio));
  const h = Math.max(1, Math.round(height * ratio));
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext("2d");
  context?.setTransform(ratio, 0, 0, ratio, 0, 0);
  context?.clearRect(0, 0, width, height);
  return context;
}

let ruler: CanvasRenderingContext2D | null = null;

/** Width of a text in pixels. */
export function textWidth(string: string, style: Pick<TextStyle, "size" | "weight" | "mono">): number {
  ruler ??= document.createElement("canvas").getContext("2d");
  if (!ruler) return string.length * 7;
  ruler.font = font(style);
  return ruler.measureText(string).width;
}

/** The text, or as much of it as fits, ending in an ellipsis. */
export function fitted(string: string, width: number, style: Pick<TextStyle, "size" | "weight" | "mono">): string {
  if (textWidth(string, style) <= width) return string;
  const letters = [...string];
  let low = 0;
  let high = letters.length;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (textWidth(letters.slice(0, middle).join("") + "…", style) <= width) low = middle;
    else high = middle - 1;
  }
  return letters.slice(0, low).join("") + "…";
}

function n(value: number): string {
  return String(Math.round(value * 100) / 100);
}

function stroke(colour: string, alpha: number, width: number): string {
  const opacity = alpha < 1 ? ` stroke-opacity="${Math.round(alpha * 1000) / 1000}"` : "";
  return ` stroke="${escape(colour)}"${opacity} stroke-width="${n(width)}"`;
}

function escape(string: string): string {
  const marks: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };
  // XML cannot hold control characters at all, and byte tokens may be such.
  return string
    .replace(/[&<>"]/g, (mark) => marks[mark])
    .replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g, "\ufffd");
}
