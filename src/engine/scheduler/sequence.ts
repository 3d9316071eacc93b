import { internalError, usageError } from '../../base/errors.js';
import { show } from '../../base/json.js';
import { checkOptions, type OptionsSchema, wholeNumber } from '../../base/options.js';
import type { BlockRun } from '../../placement/pools.js';
import { Client, virtualArrival } from './priority.js';

/** Rows of a prompt's tokens run through the prompt kernels, those of generated tokens through the decode kernels. */
export type RowRole = 'prompt' | 'generated';

/** Positions [start, end). */
export type Span = readonly [start: number, end: number];

/** What a client asks for. Times are seconds on the caller's clock, the one given to `schedule`. */
export interface RequestSpec {
  readonly id: string;
  /** Token ids. Without prefix caching only the length is read, so `{ length: n }` will do. */
  readonly prompt: ArrayLike<number>;
  /**
   * Parts of the prompt that were generated before, ascending: their rows are of role `generated`, so that they have the bits that they
   * had then. The last token of a prompt is of none. Ignored where prompts are compressed.
   */
  readonly generatedSpans?: readonly Span[];
  /** Tokens that were generated before, behind the prompt; computed again as such. */
  readonly continuation?: readonly number[];
  /** Tokens to generate at most. 0: the prompt (and its continuation) is computed and nothing sampled. */
  readonly maxTokens: number;
  /** Tokens from this position on are computed even if the prefix cache holds them; default: all that it holds are taken. */
  readonly computeFrom?: number;
  /** What its rows are computed with, beside the model: sequences of others have nothing in common with it. */
  readonly adapter?: number;
  /** Its prompt is computed here, also where those of others are handed over. */
  readonly computedHere?: boolean;
  /** Its beginning may be kept elsewhere: it waits until `Scheduler.hand` has told. */
  readonly awaited?: boolean;
  /**
   * What may follow a token is known only when the token is: none is sampled before the caller has said so with the iteration's results
   * (`IterationResults.goOn`).
   */
  readonly stepwise?: boolean;
  /** From -100 to 100, higher is sooner; default 0. See priority.ts for what a point is worth. */
  readonly priority?: number;
  /** Who asks: what waits goes in rounds by client. Default: one client asks for all that names none. */
  readonly client?: string;
  /** When the first token should be there; only the cost policy of attention data parallelism reads it. */
  readonly firstTokenDeadline?: number;
}

/** `length`: maxTokens reached; `context_full`: cut short by the context or the KV pool; `ended`: as the caller said. */
export type EndReason = 'length' | 'context_full' | 'ended' | 'aborted';

/** A request, as the scheduler shows it to others: they change nothing of it. */
export type ScheduledSequence = Readonly<Omit<Sequence, 'goOn'>>;

const SPEC: OptionsSchema<RequestSpec> = {
  id: true,
  prompt: true,
  generatedSpans: true,
  continuation: true,
  maxTokens: wholeNumber(0),
  computeFrom: true,
  adapter: true,
  computedHere: true,
  awaited: true,
  stepwise: true,
  priority: wholeNumber(-100, 100),
  client: (value) => (typeof value === 'string' ? undefined : `${show(value)}: expected a text`),
  firstTokenDeadline: (value) =>
    typeof value === 'number' && !Number.isNaN(value) ? undefined : `${String(value)}: expected seconds`,
};

/** Of a sequence that holds nothing in layers with windows. */
export const NO_WINDOWS: BlockRun = { first: 0, blocks: [] };

