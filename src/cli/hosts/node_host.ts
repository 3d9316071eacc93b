/**
 * Room: where a command's model runs: in this process on Dawn (here), or in a page of Chrome (chrome_host.ts, which
 * src/app/host.ts answers). Both answer the same calls (src/app/shared/model_calls.ts).
 */

import type { Browser } from 'playwright-core';
import type { PlainLoadOptions } from '../../app/host_protocol.js';
import { type ModelCalls, modelCalls } from '../../app/shared/model_calls.js';
import { type ProgressPart, progressLines } from '../../app/shared/progress.js';
import { load, type ModelInfo } from '../../index.js';

/** How something long says how far it is, and when it stops. */
export interface Telling {
  readonly signal: AbortSignal;
  readonly onProgress: (line: string, part?: ProgressPart) => void;
  readonly onWarning: (message: string) => void;
}

export interface HostRequest extends Telling {
  /** A model folder, or an http(s) URL of one. */
  readonly model: string;
  readonly options: PlainLoadOptions;
  /** Called with the browser before it loads the model; never by a host without one. */
  readonly onBrowser?: (browser: Browser) => Promise<void>;
}

/** A loaded model, in this process or in a browser: commands don't know which. */
export interface ModelHost extends ModelCalls {
  readonly info: ModelInfo;
  close(): Promise<void>;
}

/** Loads the model in this process (WebGPU by Dawn). */
export async function openNodeHost({ model: where, options, ...telling }: HostRequest): Promise<ModelHost> {
  const { signal, onProgress, onWarning } = telling;
  const model = await load(where, { ...options, signal, onWarning, onProgress: progressLines(onProgress) });
  return { info: model.info, ...modelCalls(model), close: () => model.dispose() };
}
