/** A request whose prompt may begin like others'. */
export interface PrefixRequest {
  readonly inputTokens: number;
  readonly outputTokens: number;
  /** What its prompt's blocks are, each with all before it, as the routing policy's hashes. */
  readonly prefix: Uint32Array;
  /** The same with the answer's whole blocks behind: what is cached when it is done. */
  readonly whole: Uint32Array;
  /** Prompt tokens that some earlier request had: what one cache without end would save. */
  readonly seenTokens: number;
  readonly session: string;
}

export interface Arrival {
  readonly at: number;
  readonly request: PrefixRequest;
}

/** Requests in order of time, made as they are asked for, so that a long trace takes no memory. */
export interface PrefixSource {
  /** Tokens of a block. */
  readonly blockTokens: number;
  /** The next one that waits for no other; undefined after the last. */
  next(): Arrival | undefined;
  /** What follows a request that got its answer at this time: the next turn. */
  after(request: PrefixRequest, now: number): Arrival | undefined;
}

/** Of prompt tokens so many needn't be computed: the last one always is. */
export const reusable = (blocks: number, blockTokens: number, inputTokens: number): number =>
  Math.min(blocks * blockTokens, inputTokens - 1);