export class Sequence {
  readonly id: string;
  readonly prompt: ArrayLike<number>;
  readonly promptLength: number;
  readonly spans: readonly Span[];
  /** Most tokens behind the prompt, its continuation included. */
  readonly maxTokens: number;
  /** Nothing is sampled. */
  readonly prefillOnly: boolean;
  readonly computeFrom: number;
  readonly adapter: number | undefined;
  /** No other device computes its prompt. */
  readonly computedHere: boolean;
  readonly stepwise: boolean;
  /** Its last token was sampled, and the caller hasn't said yet what came (`drafts`) or may follow (`stepwise`). */
  held = false;
  /** Whether maxTokens is less than was asked for. */
  readonly clamped: boolean;
  readonly firstTokenDeadline: number;
  readonly priority: number;
  /** Place among its client's: smaller is sooner. Never changes. */
  readonly order: number;
  readonly generated: number[];
  status: 'waiting' | 'prefill' | 'decode' | 'finished' = 'waiting';
  endReason: EndReason | undefined;
  /** The rank whose KV pool it lives in; -1 while unbound. */
  rank = -1;
  /** Row of the rank's decode step, from admission on. */
  slot = -1;
  /** Physical KV block of tokens [i * block, (i + 1) * block). */
  blocks: number[] = [];
  /** Blocks in layers with windows, where those have a pool of their own; replaced as a whole. */
  windows = NO_WINDOWS;
  /** Rotates which lane of the pool holds which chunk (`RankLimits.lanes`). */
  offset = 0;
  /** Tokens that `blocks` have room for, those included that compression evicted. */
  capacity = 0;
  evicted = 0;
  /** Those that it evicts, as far as that was told. */
  toEvict: number | undefined;
  /** Tokens whose KV is written by the iterations scheduled so far. A decode row just scheduled has position computed - 1. */
  computed = 0;
  /** Tokens sampled by the iterations scheduled so far; `generated` follows behind. */
  sampled: number;
  received: number;
  /**
   * What may follow its last token, if anything, to be fed beside it in its next decode row's step, which others' drafts are in, too: then
   * all that it sampled is known, and it has no further row until what came is told (`IterationResults.verified`). Undefined: its row is
   * one of the usual steps.
   */
  drafts: readonly number[] | undefined;
  /** Of a model with recurrent layers: where its state before its drafts is kept. */
  draftState: number | undefined;
  /** Its state is some rejected drafts ahead, and is taken back before it goes on. */
  takesBack = false;
  outstanding = 0;
  /** Of those, how many wrote into blocks that it has lost since. */
  stale = 0;
  /** Tokens whose KV is known to be written, by completed iterations, into its present blocks. */
  confirmed = 0;
  /** Earlier tokens were computed elsewhere: no row here sees them in layers with windows, but those of the window before. */
  windowsFrom = 0;
  /** Tokens taken from the prefix cache at the last admission. */
  cachedTokens = 0;
  preemptions = 0;
  /** Tokens that it had sampled when it was admitted last. */
  sampledBefore = 0;
  /** It decodes, and has no row now for other clients' sake; when it has one again all that it sampled is known. Not of stepwise ones. */
  resting = false;
  /** When its last decode row was planned: of two moments only the order counts. */
  rowAt = 0;
  /** Iteration in which it could first have run, had nothing made it wait; -1: not yet. */
  readySince = -1;
  /** The rank whose pool it is about to be moved to; -1: none. It has no more rows until it is there. */
  leavingFor = -1;
  /** The micro-batch that it is about to go to, as `leavingFor`. */
  shiftsTo = -1;
  /** Block edges at which its state, of a model with recurrent layers, or its prompt, which will be compressed, is to be kept. */
  keepsAt: readonly number[] = [];
  /** Those that were scheduled and aren't confirmed, with their places. */
  keeping: { readonly end: number; readonly place: number; readonly decoded: boolean }[] = [];
  /** The last of them that it decoded to; 0: none. */
  keptAt = 0;
  /** Where prompts are compressed: blocks of what is kept of prompts that hold its beginning, until it is known there. */
  keptBlocks: number[] = [];
  /** Those of its tokens' keys and values that were computed elsewhere are there to be taken over, as far as there are any. */
  handed = false;
  /** Which these are. */
  handedSpan: Span = [0, 0];
  /** Whether it has been left out already of contexts that ran. */
  leftOut = false;

