import { didYouMean, unsupportedError, usageError } from '../../../base/errors.js';
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
const CACHE_AWARE = 'enable_kv_cache_aware_routing';
/** TensorRT-LLM's, by which its router follows cached prefixes: tensorrt_llm/usage/llm_args_golden_manifest.json of its repository. */
const ROUTING_KEYS: readonly string[] = [
  CACHE_AWARE,
  'kv_cache_routing_account_for_in_transfer',
  'kv_cache_routing_cold_start_warmup',
  'kv_cache_routing_conversation_affinity',
  'kv_cache_routing_fair_share_multiplier',
  'kv_cache_routing_load_balance_weight',
  'kv_cache_routing_match_rate_threshold',
  'kv_cache_routing_max_sessions',
  'kv_cache_routing_new_conv_placement',
];

/**
 * Reads `attention_dp_config: { mode, enable_balance, timeout_iters, batching_wait_iters }`. Defaults: cost, true with cost (with trtllm false, as there), 50, 10.
 * The cost mode reads the two numbers as how long it may make a request wait that could run: their sum at most, see cost_policy.ts,
 * and once more where it is left behind when others run.
 * @throws SplitkvError `usage`, and `unsupported` for TensorRT-LLM's keys of cached prefixes
 */
export function parseAttentionDpConfig(value: unknown): AttentionDpConfig {
  if (!isObject(value)) throw usageError(`attention_dp_config ${show(value)}: expected an object`);
  for (const key of Object.keys(value)) {
    if (ROUTING_KEYS.includes(key)) checkRouting(key, value);
    else if (!KEYS.includes(key))
      throw usageError(`attention_dp_config: unknown key '${key}'.${didYouMean(key, KEYS)}`);
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

/** Mode cost always counts what of a prompt a rank has cached; TensorRT-LLM's own rules of it aren't followed. */
function checkRouting(key: string, { [key]: value, mode = 'cost' }: Readonly<Record<string, unknown>>): void {
  if (value === false || (key === CACHE_AWARE && value === true && mode === 'cost')) return;
  throw unsupportedError(
    `attention_dp_config: TensorRT-LLM's ${key} ${show(value)} isn't followed here; leave it out: mode "cost" sends ` +
      'requests where most of their prompt is cached, by fitted times',
  );
}

function iterations(name: string, value: unknown, preset: number): number {
  if (value === undefined) return preset;
  if (Number.isSafeInteger(value) && (value as number) >= 0) return value as number;
  throw usageError(`attention_dp_config: ${name} ${show(value)}: expected an integer of at least 0`);
}
