import { didYouMean, usageError } from '../../../base/errors.js';
import { isObject, show } from '../../../base/json.js';

/** How requests go to ranks and when their contexts run, under attention data parallelism. */
export interface AttentionDpConfig {
  /** `trtllm`: TensorRT-LLM's rules, step by step. `cost` (default): by fitted times. */
  readonly mode: 'trtllm' | 'cost';
  /** Whether contexts wait for company; false runs each as soon as it fits. Mode `cost` then waits only where it gains. */
  readonly enableBalance: boolean;
  /** Iterations that contexts wait for every rank to have one. */
  readonly timeoutIters: number;
  /** Iterations that they then wait for more. */
  readonly batchingWaitIters: number;
}

const KEYS = ['mode', 'enable_balance', 'timeout_iters', 'batching_wait_iters'];

/**
 * Reads `attention_dp_config: { mode, enable_balance, timeout_iters, batching_wait_iters }`. Defaults: cost, true with cost (with trtllm false, as there), 50, 10.
 * The cost mode reads the two numbers as how long it may make a request wait that could run: their sum at most, see cost_policy.ts,
 * and once more where it is left behind when others run.
 * @throws SplitkvError `usage`
 */
export function parseAttentionDpConfig(value: unknown): AttentionDpConfig {
  if (!isObject(value)) throw usageError(`attention_dp_config ${show(value)}: expected an object`);
  for (const key of Object.keys(value)) {
    if (!KEYS.includes(key)) throw usageError(`attention_dp_config: unknown key '${key}'.${didYouMean(key, KEYS)}`);
  }
  const { mode = 'cost', enable_balance: balance = mode === 'cost' } = value;
  if (mode !== 'trtllm' && mode !== 'cost') {
    throw usageError(`attention_dp_config: mode ${show(mode)}: expected "trtllm" or "cost"`);
  }
  if (typeof balance !== 'boolean') {
    throw usageError(`attention_dp_config: enable_balance ${show(balance)}: expected true or false`);
  }
  return {
    mode,
    enableBalance: balance,
    timeoutIters: iterations('timeout_iters', value['timeout_iters'], 50),
    batchingWaitIters: iterations('batching_wait_iters', value['batching_wait_iters'], 10),
  };
}

function iterations(name: string, value: unknown, preset: number): number {
  if (value === undefined) return preset;
  if (Number.isSafeInteger(value) && (value as number) >= 0) return value as number;
  throw usageError(`attention_dp_config: ${name} ${show(value)}: expected an integer of at least 0`);
}
