import type { GenerateOptions, GenerateResult, LoadOptions, LogitsOptions, LogitsResult, ModelInfo, RunStats } from '../index.js';

/** What of a load can be told to another process. */
export type PlainLoadOptions = Omit<LoadOptions, 'onProgress' | 'onWarning' | 'signal'>;

export interface HostRequest {
  /** A model folder, or an http(s) URL of one. */
  readonly model: string;
  readonly options: PlainLoadOptions;
  readonly signal: AbortSignal;
  readonly onProgress: (line: string) => void;
  readonly onWarning: (message: string) => void;
}

/** A loaded model, in this process or in a browser: commands don't know which. */
export interface ModelHost {
  readonly info: ModelInfo;
  /** @param raw feeds the prompt as it is, without the model's chat template */
  generate(prompt: string, raw: boolean, options: GenerateOptions, onText: (piece: string) => void): Promise<GenerateResult>;
  logits(tokens: readonly number[], options: LogitsOptions): Promise<LogitsResult>;
  stats(): Promise<RunStats>;
  close(): Promise<void>;
}
