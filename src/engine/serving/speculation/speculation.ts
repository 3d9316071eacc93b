/**
 * Room: drafts of what comes next, which are verified many in a step. Speculation (here) chooses how many pay; Drafters propose
 * them: ngrams.ts by what followed the last tokens before, draft_model.ts by a smaller model or the model's own head. Read ngrams.ts next.
 */

import { nth, sum, valueIn } from '../../../base/lists.js';
import type { SpeculationStats } from '../../contracts/api.js';
import { type AllowedTokens, VERIFIED_ROWS } from '../../contracts/rank.js';
import type { ScheduledSequence } from '../../scheduler/index.js';
import { SIZES, StepCosts } from './step_costs.js';
import type { TrunkRows } from './trunk_rows.js';

/** What may follow the tokens so far, as far as it is asked for. */
export interface Proposal {
  /** Tokens that there are. */
  readonly length: number;
  /** How often a token of such proposals was right, from 0 to 1. */
  readonly sureness: number;
  /** Where they are computed: seconds that the first `count` take, those of so many requests at once. */
  seconds?(count: number, requests: number): number;
  /** The first ones. */
  tokens(count: number): readonly number[] | Promise<readonly number[]>;
}

/** So many tokens of a proposal. */
interface Choice {
  readonly proposal: Proposal;
  readonly count: number;
}

/** By sequence of a step. */
export type Choices = readonly (Choice | undefined)[];

/** Follows the tokens of one request. It decides what is tried, never what comes. */
export interface Drafter {
  /** The next token has come. */
  take(token: number): void;
  /** @param most tokens */
  propose(most: number): Proposal;
  /** The request is over. */
  end?(): void;
}

/** Most drafts of a step. */
export const MAX_DRAFTS = VERIFIED_ROWS - 1;
/** Drafts wait for what was sampled, and other steps for what came of them: they must promise more than that. */
const LEAST_GAIN = 1.1;
/** Pace that each of several sequences keeps at least, where what such steps cost was timed. */
const LEAST_PACE = 0.98;
/** Steps that drafts may lose in all, where none is right; each step without drafts makes up for a part of one. */
const MOST_LOST = 2;
const MADE_UP = 0.02;
/** Steps that are lost where steps in flight are awaited for nothing, about. */
const FORGONE = 0.5;
/** Steps that they gained before and may lose besides. */
const MOST_SAVED = 6;

/** A request, as its drafts are made. */
interface DraftedRequest {
  readonly isDrafted: boolean;
  readonly request: {
    readonly prompt: readonly number[];
    readonly constraint?: { ahead(tokens: readonly number[]): readonly AllowedTokens[] } | undefined;
  };
  readonly rows: TrunkRows | undefined;
  /** Since its tokens were first wanted: others' needn't be looked up. */
  drafters: readonly Drafter[] | undefined;
  /** What may follow each of its drafts, where that is limited. */
  behind: readonly AllowedTokens[];
}

/** A sequence that may have another row, and its request where that isn't over. */
export interface DraftedRow {
  readonly sequence: Pick<ScheduledSequence, 'generated' | 'maxTokens' | 'sampled' | 'outstanding'>;
  readonly running: DraftedRequest | undefined;
}

