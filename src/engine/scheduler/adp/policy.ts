/**
 * Room: which rank takes a request, and when prompts run, where each request lives on one rank: TensorRT-LLM's rules
 * (trtllm_policy.ts) or fitted times (cost_policy.ts). docs/adp.md explains.
 */

import type { SchedulerConfig } from '../config.js';
import { KvPolicy } from '../kv/kv_policy.js';
import { type ContextPolicy, OnePool } from '../routing.js';
import { CostPolicy } from './cost_policy.js';
import { TrtllmPolicy } from './trtllm_policy.js';

export function contextPolicy(config: SchedulerConfig): ContextPolicy {
  if (config.ranks.length === 1) return new OnePool();
  if (config.sharedRows) return new KvPolicy(config.handover, config.shiftsSlots && config.eviction === undefined);
  return config.attentionDp.mode === 'trtllm' ? new TrtllmPolicy(config) : new CostPolicy(config);
}
