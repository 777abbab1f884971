/** Numbers as they are written in the views. */

/** Any statistic, short: three figures or so, and a true minus sign. */
export function number(value: number): string {
  if (Number.isNaN(value)) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  const digits = size >= 100 ? 0 : size >= 10 ? 1 : size >= 0.1 ? 2 : size >= 0.01 ? 3 : 4;
  const text =
    size >= 1000 ? thousands(Math.round(size)) : size >= 0.0001 ? size.toFixed(digits) : size.toExponential(0);
  return (value < 0 ? "−" : "") + text;
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
