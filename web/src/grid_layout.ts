/** Sizes of a table of rows × tokens, and which of its columns are in sight. */

export interface GridLayout {
  /** Width of the rows' names, of what is left for the columns, and of one column. */
  labels: number;
  room: number;
  cell: number;
}

const LEAST_CELL = 48;
const MOST_CELL = 160;

/** Columns are wide enough for a token; `whole` makes them as narrow as it takes to see all of them. */
export function gridLayout(width: number, tokens: number, widestLabel: number, whole: boolean): GridLayout {
  const labels = Math.ceil(Math.min(widestLabel + 14, width * 0.28, 150));
  const room = Math.max(1, width - labels);
  const even = room / Math.max(1, tokens);
  if (whole) return { labels, room, cell: Math.min(even, MOST_CELL) };
  return { labels, room, cell: Math.max(LEAST_CELL, Math.min(MOST_CELL, Math.floor(even))) };
}

/** First and last column in sight, and where the first begins, counted from the end of the names. */
export function gridWindow(layout: GridLayout, tokens: number, scrolled: number): { first: number; last: number; x: number } {
  const first = Math.max(0, Math.floor(scrolled / layout.cell));
  const last = Math.min(tokens - 1, Math.ceil((scrolled + layout.room) / layout.cell - 1e-9) - 1);
  return { first, last, x: first * layout.cell - scrolled };
}
