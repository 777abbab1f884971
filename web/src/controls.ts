/** The row of choices above a view. Each has a label and says in its tooltip what it does. */

import type { Header, State } from "./contract";
import { headColour } from "./colour";
import { button, el, fill, labelledCheck, labelledSelect, type Choice } from "./dom";
import type { Context } from "./part";
import { blockNames, blocksNamed, headCount, layerNumbers, range, type Mode } from "./state";
import { movePins, units } from "./weights";

interface Control {
  element: HTMLElement;
  /** Shows the state; answers whether the control has anything to offer. */
  show(state: Readonly<State>): boolean;
}

export interface Controls {
  element: HTMLElement;
  update(state: Readonly<State>): void;
}

/** Controls of one view; those that have nothing to offer stay away. */
export function makeControls(context: Context, mode: Mode): Controls {
  const byMode: Record<Mode, Control[]> = {
    model: [blockControl(context), weightingControl(context), sortControl(context), colourControl(context)],
    heads: [
      blockControl(context),
      weightingControl(context),
      layerControl(context),
      averageControl(context),
      unitControl(context),
      segmentControl(context, "from"),
      segmentControl(context, "to"),
      massControl(context),
      hideControl(context),
      headsControl(context),
    ],
    neurons: [blockControl(context), layerControl(context), headControl(context), hideControl(context)],
    text: [],
  };
  const controls = byMode[mode];
  const element = el(
    "div",
    { class: "controls", role: "group", "aria-label": "Settings of this view" },
    controls.map((control) => control.element),
  );
  element.hidden = !controls.length;
  return {
    element,
    update(state) {
      for (const control of controls) control.element.hidden = !control.show(state);
    },
  };
}

/** The layer before or after, where there is one. */
export function stepLayer(context: Context, step: number): void {
  const { state } = context.store;
  const layers = offeredLayers(context.source.header, state);
  const next = layers[layers.indexOf(state.layer) + step];
  if (next !== undefined) context.store.set(withLayer(context.source.header, state, next));
}

/** The neuron view can show only layers whose vectors are there. */
function offeredLayers(header: Header, state: Readonly<State>): number[] {
  const all = layerNumbers(header, state.block);
  if (state.mode !== "neurons") return all;
  const stored = new Set(blocksNamed(header, state.block).flatMap((block) => block.vectors?.layers ?? []));
  return all.filter((layer) => stored.has(layer));
}

/** Where all heads were shown, all heads of the new layer are. */
function withLayer(header: Header, state: Readonly<State>, layer: number): Partial<State> {
  const before = headCount(header, state.block, state.layer);
  const after = headCount(header, state.block, layer);
  return before !== after && state.heads.length === before ? { layer, heads: range(after) } : { layer };
}

function choices(names: Record<string, string>): Choice[] {
  return Object.entries(names).map(([value, title]) => ({ value, label: sentenceCase(value), title }));
}

export function sentenceCase(name: string): string {
  const spaced = name.replaceAll("_", " ");
  return spaced.charAt(0).toUpperCase() + spaced.slice(1);
}

function blockControl({ source: { header }, store }: Context): Control {
  const select = labelledSelect(
    "Attention",
    "Which attention is shown: within a text, or from one text to another",
    (block) => {
      const heads = range(headCount(header, block, layerNumbers(header, block)[0] ?? 0));
      store.set({ block, heads, left: [], right: [], from: null, to: null });
    },
  );
  const labels: Record<string, string> = {
    self: "Self",
    encoder: "Encoder",
    decoder: "Decoder",
    cross: "Decoder to encoder",
  };
  return {
    element: select.element,
    show(state) {
      const names = blockNames(header);
      select.set(
        state.block,
        names.map((name) => ({ value: name, label: labels[name] ?? sentenceCase(name) })),
      );
      return names.length > 1;
    },
  };
}

function weightingControl({ source: { header }, store }: Context): Control {
  const select = labelledSelect("Weights", "What a weight means", (weighting) => store.set({ weighting }));
  return {
    element: select.element,
    show(state) {
      const offered = choices(Object.assign({}, ...blocksNamed(header, state.block).map((block) => block.weightings)));
      select.set(state.weighting, offered);
      select.element.title = offered.find((choice) => choice.value === state.weighting)?.title ?? "";
      return offered.length > 1;
    },
  };
}

