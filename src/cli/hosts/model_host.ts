/**
 * Room: where a command's model runs: in this process on Dawn (node_host.ts), or in a page of Chrome (chrome_host.ts,
 * which src/app/host.ts answers). Both give the same documents.
 */

import type { Browser } from 'playwright-core';
import type { PlainLoadOptions } from '../../app/host_protocol.js';
import type { ProgressPart } from '../../app/shared/progress.js';
import type { TextFeed, TurnRequest, TurnResult } from '../../app/shared/chat_turn.js';
import type { GenerateOptions, GenerateResult, KeptEntries, LogitsOptions, ModelInfo, RunStats } from '../../index.js';

export interface HostRequest {
  /** A model folder, or an http(s) URL of one. */
  readonly model: string;
  readonly options: PlainLoadOptions;
  readonly signal: AbortSignal;
  readonly onProgress: (line: string, part?: ProgressPart) => void;
  readonly onWarning: (message: string) => void;
  /** Called with the browser before it loads the model; never by a host without one. */
  readonly onBrowser?: (browser: Browser) => Promise<void>;
}

/** A loaded model, in this process or in a browser: commands don't know which. */
export interface ModelHost {
  readonly info: ModelInfo;
  generate(
    prompt: string | readonly number[],
    feed: TextFeed,
    options: GenerateOptions,
    onText: (piece: string) => void,
  ): Promise<GenerateResult>;
  /** Answers several prompts side by side; results in the order of the prompts. */
  generateMany(
    prompts: readonly (string | readonly number[])[],
    feed: TextFeed,
    options: GenerateOptions,
  ): Promise<GenerateResult[]>;
  /** A turn of a conversation, which is in the request and in the result. */
  turn(request: TurnRequest, signal: AbortSignal, onText: (piece: string) => void): Promise<TurnResult>;
  /** Rows go to `onRow` alone. */
  logits(tokens: readonly number[], options: LogitsOptions & Required<Pick<LogitsOptions, 'onRow'>>): Promise<void>;
  /** What compression keeps of a prompt, fed as it is. */
  kept(prompt: string | readonly number[]): Promise<KeptEntries>;
  stats(): Promise<RunStats>;
  close(): Promise<void>;
}
