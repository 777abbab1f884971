import assert from "node:assert/strict";
import test from "node:test";
import { columnAt, columnCorner, neuronLayout } from "../src/neuron_layout";

test("every head width fits every window, with neurons of 2 to 10 pixels", () => {
  for (const neurons of [16, 32, 64, 80, 96, 128, 256]) {
    for (const width of [360, 500, 640, 800, 1000, 1300, 1900]) {
      const layout = neuronLayout(width, neurons);
      const where = `${neurons} neurons in ${width} px`;
      assert.ok(layout.width <= width, where);
      assert.ok(layout.cell >= 2 && layout.cell <= 10, where);
      assert.ok(layout.columns * layout.lines >= neurons, where);
      assert.ok(layout.columns * (layout.lines - 1) < neurons, where);
      assert.ok(layout.tokenWidth < layout.keysX, where);
      assert.ok(layout.keysX + layout.columns * layout.cell < layout.productsX, where);
      assert.ok(layout.productsX + layout.columns * layout.cell < layout.dot.x, where);
      assert.ok(layout.dot.bar + layout.dot.width < layout.weight.x, where);
      assert.ok(layout.lines * layout.lineHeight <= layout.rowHeight && layout.rowHeight >= 20, where);
    }
  }
});

test("64 neurons stand on one line in a usual window, 256 are folded", () => {
  assert.equal(neuronLayout(1280, 64).lines, 1);
  assert.ok(neuronLayout(1280, 64).cell >= 5);
  assert.ok(neuronLayout(700, 256).lines > 1);
});

test("the neuron under the middle of its own cell is itself; the empty end of a folded strip is none", () => {
  for (const [width, neurons] of [[1280, 64], [500, 100], [500, 256]]) {
    const layout = neuronLayout(width, neurons);
    for (let place = 0; place < neurons; place++) {
      const { x, y } = columnCorner(layout, place);
      assert.equal(columnAt(layout, neurons, x + layout.cell / 2, y + layout.lineHeight / 2), place);
    }
    const room = layout.columns * layout.lines;
    if (room > neurons) {
      const { x, y } = columnCorner(layout, room - 1);
      assert.equal(columnAt(layout, neurons, x + 1, y + 1), -1);
    }
    assert.equal(columnAt(layout, neurons, -1, 3), -1);
    assert.equal(columnAt(layout, neurons, layout.columns * layout.cell, 3), -1);
  }
});
