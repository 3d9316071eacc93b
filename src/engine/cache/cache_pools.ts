import { layerWindows, type ModelConfig } from '../../model/config/model_config.js';
import { CachePools, keptWindow, type Owners, type Plan } from '../../placement/index.js';
import type { RunnerOptions } from '../contracts/rank.js';

/** Whether heads have blocks and tables of their own, as they keep different entries: prompts are compressed, or heads are copied. */
export const hasHeadTables = ({ sharing }: Plan, { compression }: RunnerOptions): boolean =>
  compression !== undefined || sharing !== undefined;

/** The pools of a model's cache: alike for every rank and for who hands their blocks out. */
export function cachePools(
  owners: Owners,
  config: Pick<ModelConfig, 'layers'>,
  { contextLength, prefillChunk, kvBlocks, compression, windows, keepsAll = false }: RunnerOptions,
): CachePools {
  const options = { contextLength, prefillChunk, compressed: compression !== undefined };
  const window = keepsAll ? undefined : keptWindow(owners.plan, layerWindows(config), options);
  return new CachePools(owners, contextLength, kvBlocks, window, windows);
}
