import { usageError } from '../../../base/errors.js';
import type { AttentionDpOptions, PrefillOptions } from '../api.js';

/** Readers of what people type for ranks and their memory. */

const MOST_WORKERS = 64;

/**
 * A number of ranks, or an adapter for each with commas between.
 * @param given the option with its text, as messages show it: `--ranks 2,`
 * @throws SplitkvError `usage`
 */
export function parseRanks(text: string, given: string): number | readonly string[] {
  if (/^\d+$/.test(text)) return Number(text);
  const names = text.split(',').map((name) => name.trim());
  if (names.includes('') || names.some((name) => /^[-+]?[\d.]+$/.test(name))) {
    throw usageError(
      `${given}: expected a number of ranks, or an adapter for each, such as "high-performance,low-power"`,
    );
  }
  return names;
}

/**
 * Prefill workers: how many, or an adapter for each with commas between.
 * @param given as for `parseRanks`
 * @throws SplitkvError `usage`
 */
export function parsePrefill(text: string, given: string): readonly PrefillOptions[] {
  const workers = parseRanks(text, given);
  if (typeof workers !== 'number') return workers.map((adapter) => ({ kind: 'splitkv', adapter }));
  if (workers < 1 || workers > MOST_WORKERS) throw usageError(`${given}: expected 1 to ${MOST_WORKERS} workers`);
  return Array.from({ length: workers }, () => ({ kind: 'splitkv' as const }));
}

/**
 * `attentionDpConfig` as JSON; the library judges what is in it.
 * @param given as for `parseRanks`
 * @throws SplitkvError `usage`
 */
export function parseAttentionDp(text: string, given: string): AttentionDpOptions {
  try {
    return JSON.parse(text) as AttentionDpOptions;
  } catch {
    throw usageError(`${given}: expected JSON, such as {"enable_balance": false}`);
  }
}

/**
 * Bytes.
 * @param given as for `parseRanks`
 * @throws SplitkvError `usage`
 */
export function parseSize(text: string, given: string): number {
  const bytes = parseMemory(text, given);
  if (typeof bytes === 'number' && bytes > 0) return bytes;
  throw usageError(`${given}: expected one size above 0, such as 500MB`);
}

/**
 * Bytes: one size for all ranks, or one for each with commas between.
 * @param given as for `parseRanks`
 * @throws SplitkvError `usage`
 */
export function parseMemory(text: string, given: string): number | readonly number[] {
  const sizes = text.split(',').map((part) => {
    const match = /^(\d+(?:\.\d+)?)\s*(?:(?:([kmg])(i)?)?b)?$/i.exec(part.trim());
    if (!match) {
      throw usageError(
        `${given}: expected a size such as 500MB, 1.5GB or 300MiB, or one for each rank with commas between`,
      );
    }
    const [, number, prefix = '', binary] = match;
    return Math.floor(Number(number) * (binary ? 1024 : 1000) ** ' kmg'.indexOf(prefix.toLowerCase()));
  });
  return sizes.length === 1 ? sizes[0]! : sizes;
}
