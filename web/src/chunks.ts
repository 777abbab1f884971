/** Asks a source for chunks by need, decodes them in a worker and keeps what was used last. */

import type { Block, Source } from "./contract";
import type { HeadMatrix, Heads } from "./part";
import { decode, type StripShape } from "./inflating";
import type { Answer, Job } from "./worker";
import workerCode from "inline-worker:./worker";

/** Decoded weights that are kept, in bytes. */
const KEPT = 400e6;

/** Workers at most; two jobs lie with each, so that none of them waits. */
const WORKERS = 3;
const AT_ONCE = 2;

interface Waiting {
  job: Job;
  done: (bytes: Uint8Array) => void;
  fail: (error: Error) => void;
}

/** Decodes in workers; on the page itself where the host forbids them. What is asked for last is decoded first, for
 * that is what the user waits for. */
class Decoder {
  private readonly workers: { worker: Worker; jobs: Map<number, Waiting> }[] = [];
  private readonly most: number;
  private address = "";
  private waiting: Waiting[] = [];
  private next = 0;

  constructor() {
    this.most = Math.max(1, Math.min(WORKERS, (globalThis.navigator?.hardwareConcurrency ?? 2) - 1));
    try {
      this.address = URL.createObjectURL(new Blob([workerCode], { type: "text/javascript" }));
      this.start();
    } catch {
      this.withoutWorkers();
    }
  }

  private start(): void {
    const worker = new Worker(this.address);
    const jobs = new Map<number, Waiting>();
    worker.onmessage = (event: MessageEvent<Answer>) => this.answer(jobs, event.data);
    worker.onerror = () => this.withoutWorkers();
    this.workers.push({ worker, jobs });
  }

  decode(stored: Uint8Array | string, strip?: StripShape): Promise<Uint8Array> {
    if (!this.workers.length) return decode(stored, strip);
    const job: Job = strip ? { id: this.next++, stored, strip } : { id: this.next++, stored };
    return new Promise((done, fail) => {
      this.waiting.push({ job, done, fail });
      this.hand();
    });
  }

  destroy(): void {
    for (const { worker } of this.workers.splice(0)) worker.terminate();
    URL.revokeObjectURL(this.address);
    this.waiting = [];
  }

  /** Gives jobs to the workers that have least to do. */
  private hand(): void {
    while (this.waiting.length) {
      if (this.workers.every(({ jobs }) => jobs.size) && this.workers.length < this.most) this.start();
      const free = this.workers.reduce((a, b) => (b.jobs.size < a.jobs.size ? b : a));
      if (free.jobs.size >= AT_ONCE) return;
      const waiting = this.waiting.pop() as Waiting;
      free.jobs.set(waiting.job.id, waiting);
      free.worker.postMessage(waiting.job);
    }
  }

  private answer(jobs: Map<number, Waiting>, answer: Answer): void {
    const waiting = jobs.get(answer.id);
    jobs.delete(answer.id);
    this.hand();
    if (!waiting) return;
    if ("error" in answer) waiting.fail(new Error(answer.error));
    else waiting.done(answer.bytes);
  }

  /** A worker that a content policy refuses fails only after it was made: its jobs are done here instead. */
  private withoutWorkers(): void {
    const left = [...this.workers.flatMap(({ jobs }) => [...jobs.values()]), ...this.waiting];
    this.destroy();
    for (const { job, done, fail } of left) decode(job.stored, job.strip).then(done, fail);
  }
}

/** A source whose chunks lie in a page as base64 text: the text goes to the worker as it is. */
export interface TextSource extends Source {
  base64(name: string): Promise<string>;
}

function stored(source: Source, name: string): Promise<Uint8Array | string> {
  return "base64" in source ? (source as TextSource).base64(name) : source.chunk(name);
}

class StripMatrix implements HeadMatrix {
  bytes = 0;
  private strips: (Uint8Array | undefined)[] = [];
  private loading: (Promise<void> | undefined)[] = [];
  private readonly strip: number;

  constructor(
    readonly queries: number,
    readonly keys: number,
    block: Block,
    private readonly load: (number: number, shape: StripShape) => Promise<Uint8Array>,
    private readonly grown: () => void,
  ) {
    this.strip = block.strip;
    this.causal = block.causal && block.queries === block.keys;
  }

  private readonly causal: boolean;

  async ensure(rows?: Iterable<number>): Promise<void> {
    const wanted = new Set<number>();
    if (rows) for (const row of rows) wanted.add(Math.floor(row / this.strip));
    else for (let s = 0; s * this.strip < this.queries; s++) wanted.add(s);
    await Promise.all([...wanted].map((number) => this.strips[number] ?? this.fetch(number)));
  }

  has(i: number): boolean {
    return this.strips[Math.floor(i / this.strip)] !== undefined;
  }

  row(i: number): Uint8Array {
    const strip = this.at(i);
    const start = (i % this.strip) * this.keys;
    return strip.subarray(start, start + this.keys);
  }

  code(i: number, j: number): number | undefined {
    return this.strips[Math.floor(i / this.strip)]?.[(i % this.strip) * this.keys + j];
  }