  constructor(
    spec: RequestSpec,
    /** Submission number: breaks ties. */
    readonly ordinal: number,
    iteration: number,
    maxTokens: number,
    agingIterations: number,
    readonly client = new Client(spec.client),
  ) {
    this.id = spec.id;
    this.prompt = spec.prompt;
    this.promptLength = spec.prompt.length;
    this.spans = spec.generatedSpans ?? [];
    this.generated = [...(spec.continuation ?? [])];
    this.sampled = this.generated.length;
    this.received = this.generated.length;
    this.maxTokens = this.generated.length + maxTokens;
    this.clamped = maxTokens < spec.maxTokens;
    this.prefillOnly = spec.maxTokens === 0;
    this.computeFrom = spec.computeFrom ?? Infinity;
    this.adapter = spec.adapter;
    this.computedHere = spec.computedHere ?? true;
    this.stepwise = spec.stepwise ?? false;
    this.firstTokenDeadline = spec.firstTokenDeadline ?? Infinity;
    this.priority = spec.priority ?? 0;
    this.order = virtualArrival(iteration, this.priority, agingIterations);
  }

  /** Of `stepwise`: the next token may be sampled, behind `tokens`, which weren't. */
  goOn(tokens: readonly number[]): void {
    this.held = false;
    this.generated.push(...tokens);
    this.sampled += tokens.length;
    this.received += tokens.length;
  }

  /** Tokens that must be in the cache before the next decode row; the prompt, and after a preemption what was generated. */
  get target(): number {
    if (this.prefillOnly) return this.promptLength + this.sampled;
    return this.sampled === 0 ? this.promptLength : this.promptLength + this.sampled - 1;
  }

  /** Tokens in the cache at its longest: the last one generated is never fed. */
  get most(): number {
    return this.prefillOnly ? this.target : this.promptLength + this.maxTokens - 1;
  }

  /** Whether its prompt can be computed, or is there to be taken over. */
  get hasPrompt(): boolean {
    return this.computedHere || this.handed;
  }

  roleAt(position: number): RowRole {
    const isGenerated =
      position >= this.promptLength || this.spans.some(([start, end]) => position >= start && position < end);
    return isGenerated ? 'generated' : 'prompt';
  }

  /** Where the run of rows of one role ends that `position` is in, at most at `target`. */
  runEnd(position: number): number {
    if (position >= this.promptLength) return this.target;
    for (const [start, end] of this.spans) {
      if (position < start) return start;
      if (position < end) return end;
    }
    return Math.min(this.target, this.promptLength);
  }

  tokenAt(position: number): number {
    const token = position < this.promptLength ? this.prompt[position] : this.generated[position - this.promptLength];
    if (token === undefined) {
      throw internalError(`request ${this.id}: the token at position ${position} isn't known`);
    }
    return token;
  }
}

/** @throws SplitkvError `usage` for an impossible request. */
export function checkSpec(spec: RequestSpec): void {
  const { id, prompt, generatedSpans = [] } = spec;
  if (typeof id !== 'string' || id === '') throw usageError(`request: id ${String(id)}: expected a text`);
  if (!Number.isSafeInteger(prompt?.length) || prompt.length < 1) {
    throw usageError(`request ${id}: the prompt is empty: give at least one token`);
  }
  checkOptions(`request ${id}`, spec, SPEC);
  let before = 0;
  for (const [start, end] of generatedSpans) {
    if (!(Number.isSafeInteger(start) && Number.isSafeInteger(end) && start >= before && end > start)) {
      throw usageError(`request ${id}: generatedSpans [${start}, ${end}): expected ascending, disjoint positions`);
    }
    before = end;
  }
  if (before >= prompt.length && before > 0) {
    throw usageError(`request ${id}: generatedSpans reach the end of the prompt; its last token is of none`);
  }
}
