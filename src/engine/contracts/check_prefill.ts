import { didYouMean, usageError } from '../../base/errors.js';
import { checkOptions, type OptionsSchema } from '../../base/options.js';
import type { PrefillOptions } from './api.js';

const schema: OptionsSchema<PrefillOptions> = { kind: true, adapter: true };

/** @throws SplitkvError `usage` for options that say nothing known */
export function checkPrefill(options: PrefillOptions | readonly PrefillOptions[] | undefined): void {
  if (options === undefined) return;
  const workers = prefillList(options);
  if (workers.length === 0) throw usageError('prefill []: give a worker, or leave it out');
  for (const worker of workers) checkWorker(worker);
}

/** A worker each. */
export const prefillList = (options: PrefillOptions | readonly PrefillOptions[]): readonly PrefillOptions[] =>
  Array.isArray(options) ? (options as readonly PrefillOptions[]) : [options as PrefillOptions];

function checkWorker(options: PrefillOptions): void {
  if (typeof options !== 'object' || options === null) {
    throw usageError(`prefill ${JSON.stringify(options)}: expected { kind: 'splitkv' }`);
  }
  checkOptions('prefill', options, schema);
  const { kind, adapter } = options;
  if (kind !== 'splitkv') {
    throw usageError(`prefill kind '${String(kind)}': use splitkv.${didYouMean(String(kind), ['splitkv'])}`);
  }
  if (adapter !== undefined && typeof adapter !== 'string') {
    throw usageError(`prefill adapter ${JSON.stringify(adapter)}: expected a name, or high-performance or low-power`);
  }
}
