import type {
  AdaptersMeasure,
  ErrorCode,
  GenerateOptions,
  GenerateResult,
  KeptEntries,
  LoadOptions,
  ModelInfo,
  PlanModelOptions,
  PlanReport,
  RunStats,
} from '../index.js';
import type { ProgressPart } from './shared/progress.js';
import type { TextFeed, TurnRequest, TurnResult } from './shared/chat_turn.js';
import type { AdapterEntry } from './shared/adapter_list.js';

/** What of a load can be told to another process. */
export type PlainLoadOptions = Omit<LoadOptions, 'onProgress' | 'onWarning' | 'signal' | 'fetch'>;

export type PlainPlanOptions = Omit<PlanModelOptions, 'onProgress' | 'signal' | 'fetch'>;

/**
 * What the command line and the page it runs in say to each other: calls go to `window.splitkvHost` by Playwright's evaluate, events
 * come back by the exposed function `splitkvEvent`.
 */
export type HostEvent =
  | { readonly kind: 'alive' }
  | { readonly kind: 'progress'; readonly line: string; readonly part?: ProgressPart }
  | { readonly kind: 'warning'; readonly message: string }
  | { readonly kind: 'text'; readonly piece: string }
  /** One row of f32 logits, little-endian, as base64: a tenth of the time that JSON numbers take. */
  | { readonly kind: 'row'; readonly position: number; readonly base64: string };

/** Errors can't cross as objects; codes do, so that exit codes are the same as in Node. */
export type Outcome<T> =
  | { readonly ok: true; readonly value: T }
  | { readonly ok: false; readonly code: ErrorCode; readonly message: string; readonly stack?: string };

export interface HostPage {
  open(url: string, options: PlainLoadOptions): Promise<Outcome<ModelInfo>>;
  /** @param prompt a text, or token ids */
  generate(
    prompt: string | readonly number[],
    feed: TextFeed,
    options: Omit<GenerateOptions, 'signal'>,
  ): Promise<Outcome<GenerateResult>>;
  generateMany(
    prompts: readonly (string | readonly number[])[],
    feed: TextFeed,
    options: Omit<GenerateOptions, 'signal'>,
  ): Promise<Outcome<GenerateResult[]>>;
  turn(request: TurnRequest): Promise<Outcome<TurnResult>>;
  /** Rows come as events; the value is their number. */
  logits(tokens: readonly number[], all: boolean, promptLength?: number): Promise<Outcome<number>>;
  kept(prompt: string | readonly number[]): Promise<Outcome<KeptEntries>>;
  stats(): Promise<Outcome<RunStats>>;
  adapters(): Promise<Outcome<AdapterEntry[]>>;
  /** @param preferences of the adapters to measure */
  measure(preferences: readonly GPUPowerPreference[]): Promise<Outcome<AdaptersMeasure>>;
  plan(url: string, options: PlainPlanOptions): Promise<Outcome<PlanReport>>;
  /** Ends what is running with 'aborted'. */
  abort(): void;
  close(): Promise<Outcome<null>>;
}
