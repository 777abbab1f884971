/** Runs in a worker: inflates chunks and undoes the filter of weights, off the page's own thread. */

import { decode, type StripShape } from "./inflating";

export interface Job {
  id: number;
  /** Bytes, or base64 text of them. */
  stored: Uint8Array | string;
  /** For weights; other chunks are only inflated. */
  strip?: StripShape;
}

export type Answer = { id: number; bytes: Uint8Array<ArrayBuffer> } | { id: number; error: string };

interface WorkerScope {
  onmessage: ((event: MessageEvent<Job>) => void) | null;
  postMessage(answer: Answer, transfer?: Transferable[]): void;
}

const scope = globalThis as unknown as WorkerScope;

scope.onmessage = async ({ data: { id, stored, strip } }) => {
  try {
    const bytes = await decode(stored, strip);
    scope.postMessage({ id, bytes }, [bytes.buffer]);
  } catch (error) {
    scope.postMessage({ id, error: error instanceof Error ? error.message : String(error) });
  }
};
