/** Where a view's bytes come from: the page itself, a server, or a notebook's kernel. */

import { bytesOfBase64 } from "./base64";
import type { TextSource } from "./chunks";
import type { Header, Source, State } from "./contract";

/** Chunks in script tags of the page: see the header's `chunks` for their names. */
export class EmbeddedSource implements TextSource {
  readonly header: Header;
  readonly live = false;
  private readonly found = new Map<string, Element>();
  private searched = false;

  /** `root` is the element that holds the header and the chunks: the body, or a part of a page with several views. */
  constructor(
    private readonly root: ParentNode,
    private readonly page: Document,
  ) {
    const text = root.querySelector("script[data-header]")?.textContent;
    if (!text) throw new Error("This page holds no Pellucid header, so there is nothing to show.");
    this.header = JSON.parse(text) as Header;
  }

  async chunk(name: string): Promise<Uint8Array> {
    return bytesOfBase64(await this.base64(name));
  }

  async base64(name: string): Promise<string> {
    const early = this.look(name);
    if (early !== undefined) return early;
    // The page starts before its last chunks have been read: wait for them.
    await this.complete();
    const late = this.look(name);
    if (late === undefined)
      throw new Error(`The page holds no chunk "${name}"; it may have been cut short when it was saved.`);
    return late;
  }

  private look(name: string): string | undefined {
    if (this.page.readyState !== "loading") this.search();
    if (!this.searched) {
      const element = this.root.querySelector(`script[data-chunk="${CSS.escape(name)}"]`);
      // Without a following sibling the tag may still be growing.
      if (!element?.nextSibling) return undefined;
      return element.textContent ?? "";
    }
    return this.found.get(name)?.textContent ?? undefined;
  }

  private complete(): Promise<void> {
    if (this.page.readyState !== "loading") return Promise.resolve();
    return new Promise((done) => this.page.addEventListener("DOMContentLoaded", () => done(), { once: true }));
  }

  private search(): void {
    if (this.searched) return;
    this.searched = true;
    for (const element of this.root.querySelectorAll("script[data-chunk]")) {
      this.found.set(element.getAttribute("data-chunk") ?? "", element);
    }
  }
}

/** A server: BASE/header.json, BASE/chunk/NAME (stored bytes), BASE/exact/PANEL/BLOCK/WEIGHTING/LAYER/HEAD/QUERY. */
export class HttpSource implements Source {
  private constructor(
    private readonly base: string,
    readonly header: Header,
    readonly live: boolean,
  ) {}

  static async open(base: string, live = true): Promise<HttpSource> {
    const header = (await (await fetched(`${base}/header.json`)).json()) as Header;
    return new HttpSource(base, header, live);
  }

  async chunk(name: string): Promise<Uint8Array> {
    return new Uint8Array(await (await fetched(`${this.base}/chunk/${path(name)}`)).arrayBuffer());
  }

  async exact(...place: [number, string, string, number, number, number]): Promise<Float32Array> {
    const answer = await fetched(`${this.base}/exact/${path(place.join("/"))}`);
    return new Float32Array(await answer.arrayBuffer());
  }
}

function path(name: string): string {
  return name.split("/").map(encodeURIComponent).join("/");
}

async function fetched(address: string): Promise<Response> {
  const answer = await fetch(address);
  if (!answer.ok) throw new Error((await answer.text()).slice(0, 300) || `The server answered ${answer.status}.`);
  return answer;
}

/** The part of an anywidget model that is used here. */
export interface WidgetModel {
  get(name: "header"): Header;
  get(name: "state"): Partial<State>;
  get(name: "live"): boolean | undefined;
  set(name: "state", value: State): void;
  save_changes(): void;
  on(event: string, listener: (...given: never[]) => void): void;
  off(event: string, listener: (...given: never[]) => void): void;
  send(message: object): void;
}

interface Reply {
  kind: "chunk" | "exact" | "error";
  id: number;
  message?: string;
}

/** A notebook's kernel. Asks {kind: "chunk", id, name} or {kind: "exact", id, panel, …, query}; is answered
 * {kind, id} with one buffer, or {kind: "error", id, message}. */
export class WidgetSource implements Source {
  readonly header: Header;
  readonly live: boolean;
  private readonly waiting = new Map<number, { done: (bytes: Uint8Array) => void; fail: (error: Error) => void }>();
  /** Starts anywhere, for every view of one widget hears all answers. */
  private next = Math.floor(Math.random() * 2 ** 40);

  constructor(private readonly model: WidgetModel) {
    this.header = model.get("header");
    this.live = model.get("live") ?? false;
    model.on("msg:custom", this.answer);
  }

  chunk(name: string): Promise<Uint8Array> {
    return this.ask({ kind: "chunk", name });
  }

  async exact(
    panel: number,
    block: string,
    weighting: string,
    layer: number,
    head: number,
    query: number,
  ): Promise<Float32Array> {
    const bytes = await this.ask({ kind: "exact", panel, block, weighting, layer, head, query });
    return new Float32Array(bytes.slice().buffer);
  }

  destroy(): void {
    this.model.off("msg:custom", this.answer);
    this.waiting.clear();
  }

  private ask(question: object): Promise<Uint8Array> {
    const id = this.next++;
    return new Promise((done, fail) => {
      this.waiting.set(id, { done, fail });
      this.model.send({ ...question, id });
    });
  }

  private readonly answer = (reply: Reply, buffers: DataView[]): void => {
    const waiting = this.waiting.get(reply.id);
    if (!waiting) return;
    this.waiting.delete(reply.id);
    const bytes = buffers[0];
    if (reply.kind === "error" || !bytes) waiting.fail(new Error(reply.message ?? "The kernel sent no bytes."));
    else waiting.done(new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength));
  };
}
