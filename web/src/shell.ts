/** The frame around the views: title, tabs, controls, panels, status line and notes. */

import type { Header, State } from "./contract";
import { makeControls, sentenceCase, stepLayer, type Controls } from "./controls";
import { rehearse } from "./curve_raster";
import { button, el, fill, labelledSelect } from "./dom";
import { copyState, savePng, saveSvg } from "./export";
import { makeHeadView } from "./head_view";
import { makeModelView } from "./model_view";
import { makeNeuronView } from "./neuron_view";
import type { Context, MakeView, ViewPart } from "./part";
import { modes, type Mode } from "./state";
import { makeTextView } from "./text_view";

const VIEWS: Record<Mode, { label: string; title: string; make: MakeView; hint?: string }> = {
  model: {
    label: "Model",
    title: "All heads of all layers at a glance",
    make: makeModelView,
    hint: "Each square is one head: tokens that look go down, tokens looked at go across, a stronger colour is more attention. Click one to open it.",
  },
  heads: {
    label: "Heads",
    title: "Which token looks at which, head by head",
    make: makeHeadView,
    hint: "Point at a token to see its lines alone; click to keep it, click others to add them, press Escape to let all go.",
  },
  neurons: { label: "Neurons", title: "How query and key neurons make one weight", make: makeNeuronView },
  text: { label: "Text", title: "The text, coloured by a value per token", make: makeTextView },
};

/** Panels of one mode, made when the mode is first opened and kept from then on. */
interface Room {
  element: HTMLElement;
  controls: Controls;
  parts: ViewPart[];
}

export class Shell {
  private readonly rooms = new Map<Mode, Room>();
  private readonly tabs = new Map<Mode, HTMLButtonElement>();
  private readonly stage = el("div", { class: "stage", role: "tabpanel", tabindex: -1 });
  private readonly status = el("p", { class: "status", role: "status", "aria-live": "polite" });
  /** What the view itself said last; the status line may meanwhile speak of saving. */
  private sentence = "";
  private readonly context: Context;
  private readonly leave: (() => void)[] = [];
  private readonly theme = labelledSelect("Colours", "Light, dark, or as the system is set", (value) =>
    this.context.store.set({ theme: value as State["theme"] }),
  );

  constructor(
    private readonly root: HTMLElement,
    given: Omit<Context, "announce" | "dark">,
  ) {
    const system = window.matchMedia("(prefers-color-scheme: dark)");
    this.context = {
      ...given,
      dark: () => (given.store.state.theme === "auto" ? system.matches : given.store.state.theme === "dark"),
      announce: (text) => {
        this.sentence = text;
        if (this.status.textContent !== text) this.status.textContent = text;
      },
    };
    const { header } = given.source;
    root.classList.add("pellucid-view");
    // Notebooks take arrow keys for their cells unless they are asked not to.
    root.dataset.lmSuppressShortcuts = "true";
    fill(root, [this.heading(header), this.tabList(header), this.stage, this.status, notes(header)]);
    this.leave.push(given.store.subscribe((state, changed) => this.update(state, changed)));
    const recolour = () => this.update(given.store.state, new Set(["theme"]));
    system.addEventListener("change", recolour);
    this.leave.push(() => system.removeEventListener("change", recolour));
    root.addEventListener("keydown", this.key);
    this.leave.push(() => root.removeEventListener("keydown", this.key));
    this.update(given.store.state, new Set(["mode"]));
    // The head view is made while nothing else happens, so that the first click on a head finds it there.
    if (this.tabs.has("heads")) {
      const timer = setTimeout(() => {
        this.room("heads");
        rehearse();
      }, 300);
      this.leave.push(() => clearTimeout(timer));
    }
  }

  destroy(): void {
    for (const leave of this.leave) leave();
    for (const room of this.rooms.values()) for (const part of room.parts) part.destroy();
    this.root.classList.remove("pellucid-view");
    this.root.replaceChildren();
  }

