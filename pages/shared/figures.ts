import { formatBytes } from '../../src/base/math.js';
import type { RunStats } from '../../src/index.js';
import { sum } from '../../src/base/lists.js';

/** A number with its name, for people. */
export type Figure = readonly [name: string, text: string];

/** Tokens that have come since the first of an answer that is being written. */
export interface Progress {
  readonly tokens: number;
  readonly seconds: number;
}

const UNKNOWN = '–';
const known = (value: number, text: string): string => (value > 0 ? text : UNKNOWN);

/**
 * Speed and traffic of all ranks together. While an answer is being written its speed is that of its tokens so far; the rest is of
 * the last answer that ended.
 */
export function figures(stats: RunStats, progress?: Progress): Figure[] {
  const speed = progress ? (progress.tokens - 1) / progress.seconds : stats.tokens_per_second;
  const list: Figure[] = [['Tokens/s', Number.isFinite(speed) ? known(speed, speed.toFixed(1)) : UNKNOWN]];
  if (stats.ranks.length === 1) return list;
  const sent = sum(stats.ranks.map(({ bytes_per_token: bytes }) => bytes));
  const besides = Math.max(
    ...stats.ranks.map(({ exchange_ms_per_token: moves, wait_ms_per_token: waits }) => moves + waits),
  );
  return [
    ...list,
    ['Exchanges per token', String(stats.exchanges_per_token)],
    ['Sent per token', known(sent + besides, formatBytes(Math.round(sent)))],
    ['Exchange and wait per token', known(besides, milliseconds(besides))],
  ];
}

/** What one rank sent, and what a token's time was on it, of an answer attention's too; empty where there is nobody to send to. */
export function rankTraffic(stats: RunStats, rank: number): Figure[] {
  const own = stats.ranks[rank]!;
  if (stats.ranks.length === 1) return [];
  const { bytes_per_token: bytes, compute_ms_per_token: computes } = own;
  const part = (ms: number): string => known(computes, milliseconds(ms));
  const attention = stats.attention?.ms_per_step?.[rank];
  return [
    // Of a sequence that is short all chunks may lie with another rank, and this one has nothing to send.
    ['Sent per token', known(computes, formatBytes(Math.round(bytes)))],
    ['Computes', part(computes)],
    ...(attention === undefined ? [] : [['Attention', milliseconds(attention)] as const]),
    ['Exchanges', part(own.exchange_ms_per_token)],
    ['Waits', part(own.wait_ms_per_token)],
  ];
}

export const milliseconds = (ms: number): string => `${ms.toFixed(ms < 10 ? 2 : 1)} ms`;
