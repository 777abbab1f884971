/** The ways in: a page that holds its own data, a notebook's widget, a server, or any element with any source. */

import type { Source, State } from "./contract";
import { LoadedHeads } from "./chunks";
import { el } from "./dom";
import { Shell } from "./shell";
import { EmbeddedSource, HttpSource, WidgetSource, type WidgetModel } from "./sources";
import { defaults, fromHash, StateStore, toHash } from "./state";
import neuronStyle from "./neuron_view.css";
import style from "./style.css";
import textStyle from "./text_view.css";

export interface Options {
  state?: Partial<State>;
  /** Called with every new state. */
  changed?: (state: State) => void;
}

export interface Handle {
  state(): State;
  setState(change: Partial<State>): void;
  destroy(): void;
}

/** Shows a source inside an element. */
export function mount(element: HTMLElement, source: Source, options: Options = {}): Handle {
  const tree = element.getRootNode();
  const place = tree instanceof ShadowRoot ? tree : document.head;
  if (!place.querySelector("style[data-pellucid]")) {
    place.append(el("style", { "data-pellucid": true }, [style, neuronStyle, textStyle].join("\n")));
  }
  const store = new StateStore(source.header, options.state);
  const heads = new LoadedHeads(source);
  const shell = new Shell(element, { source, store, heads });
  const leave = store.subscribe((state) => options.changed?.({ ...state }));
  return {
    state: () => ({ ...store.state }),
    setState: (change) => store.set(change),
    destroy() {
      leave();
      shell.destroy();
      heads.destroy();
    },
  };
}

/** Shows every view whose data a page holds, each where an element is marked for it, with its data beside it. */
export function openEmbedded(page: Document = document): void {
  const places = [...page.querySelectorAll<HTMLElement>("[data-pellucid]")];
  const [only] = places;
  if (places.length === 1 && only?.id === "pellucid") {
    (window as unknown as { pellucid: Handle }).pellucid = openWhole(only, sourceOf(only, page));
    return;
  }
  // In a page with other content a view is made when the reader comes near it.
  const near = new IntersectionObserver(
    (entries) => {
      for (const entry of entries.filter((each) => each.isIntersecting)) {
        const place = entry.target as HTMLElement;
        near.unobserve(place);
        const inside = el("div", {});
        place.attachShadow({ mode: "open" }).append(inside); // the page's own style stays outside
        mount(inside, sourceOf(place, page));
      }
    },
    { rootMargin: "400px" },
  );
  for (const place of places) near.observe(place);
}

function sourceOf(place: HTMLElement, page: Document): EmbeddedSource {
  return new EmbeddedSource(place.parentElement ?? page, page);
}

/** A page that is one view: its address keeps the state. */
function openWhole(element: HTMLElement, source: Source): Handle {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const handle = mount(element, source, { state: fromHash(location.hash), changed: remember });
  window.addEventListener("hashchange", () =>
    handle.setState({ ...defaults(source.header), ...fromHash(location.hash) }),
  );
  return handle;

  /** Browsers slow down or refuse when the address changes with every move of a slider. */
  function remember(state: State): void {
    clearTimeout(timer);
    timer = setTimeout(() => {
      try {
        history.replaceState(null, "", toHash(state, source.header) || location.pathname + location.search);
      } catch {
        // Inside some frames the address cannot be changed; the view works without.
      }
    }, 200);
  }
}

/** Shows what a server offers under an address, as the whole of a page. */
export async function openHttp(element: HTMLElement, base: string): Promise<Handle> {
  return openWhole(element, await HttpSource.open(base));
}

/** Shows a notebook's widget; its state follows the kernel's, and the kernel's follows it. */
export function render({ model, el: element }: { model: WidgetModel; el: HTMLElement }): () => void {
  const source = new WidgetSource(model);
  const handle = mount(element, source, {
    state: model.get("state"),
    changed: (state) => {
      model.set("state", state);
      model.save_changes();
    },
  });
  const follow = () => handle.setState(model.get("state"));
  model.on("change:state", follow);
  return () => {
    model.off("change:state", follow);
    source.destroy();
    handle.destroy();
  };
}

export default { render };
