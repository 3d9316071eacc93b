/** One rank's copy of a head, and the share of the head's requests that it serves: above 0, at most 1. */
export interface HeadShare {
  readonly rank: number;
  readonly share: number;
}

/** Where a layer's heads lie: for each head its copies, ascending by rank, shares adding up to 1. */
export type LayerPlacement = readonly (readonly HeadShare[])[];

/** [layer][head]. */
export type Placement = readonly LayerPlacement[];

export const MODES = ['static', 'backtrack', 'exact', 'greedy', 'fair-copy', 'wrap'] as const;
export type Mode = (typeof MODES)[number];

/** What is made small: the busiest rank of each layer, added up; or the rank that is busiest over all layers together. */
export const OBJECTIVES = ['per-layer', 'total'] as const;
export type Objective = (typeof OBJECTIVES)[number];

/** What to arrange, and within which limits. */
export interface ArrangementProblem {
  /** [layer][head]: what a head costs the rank that serves all its requests, in any unit; 0 or more. */
  readonly loads: readonly (readonly number[])[];
  readonly ranks: number;
  /** Copies of heads beyond the first that a layer may have. Without it: see `copyLimit`. */
  readonly copies?: number;
  /** Copies of heads, first ones included, that a rank may hold over all layers together; without it no limit. */
  readonly memory?: number;
  /** Requests in a batch: shares are multiples of 1 / batch. Without it shares are real numbers. */
  readonly batch?: number;
  readonly objective: Objective;
  readonly mode: Mode;
}

/** A placement and how good it is. Loads are in the unit of the problem's. */
export interface Arrangement {
  readonly mode: Mode;
  readonly objective: Objective;
  readonly placement: Placement;
  /** The busiest rank's load of each layer, added up, whatever the objective was. */
  readonly makespan: number;
  /** No placement with the mode's kind of shares has a smaller makespan within the limits. */
  readonly lowerBound: number;
  /** makespan / lowerBound - 1. */
  readonly gap: number;
  /** The makespan is proved least (within 1e-9 of it). */
  readonly optimal: boolean;
  /** All loads / (ranks * makespan): 1 when no rank ever waits. */
  readonly utilisation: number;
  /** Copies of heads beyond the first, over all layers. */
  readonly copies: number;
}
