/** One rank's copy of a head, and the share of the head's requests that it serves: above 0, at most 1. */
export interface HeadShare {
  readonly rank: number;
  readonly share: number;
}

/** Where a layer's heads lie: for each head its copies, ascending by rank, shares adding up to 1. */
export type LayerPlacement = readonly (readonly HeadShare[])[];

/** [layer][head]. */
export type Placement = readonly LayerPlacement[];

export const MODES = ['static', 'exact', 'greedy', 'fair-copy', 'wrap'] as const;
export type Mode = (typeof MODES)[number];

/** What heads cost each rank in a step, as the planner measured it, and the bytes that they take. */
export interface HeadCosts {
  /** [rank]: reading one entry of one head, for one request. */
  readonly secondsPerEntry: readonly number[];
  /** [rank]: what a head costs besides, a copy like any other: projecting q, k, v and o for the batch's rows. */
  readonly secondsPerHead: readonly number[];
  /** Of a head's weights in a layer, and of one cached entry of one request; default 0. */
  readonly bytesPerHead?: number;
  readonly bytesPerEntry?: number;
  /** [rank]: bytes that there are for heads and their cache, over all layers; default no limit. */
  readonly memoryBytes?: readonly number[];
}

export const HEAD_COSTS = [
  'secondsPerEntry',
  'secondsPerHead',
  'bytesPerHead',
  'bytesPerEntry',
  'memoryBytes',
] as const satisfies readonly (keyof HeadCosts)[];

/** What to arrange, and within which limits. */
export interface ArrangementProblem {
  /** [layer][head]: what a head costs the rank that serves all its requests, in any unit; 0 or more. */
  readonly loads: readonly (readonly number[])[];
  readonly ranks: number;
  /** Runs of layers, as even as can be, each on ranks / pipeline ranks of its own; default 1. */
  readonly pipeline?: number;
  /** Copies of heads beyond the first that a layer may have. Without it: see `copyLimit`. */
  readonly copies?: number;
  /**
   * [layer][head]: how much loads vary from prompt to prompt, a standard deviation as a part of the mean (`promptDeviations`). In the
   * default mode, and shares of real numbers or eighths, `copies` that the mean loads don't need then go where single prompts do.
   */
  readonly deviations?: readonly (readonly number[])[] | undefined;
  /** Copies of heads, first ones included, that a rank may hold over all layers together; without it no limit. */
  readonly memory?: number;
  /** Requests in a batch: shares are multiples of 1 / batch. Without it shares are real numbers. */
  readonly batch?: number;
  /**
   * Default: whole heads by `exact`, and by `wrap` copies in the layers where whole heads leave ranks idle: as few as come close to
   * what more of them would reach.
   */
  readonly mode?: Mode;
  /** With these the slowest rank's seconds of each layer are made small, in place of the busiest rank's entries. */
  readonly costs?: HeadCosts;
}

/** A placement and how good it is. Loads are in the unit of the problem's; with `costs` in seconds. */
export interface Arrangement {
  readonly mode: Mode;
  readonly placement: Placement;
  /** The busiest rank's load of each layer, added up. */
  readonly makespan: number;
  /** No placement with the mode's kind of shares has a smaller makespan within the limits. */
  readonly lowerBound: number;
  /** makespan / lowerBound - 1. */
  readonly gap: number;
  /** The makespan is proved least (within 1e-9 of it). */
  readonly optimal: boolean;
  /** All loads / (ranks of a layer * makespan): 1 when no rank ever waits for another of its layer. */
  readonly utilisation: number;
  /** Copies of heads beyond the first, over all layers. */
  readonly copies: number;
}

/**
 * How ranks that hold copies of a head share its attention. 'sequences': each sequence is with one of them. 'lanes': they share the
 * merge lanes of every sequence, which helps one sequence alone and takes an exchange more per layer.
 */
export type CopySharing = (typeof COPY_SHARING)[number];
export const COPY_SHARING = ['sequences', 'lanes'] as const;
