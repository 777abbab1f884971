/** Numbers as they are written in the views. */

/** Any number in a few characters: three figures or so, and a true minus sign. */
export function number(value: number): string {
  if (Number.isNaN(value)) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  return (value < 0 ? "−" : "") + (Number.isFinite(value) ? written(size) : "∞");
}

function written(size: number): string {
  if (size >= 999999.5 || size < 0.00005) return size.toExponential(1);
  if (size >= 999.5) return thousands(Math.round(size));
  return size.toFixed(size >= 99.95 ? 0 : size >= 9.995 ? 1 : size >= 0.9995 ? 2 : size >= 0.00095 ? 3 : 4);
}

/** A weight between 0 and 1: two places, more for small ones, so that what is not nothing does not read as nothing. */
export function weightText(weight: number): string {
  if (!(weight > 0)) return "0";
  if (weight < 0.0001) return "<0.0001";
  return weight.toFixed(weight < 0.00095 ? 4 : weight < 0.00995 ? 3 : 2);
}

/** With commas between thousands. The browser's own way takes tens of milliseconds when it is first called. */
export function thousands(count: number): string {
  return String(count).replace(/\B(?=(\d{3})+$)/g, ",");
}
