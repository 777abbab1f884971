/** Colours that canvas and SVG share. The names and values of a theme are those of the report's page. */

export type Rgb = [number, number, number];

export interface Theme {
  paper: string;
  raised: string;
  ink: string;
  soft: string;
  line: string;
  accent: string;
  fill: string;
}

const LIGHT: Theme = {
  paper: "#fcfcfa",
  raised: "#f3f5f3",
  ink: "#1c2429",
  soft: "#56636c",
  line: "#dde2df",
  accent: "#0b6a73",
  fill: "#2f95a0",
};

const DARK: Theme = {
  paper: "#14191c",
  raised: "#1d2428",
  ink: "#e3e8e9",
  soft: "#a0adb4",
  line: "#303a3f",
  accent: "#74ccd3",
  fill: "#3c9aa4",
};

export function theme(dark: boolean): Theme {
  return dark ? DARK : LIGHT;
}

/** Stops of the scales, from nothing to much; each starts near the paper so that emptiness recedes. */
const TEAL_LIGHT: Rgb[] = [
  [240, 243, 241],
  [176, 214, 214],
  [72, 160, 169],
  [11, 106, 115],
  [5, 48, 58],
];
const TEAL_DARK: Rgb[] = [
  [29, 36, 40],
  [27, 72, 79],
  [45, 130, 140],
  [116, 204, 211],
  [233, 252, 250],
];
const HEAT_LIGHT: Rgb[] = [
  [247, 240, 230],
  [244, 205, 160],
  [222, 120, 30],
  [142, 62, 8],
];
const HEAT_DARK: Rgb[] = [
  [44, 38, 32],
  [112, 62, 20],
  [205, 110, 25],
  [255, 208, 150],
];
const BLUE_LIGHT: Rgb[] = [
  [245, 245, 243],
  [163, 196, 232],
  [49, 110, 189],
  [20, 58, 120],
];
const BLUE_DARK: Rgb[] = [
  [36, 40, 43],
  [28, 64, 110],
  [62, 128, 212],
  [178, 212, 255],
];
const ORANGE_LIGHT: Rgb[] = [
  [245, 245, 243],
  [246, 199, 150],
  [214, 110, 22],
  [133, 58, 6],
];
const ORANGE_DARK: Rgb[] = [
  [36, 40, 43],
  [104, 58, 20],
  [218, 122, 38],
  [255, 212, 160],
];

function between(stops: Rgb[], share: number): Rgb {
  const clipped = Number.isFinite(share) ? Math.min(1, Math.max(0, share)) : 0;
  const place = clipped * (stops.length - 1);
  const low = Math.min(stops.length - 2, Math.floor(place));
  const rest = place - low;
  return stops[low].map((from, c) => Math.round(from + (stops[low + 1][c] - from) * rest)) as Rgb;
}

/** Weights, 0 to 1: paper to deep teal. */
export function sequential(share: number, dark: boolean): Rgb {
  return between(dark ? TEAL_DARK : TEAL_LIGHT, share);
}

/** Statistics and activations, 0 to 1: paper to orange. */
export function heat(share: number, dark: boolean): Rgb {
  return between(dark ? HEAT_DARK : HEAT_LIGHT, share);
}

/** Signed values, −1 to 1: blue below zero, orange above. */
export function diverging(share: number, dark: boolean): Rgb {
  if (share < 0) return between(dark ? BLUE_DARK : BLUE_LIGHT, -share);
  return between(dark ? ORANGE_DARK : ORANGE_LIGHT, share);
}

export function css([r, g, b]: Rgb): string {
  return `#${[r, g, b].map((value) => value.toString(16).padStart(2, "0")).join("")}`;
}

/** One colour per head: hues around the circle, and lightness in turns so that neighbours differ in more than hue. */
export function headColour(head: number, heads: number, dark: boolean): string {
  // Up to ten heads differ enough by hue; beyond that, each round of the circle starts a little further on.
  const rounds = Math.max(1, Math.ceil(heads / 10));
  const perRound = Math.ceil(heads / rounds);
  const round = Math.floor(head / perRound);
  const hue = 25 + (360 * ((head % perRound) + round / rounds)) / perRound;
  const lightness = dark ? [0.76, 0.64, 0.86, 0.7] : [0.56, 0.68, 0.45, 0.62];
  const chroma = dark ? [0.12, 0.15, 0.08, 0.1] : [0.15, 0.13, 0.11, 0.08];
  const turn = (round + (head % 2 && rounds === 1 && heads > 6 ? 1 : 0)) % 4;
  return css(oklch(lightness[turn], chroma[turn], hue));
}

/** sRGB of a colour in OKLCh (Ottosson 2020), clipped to what a screen shows. */
function oklch(lightness: number, chroma: number, hue: number): Rgb {
  const a = chroma * Math.cos((hue * Math.PI) / 180);
  const b = chroma * Math.sin((hue * Math.PI) / 180);
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  const linear = [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ];
  return linear.map((value) => {
    const clipped = Math.min(1, Math.max(0, value));
    return Math.round(255 * (clipped <= 0.0031308 ? 12.92 * clipped : 1.055 * clipped ** (1 / 2.4) - 0.055));
  }) as Rgb;
}