function statisticControl(
  context: Context,
  key: "sort" | "colour",
  label: string,
  title: string,
  none: string,
): Control {
  const {
    source: { header },
    store,
  } = context;
  const select = labelledSelect(label, title, (value) => store.set({ [key]: value || null }));
  return {
    element: select.element,
    show(state) {
      const offered = choices(Object.assign({}, ...blocksNamed(header, state.block).map((block) => block.statistics)));
      select.set(state[key] ?? "", [{ value: "", label: none }, ...offered]);
      const chosen = offered.find((choice) => choice.value === state[key]);
      select.element.title = chosen ? `${title}. ${chosen.label}: ${chosen.title}` : title;
      return offered.length > 0;
    },
  };
}

function sortControl(context: Context): Control {
  return statisticControl(
    context,
    "sort",
    "Sort by",
    "Lay the heads out in layers, or rank them by a statistic",
    "Layer and head",
  );
}

function colourControl(context: Context): Control {
  return statisticControl(
    context,
    "colour",
    "Colour by",
    "Put a coloured band under every head that shows a statistic",
    "Nothing",
  );
}

function layerControl(context: Context): Control {
  const {
    source: { header },
    store,
  } = context;
  const select = labelledSelect("Layer", "Layer of the model; the keys ← and → step through them", (value) =>
    store.set(withLayer(header, store.state, Number(value))),
  );
  const back = button("‹", "Layer before (key ←)", () => stepLayer(context, -1), "step");
  const on = button("›", "Layer after (key →)", () => stepLayer(context, 1), "step");
  back.setAttribute("aria-label", "Layer before");
  on.setAttribute("aria-label", "Layer after");
  const element = el("div", { class: "together" }, [back, select.element, on]);
  return {
    element,
    show(state) {
      const layers = offeredLayers(header, state);
      select.set(
        String(state.layer),
        layers.map((layer) => ({ value: String(layer), label: String(layer) })),
      );
      const averaged = state.average === "layers" && state.mode === "heads";
      back.disabled = averaged || layers.indexOf(state.layer) <= 0;
      on.disabled = averaged || layers.indexOf(state.layer) === layers.length - 1;
      select.element.classList.toggle("without", averaged);
      return layers.length > 1;
    },
  };
}

function headControl({ source: { header }, store }: Context): Control {
  const select = labelledSelect("Head", "Head whose query and key neurons are shown", (value) =>
    store.set({ head: Number(value) }),
  );
  return {
    element: select.element,
    show(state) {
      const heads = range(headCount(header, state.block, state.layer));
      select.set(
        String(state.head),
        heads.map((head) => ({ value: String(head), label: String(head) })),
      );
      return heads.length > 1;
    },
  };
}

function averageControl({ store }: Context): Control {
  const select = labelledSelect(
    "Mean over",
    "Show every chosen head by itself, the mean of the chosen heads, or their mean over all layers",
    (value) => store.set({ average: value as State["average"] }),
  );
  return {
    element: select.element,
    show(state) {
      select.set(state.average, [
        { value: "none", label: "Nothing" },
        { value: "heads", label: "Heads" },
        { value: "layers", label: "Heads and layers" },
      ]);
      return true;
    },
  };
}

function unitControl({ source: { header }, store }: Context): Control {
  const title =
    "Tokens as the model sees them, or words: weights to the parts of a word add up, weights from them are averaged";
  const select = labelledSelect("Units", title, (value) => {
    const unit = value as State["unit"];
    const { state } = store;
    const panel = header.panels.find((candidate) => candidate.blocks.some((block) => block.name === state.block));
    const block = panel?.blocks.find((candidate) => candidate.name === state.block);
    if (!panel || !block) return;
    const moved = (pins: number[], list: string) =>
      movePins(pins, units(panel.tokens[list], state.unit), units(panel.tokens[list], unit));
    store.set({ unit, left: moved(state.left, block.queries), right: moved(state.right, block.keys) });
  });
  return {
    element: select.element,
    show(state) {
      select.set(state.unit, [
        { value: "tokens", label: "Tokens" },
        { value: "words", label: "Words" },
      ]);
      return true;
    },
  };
}

