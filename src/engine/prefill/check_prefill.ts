import { didYouMean, usageError } from '../../base/errors.js';
import type { PrefillOptions } from '../api.js';
import { PREFILL_KINDS } from './prefill_worker.js';

const KEYS: readonly string[] = ['kind', 'adapter'] satisfies (keyof PrefillOptions)[];

/** @throws SplitkvError `usage` for options that say nothing known */
export function checkPrefill(options: PrefillOptions | undefined): void {
  if (options === undefined) return;
  if (typeof options !== 'object' || options === null) {
    throw usageError(`prefill ${JSON.stringify(options)}: expected { kind: '${PREFILL_KINDS.join("' or '")}' }`);
  }
  for (const key of Object.keys(options)) {
    if (!KEYS.includes(key)) throw usageError(`prefill: unknown option '${key}'.${didYouMean(key, KEYS)}`);
  }
  const { kind, adapter } = options;
  if (!PREFILL_KINDS.includes(kind)) {
    throw usageError(
      `prefill kind '${String(kind)}': use ${PREFILL_KINDS.join(' or ')}.${didYouMean(String(kind), PREFILL_KINDS)}`,
    );
  }
  if (adapter !== undefined && typeof adapter !== 'string') {
    throw usageError(`prefill adapter ${JSON.stringify(adapter)}: expected a name, or high-performance or low-power`);
  }
  if (kind === 'onnxruntime' && adapter !== undefined) {
    throw usageError(
      `prefill adapter '${adapter}': onnxruntime-web chooses its own; leave it out, or use kind 'splitkv'`,
    );
  }
}
