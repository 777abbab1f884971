import assert from "node:assert/strict";
import test from "node:test";
import type { TextData, TokenList } from "../src/contract";
import type { Heads } from "../src/part";
import { Lens, readMap, readTrack } from "../src/text_data";

const tokens: TokenList = {
  text: ["The", "cat", "", "sat"], space: "0111", word: [0, 1, 2, 3], special: [], sinks: [], segment: [0, 0, 0, 0],
  segments: ["text"], rtl: false,
};
const track = { about: "", signed: false, unit: "" };

function stored(chunks: Record<string, ArrayBufferView>): Heads {
  const bytes = async (name: string): Promise<Uint8Array> => {
    const found = chunks[name];
    if (!found) throw new Error(`no ${name}`);
    return new Uint8Array(found.buffer, found.byteOffset, found.byteLength);
  };
  return { bytes } as unknown as Heads;
}

test("a track is read by its name, from its own row", async () => {
  const heads = stored({ "text/1/tracks": Float32Array.from([1, 2, 3, 4, 5, NaN, 7, 8]) });
  const text: TextData = { tracks: { surprise: track, norm: track }, maps: {}, lens: null };
  assert.deepEqual([...(await readTrack(heads, 1, text, "norm", 4))], [5, NaN, 7, 8]);
  assert.deepEqual([...(await readTrack(heads, 1, text, "surprise", 4))], [1, 2, 3, 4]);
});

test("a map is read by its name", async () => {
  const heads = stored({ "text/0/map/norm": Float32Array.from([1, 2, 3, 4]) });
  assert.deepEqual([...(await readMap(heads, 0, "norm"))], [1, 2, 3, 4]);
});

test("predictions of every row and token, and whether they come true", async () => {
  const words = ["cat", " sat", "", "狗"];
  const most = 2;
  const ids = Uint32Array.from({ length: 2 * 4 * most }, (_, i) => i % 4); // row 0: (0 1) (2 3) (0 1) (2 3), row 1 the same
  ids[(1 * 4 + 2) * most] = 3;
  const codes = Uint8Array.from({ length: ids.length }, (_, i) => 255 - i);
  const heads = stored({
    "text/0/lens/words": new TextEncoder().encode(words.join("\n")), "text/0/lens/ids": ids, "text/0/lens/probs": codes,
  });
  const text: TextData = { tracks: {}, maps: {}, lens: { rows: ["a", "b"], most, about: "" } };
  const lens = await Lens.read(heads, 0, text, tokens);
  const close = (code: number) => Math.fround((code / 255) ** 2);
  assert.deepEqual(lens.top(1, 2), { word: "狗", probability: close(255 - 12) });
  assert.deepEqual(lens.all(0, 2), [{ word: "cat", probability: close(255 - 4) }, { word: " sat", probability: close(255 - 5) }]);
  assert.equal(lens.comesTrue("cat", 0), true);
  assert.equal(lens.comesTrue("cat", 1), false);
  assert.equal(lens.comesTrue(" sat", 2), true, "a blank before a word does not matter");
  assert.equal(lens.comesTrue("", 1), false, "nothing is no prediction");
  assert.equal(lens.comesTrue("sat", 3), false, "nothing follows the last token");
});
