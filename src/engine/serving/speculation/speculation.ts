/**
 * Room: drafts of what comes next, which are verified many in a step. Speculation (here) chooses how many pay; Drafters propose
 * them: ngrams.ts by what followed the last tokens before, draft_model.ts by a smaller model or the model's own head. Read ngrams.ts next.
 */

import { sum } from '../../../base/lists.js';
import { median } from '../../../base/stats.js';
import type { SpeculationStats } from '../../contracts/api.js';
import { VERIFIED_ROWS } from '../../contracts/rank.js';
import type { TrunkRows } from './trunk_rows.js';

/** What may follow the tokens so far, as far as it is asked for. */
export interface Proposal {
  /** Tokens that there are. */
  readonly length: number;
  /** How often a token of such proposals was right, from 0 to 1. */
  readonly sureness: number;
  /** Where they are computed: seconds that the first `count` take. */
  seconds?(count: number): number;
  /** The first ones. */
  tokens(count: number): readonly number[] | Promise<readonly number[]>;
}

/** So many tokens of a proposal. */
export interface Choice {
  readonly proposal: Proposal;
  readonly count: number;
}

/** Follows the tokens of one request. It decides what is tried, never what comes. */
export interface Drafter {
  /** The next token has come. */
  take(token: number): void;
  /** @param most tokens */
  propose(most: number): Proposal;
}

/** Most drafts of a step. */
export const MAX_DRAFTS = VERIFIED_ROWS - 1;
/** Rows that verifying programs are made for: others cost what the next of them does. */
const SIZES = [2, 4, 8, 16];
/** What twice the rows cost, until they were timed: few enough that they are tried where much is right. */
const USUAL_DOUBLE = 1.5;
/** Timed steps of a size that count, the last ones; from two on. The very first may have compiled. */
const TIMED = 5;
/** After so many steps of one row others are timed anew: something else may have had the device. */
const ANEW = 1000;
/** Drafts wait for what was sampled, and other steps for what came of them: they must promise more than that. */
const LEAST_GAIN = 1.1;
/** Times of steps of one row are bursts where several are in flight: their mean is over about so many. */
const STEPS = 20;

export interface SpeculationOptions {
  /** @param prompt and what was generated before; @param rows of the request, where `rows` made them */
  readonly drafters: (prompt: readonly number[], rows?: TrunkRows) => readonly Drafter[];
  /** Where drafts are made of the model's rows: takes those of a request. */
  readonly rows?: () => TrunkRows | undefined;
  /** The model that one of them asks, on a device that may be its own. */
  readonly draft?: { readonly name: string; readonly isHead: boolean; dispose(): Promise<void> } | undefined;
}

/** Of an engine's requests: what steps of several rows cost on its ranks, and what drafts were worth. */
export class Speculation {
  /** For tests and benchmarks: so many drafts are tried where they are proposed, whatever they cost and whoever else runs. */
  tries: number | undefined;
  /** Steps of one row, and the seconds that they took. */
  #steps = 0;
  #seconds = 0;
  #since = 0;
  /** By number of SIZES: steps of so many rows, as multiples of one row's, after the first. */
  readonly #costs = new Map<number, readonly number[]>();
  readonly #counts = { drafted: 0, accepted: 0, steps: 0 };

  constructor(readonly options: SpeculationOptions) {}

  get counts(): SpeculationStats {
    return { ...this.#counts };
  }

  /** Whether drafts are tried beside other requests: their rows would wait for a step of their own. */
  get sharesSteps(): boolean {
    return this.tries !== undefined;
  }

  /** A step of a lone request took so long. */
  observe(rows: number, seconds: number): void {
    if (rows === 1) {
      const fades = 1 - 1 / STEPS;
      [this.#steps, this.#seconds] = [this.#steps * fades + 1, this.#seconds * fades + seconds];
      if (++this.#since % ANEW === 0) for (const size of this.#costs.keys()) this.#costs.set(size, []);
      return;
    }
    const before = this.#costs.get(sizeOf(rows));
    if (this.#steps === 0) return;
    const cost = (seconds * this.#steps) / this.#seconds;
    this.#costs.set(sizeOf(rows), before ? [...before, cost].slice(-TIMED) : []);
  }

  /** What a step of so many rows costs, in steps of one row. */
  cost(rows: number): number {
    const size = sizeOf(rows);
    const timed = this.#costs.get(size) ?? [];
    if (timed.length >= 2) return median(timed);
    return USUAL_DOUBLE * (size > 2 ? this.cost(size / 2) : 0.8);
  }

  /**
   * Of what one of the drafters proposes as much as pays most, if anything does.
   * @param comesBack wrong drafts cost a step more: a state is taken back
   * @param ahead steps in flight, which are awaited before: what they sample may be the end of what is sure, unless it is computed then
   */
  choose(drafters: readonly Pick<Drafter, 'propose'>[], comesBack: boolean, ahead: number): Choice | undefined {
    let best: Choice | undefined;
    let most = LEAST_GAIN;
    for (const drafter of drafters) {
      const proposal = drafter.propose(this.tries ?? MAX_DRAFTS);
      const { length, sureness } = proposal;
      if (this.tries !== undefined && length > 0) return { proposal, count: length };
      const lasts = proposal.seconds ? 1 : sureness ** ahead;
      for (const rows of [...SIZES, length + 1]) {
        const count = rows - 1;
        if (count > length || count < 1) continue;
        const right = sum(Array.from({ length: count }, (_, at) => sureness ** (at + 1)));
        const again = comesBack ? (1 - sureness ** count) * this.cost(VERIFIED_ROWS) : 0;
        const computed = proposal.seconds ? (proposal.seconds(count) * this.#steps) / this.#seconds : 0;
        const gain = 1 + lasts * ((1 + right) / (this.cost(rows) + again + computed) - 1);
        if (gain > most) [best, most] = [{ proposal, count }, gain];
      }
    }
    return best;
  }

  /** So many drafts were verified in a step, and so many were right. */
  count(of: { drafted: number; accepted: number; steps: number }, drafted: number, accepted: number): void {
    for (const counts of [this.#counts, of]) {
      counts.drafted += drafted;
      counts.accepted += accepted;
      counts.steps++;
    }
  }
}

const sizeOf = (rows: number): number => SIZES.find((size) => size >= rows) ?? VERIFIED_ROWS;
