import assert from "node:assert/strict";
import test from "node:test";
import { gridLayout, gridWindow } from "../src/grid_layout";

test("columns are wide enough to read, and as wide as there is room", () => {
  assert.equal(gridLayout(1250, 1024, 60, false).cell, 48);
  assert.equal(gridLayout(1250, 5, 60, false).cell, 160);
  const middle = gridLayout(1250, 16, 60, false);
  assert.ok(middle.cell * 16 <= middle.room && (middle.cell + 1) * 16 > middle.room);
  assert.ok(gridLayout(500, 1024, 900, false).labels <= 140, "long names leave room for the columns");
});

test("the whole text fits into the width", () => {
  for (const tokens of [3, 40, 1024, 4000]) {
    const layout = gridLayout(1250, tokens, 60, true);
    assert.ok(layout.cell * tokens <= layout.room + 1e-6);
    const { first, last, x } = gridWindow(layout, tokens, 0);
    assert.deepEqual([first, last, x], [0, tokens - 1, 0]);
  }
});

test("exactly the columns that touch the window are drawn", () => {
  const layout = { labels: 100, room: 480, cell: 48 };
  for (let scrolled = 0; scrolled <= 48 * 100 - 480; scrolled += 7) {
    const { first, last, x } = gridWindow(layout, 100, scrolled);
    const touching = Array.from({ length: 100 }, (_, column) => column)
      .filter((column) => column * 48 < scrolled + 480 && (column + 1) * 48 > scrolled);
    assert.deepEqual([first, last], [touching[0], touching[touching.length - 1]], String(scrolled));
    assert.equal(x, first * 48 - scrolled);
  }
});