/** What the next step of some rows is beside. */
export interface StepSituation {
  /** Rows of a step that has all. */
  readonly slots: number;
  /** No other request runs. */
  readonly isAlone: boolean;
  /** Sequences that may have drafts, where wrong ones cost a step more: a state is taken back. Undefined: there is none. */
  readonly states: number | undefined;
  /** Steps are in flight. */
  readonly isBusy: boolean;
  /** Drafts can be verified at once. */
  isReady(): boolean;
}

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
  /** For tests and benchmarks: so many drafts are tried where they are proposed, whatever they cost. */
  tries: number | undefined;
  /** By number of sequences. */
  readonly #costs = new Map<number, StepCosts>();
  readonly #counts = { drafted: 0, accepted: 0, steps: 0 };
  /** Steps without drafts that would have made more tokens than those with drafts did; below 0: fewer. */
  #lost = 0;
  /** Steps in flight are awaited, to try drafts behind them. */
  #awaits = false;
  /** Seconds that the last drafts took. */
  #draftSeconds = 0;
  #comesBack = false;

  constructor(readonly options: SpeculationOptions) {}

  /** Of a step with drafts. Beside others' rows drafts have those that a step of all slots has, too. */
  mostRows(slots: number, isAlone: boolean): number {
    return isAlone || this.tries !== undefined ? VERIFIED_ROWS : Math.min(VERIFIED_ROWS, slots);
  }

  get counts(): SpeculationStats {
    return { ...this.#counts };
  }

  #costsOf(sequences: number): StepCosts {
    return valueIn(this.#costs, sequences, () => new StepCosts(sequences));
  }

  /**
   * What is to be verified beside each sequence's next row, in one step of them all; undefined: nothing, 'awaits': steps in flight are to
   * end before.
   */
  async draft(
    rows: readonly DraftedRow[],
    situation: StepSituation,
  ): Promise<readonly (readonly number[])[] | 'awaits' | undefined> {
    const awaited = this.#awaits && !situation.isBusy;
    const drafts = await this.#draftNow(rows, situation);
    this.#awaits = drafts === 'awaits';
    if (awaited && !drafts) this.#lost += FORGONE;
    return drafts;
  }

  async #draftNow(rows: readonly DraftedRow[], { slots, isAlone, states, isBusy, isReady }: StepSituation) {
    const most = this.mostRows(slots, isAlone);
    if (rows.length === 0 || rows.length >= most) return undefined;
    const proposals = rows.map((row) => this.#proposals(row));
    const ahead = Math.max(...rows.map(({ sequence }) => sequence.outstanding));
    const choices = this.choose(proposals, most, states, ahead);
    if (!choices || (this.tries === undefined && !isReady())) return undefined;
    if (isBusy) return 'awaits';
    const started = performance.now();
    const drafts = await Promise.all(rows.map(({ running }, at) => draftsOf(running, choices[at])));
    this.#draftSeconds = (performance.now() - started) / 1000;
    this.#comesBack = states !== undefined;
    if (choices.every((choice, at) => nth(drafts, at).length === (choice?.count ?? 0))) return drafts;
    // Fewer may no longer pay.
    const fitting = choices.map((choice, at) =>
      choice ? [{ ...choice.proposal, length: nth(drafts, at).length }] : [],
    );
    const chosen = this.choose(fitting, most, states, 0);
    return chosen && drafts.map((own, at) => own.slice(0, chosen[at]?.count ?? 0));
  }

  #proposals({ sequence, running }: DraftedRow): readonly Proposal[] {
    if (!running?.isDrafted) return [];
    running.drafters ??= this.options.drafters([...running.request.prompt, ...sequence.generated], running.rows);
    return this.propose(running.drafters, sequence.maxTokens - sequence.sampled - 1);
  }

  /**
   * A step took so long, of so many sequences and what came of their drafts.
   * @param seconds undefined: with other work
   * @param isAhead it ran while the one before was read, where any do
   */
  take(
    sequences: number,
    came: readonly { readonly drafted: number; readonly tokens: readonly number[] }[],
    seconds: number | undefined,
    isAhead: boolean,
  ): void {
    const drafted = sum(came.map((of) => of.drafted));
    // The first step behind drafts waits as they do, which would make them seem cheap.
    if (seconds !== undefined && (drafted > 0 || isAhead)) this.observe(sequences + drafted, seconds, sequences);
    const tokens = sum(came.map((of) => of.tokens.length));
    const wrong = this.#comesBack ? came.filter((of) => of.tokens.length <= of.drafted).length : 0;
    if (drafted > 0) this.settle(sequences + drafted, sequences, tokens, this.#draftSeconds, wrong);
  }

  /** A step took so long. @param rows of its sequences, and of their drafts */
  observe(rows: number, seconds: number, sequences = 1): void {
    this.#costsOf(sequences).observe(rows, seconds);
    if (rows === sequences && this.#lost > 0) this.#lost = Math.max(0, this.#lost - MADE_UP);
  }

  /**
   * What a step with drafts came to.
   * @param rows as of `observe`
   * @param tokens of all its sequences
   * @param seconds that its drafts took
   * @param back sequences whose state is taken back
   */
  settle(rows: number, sequences: number, tokens: number, seconds: number, back: number): void {
    const again = back * this.#costOfState(sequences);
    const cost = this.cost(rows, sequences) + again + (seconds / this.#costsOf(sequences).seconds || 0);
    this.#lost = Math.max(-MOST_SAVED, this.#lost + cost - tokens / sequences);
  }

  /** What a step of so many rows costs, in steps without drafts of these sequences. */
  cost(rows: number, sequences = 1): number {
    return this.#costsOf(sequences).of(rows);
  }

  /** What it costs in these steps that one's state is taken back: right drafts are computed again, and it misses a step of the others. */
  #costOfState = (sequences: number): number =>
    this.cost(VERIFIED_ROWS, sequences) + (sequences > 1 ? 1 / sequences : 0);

  /** What may follow a request's tokens. @param most of them */
  propose(drafters: readonly Drafter[], most: number): readonly Proposal[] {
    const count = Math.min(most, this.tries ?? MAX_DRAFTS);
    if (count <= 0) return [];
    return drafters.map((drafter) => drafter.propose(count)).filter(({ length }) => length > 0);
  }

  /**
   * Of what is proposed for the sequences of a step as much as pays most, if anything does: of one alone what one of its drafters
   * proposes; of several what is surest, where none of them is slower for the others' sake.
   * @param most rows of the step
   * @param states as of `StepSituation`
   * @param ahead steps in flight, which are awaited before: what they sample may be the end of what is sure, unless it is computed then
   * @returns by sequence
   */
  choose(
    proposals: readonly (readonly Proposal[])[],
    most: number,
    states: number | undefined,
    ahead: number,
  ): Choices | undefined {
    const free = most - proposals.length;
    if (this.tries !== undefined) {
      const shared = shareOut(
        proposals.map(([own]) => own),
        free,
        states,
      );
      return shared.some(Boolean) ? shared : undefined;
    }
    const [alone = []] = proposals;
    const known = proposals.map((own) => own.filter(({ seconds }) => !seconds));
    const sets = proposals.length === 1 ? alone.map((own) => [own]) : [proposals.map(surestOf), known.map(surestOf)];
    let best: Choices | undefined;
    let gained = LEAST_GAIN;
    for (const set of sets) {
      const all = sum(set.map((own) => own?.length ?? 0));
      for (const drafts of [...SIZES.map((rows) => rows - set.length), all]) {
        if (drafts < 1 || drafts > Math.min(all, free)) continue;
        const choices = shareOut(set, drafts, states);
        const gain = this.#gain(choices, states !== undefined, ahead);
        if (gain > gained) [best, gained] = [choices, gain];
      }
    }
    return best;
  }

  /** Tokens of a step with such drafts, over those that usual steps make in the same time. */
  #gain(choices: Choices, comesBack: boolean, ahead: number): number {
    const rows = choices.length + sum(choices.map((choice) => choice?.count ?? 0));
    const costs = this.#costsOf(choices.length);
    const rights = choices.map((choice) => (choice ? rightOf(choice) : 0));
    const right = sum(rights);
    const wrong = sum(choices.map((choice) => (choice ? 1 - choice.proposal.sureness ** choice.count : 0)));
    const again = comesBack ? wrong * this.#costOfState(choices.length) : 0;
    const seconds = secondsOf(choices);
    const computed = seconds === undefined ? 0 : seconds / costs.seconds;
    const cost = this.cost(rows, choices.length) + again + computed;
    const isSlower = choices.length > 1 && costs.isTimed(rows) && (1 + Math.min(...rights)) / cost < LEAST_PACE;
    if (isSlower || this.#lost + cost - 1 > MOST_LOST) return 0;
    const lasting = choices.map((choice, at) =>
      choice && !choice.proposal.seconds ? nth(rights, at) * choice.proposal.sureness ** ahead : nth(rights, at),
    );
    return 1 + (sum(lasting) / right) * ((1 + right / choices.length) / cost - 1);
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

/** As many of the tokens that were chosen as a request's form allows. */
async function draftsOf(running: DraftedRequest | undefined, choice: Choice | undefined): Promise<readonly number[]> {
  if (!running || !choice) return [];
  const tokens = await choice.proposal.tokens(choice.count);
  const { constraint } = running.request;
  if (!constraint) return tokens;
  running.behind = constraint.ahead(tokens);
  return tokens.slice(0, running.behind.length);
}

/** Of drafts that are computed, all at once. */
function secondsOf(choices: Choices): number | undefined {
  const computed = choices.flatMap((choice) => (choice?.proposal.seconds ? [choice] : []));
  const longest = Math.max(...computed.map(({ count }) => count));
  return computed[0]?.proposal.seconds?.(longest, computed.length);
}

const surestOf = (proposals: readonly Proposal[]): Proposal | undefined =>
  proposals.toSorted((a, b) => b.sureness - a.sureness)[0];

/** Drafts that are right, on average. */
const rightOf = ({ proposal: { sureness }, count }: Choice): number =>
  sum(Array.from({ length: count }, (_, at) => sureness ** (at + 1)));

/** Of what is proposed for sequences so many drafts: each goes where it is likeliest to be right. @param most sequences that have some */
function shareOut(proposals: readonly (Proposal | undefined)[], drafts: number, most = Infinity): Choices {
  const counts = proposals.map(() => 0);
  for (let left = drafts; left > 0; left--) {
    const isFull = counts.filter((count) => count > 0).length >= most;
    const chances = proposals.map((own, at) => {
      const count = nth(counts, at);
      return own && count < own.length && (count > 0 || !isFull) ? own.sureness ** count * own.sureness : 0;
    });
    const best = Math.max(...chances);
    if (best === 0) break;
    counts[chances.indexOf(best)]!++;
  }
  return proposals.map((proposal, at) =>
    proposal && nth(counts, at) > 0 ? { proposal, count: nth(counts, at) } : undefined,
  );
}
