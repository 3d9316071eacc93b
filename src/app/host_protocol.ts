import type { AdaptersMeasure, ErrorCode, LoadOptions, ModelInfo, PlanModelOptions, PlanReport } from '../index.js';
import type { AdapterEntry } from './shared/adapter_list.js';
import type { Hearing, ModelCalls } from './shared/model_calls.js';
import type { ProgressPart } from './shared/progress.js';

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
  /** To the folder of keys and values that the page was told of; its bytes as base64. */
  | { readonly kind: 'kv'; readonly call: 'write' | 'flush'; readonly name: string; readonly base64: string }
  /** One row of f32 logits, little-endian, as base64: a tenth of the time that JSON numbers take. */
  | { readonly kind: 'row'; readonly position: number; readonly base64: string };

/** Errors can't cross as objects; codes do, so that exit codes are the same as in Node. */
export type Outcome<T> =
  | { readonly ok: true; readonly value: T }
  | { readonly ok: false; readonly code: ErrorCode; readonly message: string; readonly stack?: string };

/** What the page does. Those of the model need one that is open. */
export interface HostCalls extends ModelCalls {
  open(hearing: Hearing, url: string, options: PlainLoadOptions): Promise<ModelInfo>;
  adapters(): Promise<AdapterEntry[]>;
  /** @param preferences of the adapters to measure */
  measure(hearing: Hearing, preferences: readonly GPUPowerPreference[]): Promise<AdaptersMeasure>;
  plan(hearing: Hearing, url: string, options: PlainPlanOptions): Promise<PlanReport>;
  close(): Promise<void>;
}

/** What a call is given beside its hearing. */
export type Given<Name extends keyof HostCalls> = HostCalls[Name] extends (hearing: never, ...given: infer G) => unknown
  ? G
  : never;

export interface HostPage {
  /** Texts and rows that a call tells of have come, as events, when it ends. */
  ask(name: keyof HostCalls, given: readonly unknown[]): Promise<Outcome<unknown>>;
  /** Ends what is running with 'aborted'. */
  abort(): void;
}