  private heading(header: Header): HTMLElement {
    const models = new Map(header.panels.map(({ name, model }) => [name || model, model]));
    const { store } = this.context;
    const shown = () => {
      const room = this.rooms.get(store.state.mode);
      const names = header.panels.map((panel) => panel.name);
      return { title: header.title, names, parts: room?.parts ?? [], status: this.sentence, dark: this.context.dark() };
    };
    const said = (done: Promise<string>) =>
      void done
        .catch((error: unknown) => `That did not work: ${String(error)}`)
        .then((text) => (this.status.textContent = text));
    return el("header", { class: "heading" }, [
      el("div", { class: "titles" }, [
        el("h1", { class: header.title.length > 60 ? "long" : null, title: wholeText(header), dir: "auto" }, header.title),
        el("p", { class: "about", title: [...models.values()].join("\n") }, [...models.keys()].join(" · ")),
      ]),
      el("div", { class: "tools", role: "group", "aria-label": "Colours and saving" }, [
        this.theme.element,
        button("Save SVG", "Save what is shown as an SVG drawing", () => said(saveSvg(shown())), "small"),
        button("Save PNG", "Save what is shown as a PNG picture", () => said(savePng(shown())), "small"),
        button(
          "Copy settings",
          "Copy all choices as JSON, to open the same view again from Python",
          () => said(copyState(store.state)),
          "small",
        ),
      ]),
    ]);
  }

  private tabList(header: Header): HTMLElement {
    const offered = modes(header);
    const list = el("div", { class: "tabs", role: "tablist", "aria-label": "Views" });
    for (const mode of offered) {
      const tab = button(VIEWS[mode].label, VIEWS[mode].title, () => this.context.store.set({ mode }), "tab");
      tab.setAttribute("role", "tab");
      this.tabs.set(mode, tab);
      list.append(tab);
    }
    list.hidden = offered.length < 2;
    // Arrow keys walk along the tabs, as is usual for a list of tabs.
    list.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!step) return;
      const mode = offered[(offered.indexOf(this.context.store.state.mode) + step + offered.length) % offered.length];
      this.context.store.set({ mode });
      this.tabs.get(mode)?.focus();
      event.preventDefault();
      event.stopPropagation();
    });
    return list;
  }

  private room(mode: Mode): Room {
    let room = this.rooms.get(mode);
    if (!room) {
      const { panels } = this.context.source.header;
      const parts = panels.map((_, panel) => VIEWS[mode].make(this.context, panel));
      const several = panels.length > 1;
      const element = el(
        "div",
        { class: several ? "panels several" : "panels" },
        parts.map((part, panel) =>
          el("section", { class: "panel", "aria-label": several ? panels[panel].name : VIEWS[mode].label }, [
            several ? el("h2", {}, panels[panel].name) : null,
            part.element,
          ]),
        ),
      );
      room = { element, controls: makeControls(this.context, mode), parts };
      this.rooms.set(mode, room);
    }
    return room;
  }

  private update(state: Readonly<State>, changed: Set<keyof State>): void {
    this.root.dataset.theme = this.context.dark() ? "dark" : "light";
    this.theme.set(
      state.theme,
      ["auto", "light", "dark"].map((value) => ({ value, label: sentenceCase(value) })),
    );
    const room = this.room(state.mode);
    if (changed.has("mode")) {
      this.context.announce("");
      const within = this.stage.contains(this.stage.ownerDocument.activeElement);
      const { hint } = VIEWS[state.mode];
      fill(this.stage, [room.controls.element, hint ? el("p", { class: "hint" }, hint) : null, room.element]);
      this.stage.setAttribute("aria-label", VIEWS[state.mode].label);
      // Who opened a head with the keyboard goes on in the new view.
      if (within) this.stage.focus({ preventScroll: true });
      for (const [mode, tab] of this.tabs) {
        tab.setAttribute("aria-selected", String(mode === state.mode));
        tab.tabIndex = mode === state.mode ? 0 : -1;
      }
    }
    room.controls.update(state);
    for (const part of room.parts) part.update(state, changed);
  }

  private readonly key = (event: KeyboardEvent): void => {
    const target = event.target as HTMLElement;
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    if (target.matches("input, select, textarea")) return;
    const { store } = this.context;
    const { mode, left, right } = store.state;
    if (mode !== "heads" && mode !== "neurons") return;
    const step = { ArrowLeft: -1, "[": -1, ArrowRight: 1, "]": 1 }[event.key];
    if (step) stepLayer(this.context, step);
    else if (event.key === "Escape" && (left.length || right.length)) store.set({ left: [], right: [] });
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
}

/** The text that is looked at, put together from its tokens. */
function wholeText({ panels: [first] }: Header): string {
  const lists = Object.values(first?.tokens ?? {});
  return lists.map(({ text, space }) => text.map((token, i) => (space[i] === "1" ? ` ${token}` : token)).join("")).join("\n");
}

function notes(header: Header): HTMLElement {
  const list = el(
    "ul",
    { class: "notes" },
    header.notes.map((note) => el("li", {}, note)),
  );
  list.hidden = !header.notes.length;
  return list;
}
