/** How fast a replica is. The defaults are assumptions: a small model on one GPU. */
export interface ServiceSpeed {
  /** Prompt tokens a second while nothing is generated. */
  readonly prefillTps: number;
  /** Generated tokens a second: of one request alone, and of full slots together. */
  readonly decodeTps: number;
  readonly batchTps: number;
  /** Prompt tokens of a step; generated rows run in the same steps. */
  readonly chunkTokens: number;
}

export const DEFAULT_SPEED = { prefillTps: 5000, decodeTps: 60, chunkTokens: 512 } as const;

/** Assumed, too: each further row makes a step 4% longer than that of one. 16 slots are ten times as fast as one. */
export const assumedBatchTps = (decodeTps: number, slots: number): number =>
  (decodeTps * slots) / (1 + 0.04 * (slots - 1));

/**
 * Seconds of a step: base + row * (rows that generate), which the two decode speeds fix; with a chunk of a prompt in it, the chunk's
 * seconds and row * (rows that generate).
 */
export class StepTime {
  readonly #base: number;
  readonly #row: number;
  readonly #chunk: number;
  readonly chunkTokens: number;

  constructor({ prefillTps, decodeTps, batchTps, chunkTokens }: ServiceSpeed, slots: number) {
    this.chunkTokens = chunkTokens;
    const [alone, full] = [1 / decodeTps, slots / batchTps];
    this.#row = slots === 1 ? 0 : Math.max(0, (full - alone) / (slots - 1));
    this.#base = alone - this.#row;
    this.#chunk = chunkTokens / prefillTps;
  }

  decode(rows: number): number {
    return this.#base + this.#row * rows;
  }

  withPrefill(rows: number): number {
    return this.#chunk + this.#row * rows;
  }
}