function segmentControl({ source: { header }, store }: Context, side: "from" | "to"): Control {
  const title =
    side === "from"
      ? "Show only what this part of the text looks at"
      : "Show only what is looked at in this part of the text";
  const select = labelledSelect(sentenceCase(side), title, (value) =>
    store.set({ [side]: value === "" ? null : Number(value) }),
  );
  return {
    element: select.element,
    show(state) {
      const panel = header.panels.find((candidate) => candidate.blocks.some((block) => block.name === state.block));
      const block = panel?.blocks.find((candidate) => candidate.name === state.block);
      if (!panel || !block) return false;
      const { segments } = panel.tokens[side === "from" ? block.queries : block.keys];
      const value = state[side];
      select.set(value === null ? "" : String(value), [
        { value: "", label: "All" },
        ...segments.map((label, number) => ({ value: String(number), label })),
      ]);
      return segments.length > 1;
    },
  };
}

function massControl({ store }: Context): Control {
  const title =
    "Draw, from the largest weight down, as much of each token's attention as this; the rest is counted as not drawn";
  const slider = el("input", {
    type: "range",
    min: 10,
    max: 100,
    step: 1,
    "aria-label": "Share of attention that is drawn",
  });
  const said = el("output", {});
  slider.addEventListener("input", () => store.set({ mass: Number(slider.value) / 100 }));
  return {
    element: el("label", { class: "field", title }, [el("span", {}, "Draw"), slider, said]),
    show(state) {
      slider.value = String(Math.round(state.mass * 100));
      said.textContent = state.mass >= 1 ? "all" : `${Math.round(state.mass * 100)}%`;
      return true;
    },
  };
}

function hideControl({ source: { header }, store }: Context): Control {
  const special = labelledCheck(
    "special tokens",
    "Leave out tokens such as [CLS] and <s>; their share is shown as hidden",
    (hideSpecial) => store.set({ hideSpecial }),
  );
  const sinks = labelledCheck(
    "sinks",
    "Leave out tokens that draw attention whatever the text says; their share is shown as hidden",
    (hideSinks) => store.set({ hideSinks }),
  );
  const element = el("div", { class: "field" }, [el("span", {}, "Hide"), special.element, sinks.element]);
  return {
    element,
    show(state) {
      special.set(state.hideSpecial);
      sinks.set(state.hideSinks);
      const lists = header.panels.flatMap((panel) =>
        panel.blocks
          .filter((block) => block.name === state.block)
          .flatMap((block) => [panel.tokens[block.queries], panel.tokens[block.keys]]),
      );
      special.element.hidden = !lists.some((tokens) => tokens.special.length);
      sinks.element.hidden = !lists.some((tokens) => tokens.sinks.length);
      return !special.element.hidden || !sinks.element.hidden;
    },
  };
}

/** One coloured chip per head. */
function headsControl(context: Context): Control {
  const {
    source: { header },
    store,
  } = context;
  const chips = el("div", { class: "chips" });
  const all = button("All", "Show all heads", () => store.set({ heads: range(chips.childElementCount) }), "small");
  const none = button("None", "Show no head", () => store.set({ heads: [] }), "small");
  const element = el("div", { class: "heads", role: "group", "aria-label": "Heads that are shown" }, [
    el("span", { class: "caption" }, "Heads"),
    chips,
    all,
    none,
  ]);
  const toggle = (head: number) => {
    const { heads } = store.state;
    store.set({ heads: heads.includes(head) ? heads.filter((other) => other !== head) : [...heads, head], head });
  };
  const chip = (head: number) => {
    const made = button(
      String(head),
      `Head ${head}: click to show or hide, double-click to show it alone`,
      () => toggle(head),
      "chip",
    );
    made.setAttribute("aria-label", `Head ${head}`);
    made.addEventListener("dblclick", () => store.set({ heads: [head], head }));
    return made;
  };
  return {
    element,
    show(state) {
      const count = headCount(header, state.block, state.layer);
      if (chips.childElementCount !== count) fill(chips, range(count).map(chip));
      [...chips.children].forEach((made, head) => {
        made.setAttribute("aria-pressed", String(state.heads.includes(head)));
        (made as HTMLElement).style.setProperty("--head", headColour(head, count, context.dark()));
      });
      return count > 0;
    },
  };
}
