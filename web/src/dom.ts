/** Elements made in one call. Text from data goes in as text only, never as HTML. */

type Attributes = Record<string, string | number | boolean | null | undefined>;
export type Child = Node | string | null | undefined;

/** An element: `class`, `for` and so on as attributes; true sets an empty attribute, false and null set none. */
export function el<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  children: Child | Child[] = [],
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    element.setAttribute(name, value === true ? "" : String(value));
  }
  fill(element, children);
  return element;
}

/** Puts children in the place of those that are there. */
export function fill(element: Element, children: Child | Child[]): void {
  const list = Array.isArray(children) ? children : [children];
  element.replaceChildren(...list.filter((child): child is Node | string => child !== null && child !== undefined));
}

export interface Choice {
  value: string;
  label: string;
  title?: string;
}

/** A labelled select. `set` shows a value and may change what there is to choose. */
export function labelledSelect(
  label: string,
  title: string,
  choose: (value: string) => void,
): { element: HTMLElement; set(value: string, choices: Choice[]): void } {
  const select = el("select", { title });
  const element = el("label", { class: "field", title }, [el("span", {}, label), select]);
  let known = "";
  select.addEventListener("change", () => choose(select.value));
  return {
    element,
    set(value, choices) {
      const signature = JSON.stringify(choices);
      if (signature !== known) {
        known = signature;
        fill(
          select,
          choices.map((choice) => el("option", { value: choice.value, title: choice.title }, choice.label)),
        );
      }
      select.value = value;
    },
  };
}

export function labelledCheck(
  label: string,
  title: string,
  choose: (on: boolean) => void,
): { element: HTMLElement; set(on: boolean): void } {
  const box = el("input", { type: "checkbox" });
  box.addEventListener("change", () => choose(box.checked));
  const element = el("label", { class: "check", title }, [box, el("span", {}, label)]);
  return { element, set: (on) => void (box.checked = on) };
}

export function button(label: string, title: string, press: () => void, name = ""): HTMLButtonElement {
  const element = el("button", { type: "button", title, class: name || null }, label);
  element.addEventListener("click", press);
  return element;
}

/** Calls back once the browser has shown what was drawn now; `inFrame` where an animation frame is under way. The next
 * frame begins only when this one has been handed over, with everything that its canvases hold. */
export function afterPaint(done: () => void, inFrame = false): void {
  const next = () => requestAnimationFrame(() => done());
  if (inFrame) next();
  else requestAnimationFrame(next);
}

/** Leaves a mark for whoever measures (tests, benchmarks) once the paint is done. */
export function markPainted(name: string, inFrame = false): void {
  afterPaint(() => {
    performance.mark(`pellucid:${name}`);
    // Whichever view comes first, its first paint is the page's.
    if (!performance.getEntriesByName("pellucid:painted").length) performance.mark("pellucid:painted");
  }, inFrame);
}