  dropped(i: number): number {
    const strip = this.at(i);
    const rows = strip.length / (this.keys + 1);
    return strip[rows * this.keys + (i % this.strip)];
  }

  private at(i: number): Uint8Array {
    const strip = this.strips[Math.floor(i / this.strip)];
    if (!strip) throw new Error(`Row ${i} of a head was read before it was loaded.`);
    return strip;
  }

  private fetch(number: number): Promise<void> {
    const first = number * this.strip;
    const shape = { first, rows: Math.min(this.strip, this.queries - first), keys: this.keys, causal: this.causal };
    this.loading[number] ??= this.load(number, shape).then(
      (codes) => {
        this.strips[number] = codes;
        this.bytes += codes.length;
        this.loading[number] = undefined;
        this.grown();
      },
      (error: unknown) => {
        this.loading[number] = undefined;
        throw error;
      },
    );
    return this.loading[number];
  }
}

export class LoadedHeads implements Heads {
  private readonly decoder = new Decoder();
  /** In order of use, so that the first is the one to let go. */
  private readonly matrices = new Map<string, StripMatrix>();
  private readonly small = new Map<string, Promise<Uint8Array>>();
  private readonly vectorsKept = new Map<string, Promise<{ q: Float32Array; k: Float32Array }>>();

  constructor(private readonly source: Source) {}

  async matrix(panel: number, block: string, weighting: string, layer: number, head: number): Promise<HeadMatrix> {
    const known = this.peek(panel, block, weighting, layer, head);
    if (known) return known;
    const found = this.block(panel, block);
    const tokens = this.source.header.panels[panel].tokens;
    const place = `a/${panel}/${block}/${weighting}/${layer}/${head}`;
    const matrix = new StripMatrix(
      tokens[found.queries].text.length,
      tokens[found.keys].text.length,
      found,
      async (strip, shape) => this.decoder.decode(await stored(this.source, `${place}/${strip}`), shape),
      () => this.letGo(place),
    );
    this.matrices.set(place, matrix);
    return matrix;
  }

  peek(panel: number, block: string, weighting: string, layer: number, head: number): HeadMatrix | undefined {
    const place = `a/${panel}/${block}/${weighting}/${layer}/${head}`;
    const matrix = this.matrices.get(place);
    if (matrix) {
      this.matrices.delete(place);
      this.matrices.set(place, matrix);
    }
    return matrix;
  }

  thumbs(panel: number, block: string, weighting: string): Promise<Uint8Array> {
    return this.bytes(`t/${panel}/${block}/${weighting}`);
  }

  async statistics(panel: number, block: string): Promise<Float32Array> {
    return floats(await this.bytes(`s/${panel}/${block}`));
  }

  vectors(panel: number, block: string, layer: number): Promise<{ q: Float32Array; k: Float32Array }> {
    const place = `${panel}/${block}/${layer}`;
    let found = this.vectorsKept.get(place);
    if (!found) {
      const decoded = async (letter: string) =>
        halves(await this.decoder.decode(await stored(this.source, `${letter}/${place}`)));
      found = Promise.all([decoded("q"), decoded("k")]).then(([q, k]) => ({ q, k }));
      found.catch(() => this.vectorsKept.delete(place));
      this.vectorsKept.set(place, found);
      const oldest = this.vectorsKept.keys().next().value;
      if (this.vectorsKept.size > 4 && oldest !== undefined) this.vectorsKept.delete(oldest);
    }
    return found;
  }

  bytes(name: string): Promise<Uint8Array> {
    let found = this.small.get(name);
    if (!found) {
      found = stored(this.source, name).then((chunk) => decode(chunk)); // sooner done than a worker starts
      found.catch(() => this.small.delete(name));
      this.small.set(name, found);
    }
    return found;
  }

  destroy(): void {
    this.decoder.destroy();
    this.matrices.clear();
    this.small.clear();
    this.vectorsKept.clear();
  }

  private block(panel: number, name: string): Block {
    const blocks = this.source.header.panels[panel].blocks;
    const found = blocks.find((block) => block.name === name);
    if (!found)
      throw new Error(`There is no block "${name}"; there are ${blocks.map((block) => block.name).join(", ")}.`);
    return found;
  }

  /** Lets the matrices go that were not used for longest. A view that still holds one keeps it alive. */
  private letGo(newest: string): void {
    let kept = 0;
    for (const matrix of this.matrices.values()) kept += matrix.bytes;
    for (const [place, matrix] of this.matrices) {
      if (kept <= KEPT) break;
      if (place === newest) continue;
      this.matrices.delete(place);
      kept -= matrix.bytes;
    }
  }
}

/** Little-endian float32 values, wherever the bytes start in their buffer. */
export function floats(bytes: Uint8Array): Float32Array {
  return new Float32Array(bytes.slice().buffer);
}

/** Little-endian float16 values as float32. */
export function halves(bytes: Uint8Array): Float32Array {
  const codes = new Uint16Array(bytes.slice().buffer);
  const values = new Float32Array(codes.length);
  for (let i = 0; i < codes.length; i++) values[i] = half(codes[i]);
  return values;
}

function half(code: number): number {
  const sign = code & 0x8000 ? -1 : 1;
  const exponent = (code >> 10) & 31;
  const fraction = code & 1023;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}
