import { createHash } from 'node:crypto';
import type { ServingInfo } from '../index.js';

/**
 * OpenAI's `system_fingerprint`: of equal ones, a request with the same seed gets the same text, bit for bit, for the same model
 * files. What only says how the work is shared (plan, ranks, slots, micro-batches) takes no part.
 */
export function fingerprintOf(version: string, info: ServingInfo): string {
  const { name, architecture, parameters, shape, weights, kv, adapter } = info;
  const parts = [version, name, architecture, parameters, shape, weights, kv, adapter];
  return `fp_${createHash('sha256').update(JSON.stringify(parts)).digest('hex').slice(0, 12)}`;
}
