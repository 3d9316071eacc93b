import { didYouMean, usageError } from '../../base/errors.js';
import { checkOptions, type OptionsSchema } from '../../base/options.js';
import type { PrefillOptions } from './api.js';
import { ONNX_PROVIDERS, PREFILL_KINDS } from './prefill_worker.js';

const schema: OptionsSchema<PrefillOptions> = { kind: true, adapter: true, runtime: true, provider: true };

/** @throws SplitkvError `usage` for options that say nothing known, or workers that don't go together */
export function checkPrefill(options: PrefillOptions | readonly PrefillOptions[] | undefined): void {
  if (options === undefined) return;
  const workers = prefillList(options);
  if (workers.length === 0) throw usageError('prefill []: give a worker, or leave it out');
  for (const worker of workers) checkWorker(worker);
  const kinds = new Set(workers.map(({ kind }) => kind));
  if (kinds.size > 1) {
    throw usageError(
      `prefill kinds ${[...kinds].join(' and ')}: their keys and values differ in their last bits, so which worker has a prompt would ` +
        'show: give all workers one kind',
    );
  }
}

/** A worker each. */
export const prefillList = (options: PrefillOptions | readonly PrefillOptions[]): readonly PrefillOptions[] =>
  Array.isArray(options) ? (options as readonly PrefillOptions[]) : [options as PrefillOptions];

function checkWorker(options: PrefillOptions): void {
  if (typeof options !== 'object' || options === null) {
    throw usageError(`prefill ${JSON.stringify(options)}: expected { kind: '${PREFILL_KINDS.join("' or '")}' }`);
  }
  checkOptions('prefill', options, schema);
  const { kind, adapter, runtime, provider } = options;
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
  if (runtime !== undefined && typeof runtime !== 'string' && !(runtime instanceof URL)) {
    throw usageError(`prefill runtime ${JSON.stringify(runtime)}: expected the URL of onnxruntime-web's dist folder`);
  }
  if (provider !== undefined && !ONNX_PROVIDERS.includes(provider)) {
    throw usageError(
      `prefill provider '${String(provider)}': use ${ONNX_PROVIDERS.join(' or ')}.${didYouMean(String(provider), ONNX_PROVIDERS)}`,
    );
  }
  if (kind === 'splitkv' && (runtime ?? provider) !== undefined) {
    throw usageError(
      `prefill ${runtime === undefined ? 'provider' : 'runtime'}: it means something to kind 'onnxruntime' only; leave it out`,
    );
  }
}
