import { formatBytes } from '../../base/math.js';
import type { RunStats } from '../../index.js';
import { sum } from '../../base/lists.js';

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
  const slowest = Math.max(...stats.ranks.map(({ us_per_exchange: microseconds }) => microseconds));
  return [
    ...list,
    ['Exchanges per token', String(stats.exchanges_per_token)],
    ['Sent per token', known(sent, formatBytes(Math.round(sent)))],
    ['Waits per token', known(slowest, milliseconds(slowest * stats.exchanges_per_token))],
  ];
}

/** What one rank sent and waited for; empty where there is nobody to send to. */
export function rankTraffic(stats: RunStats, rank: number): Figure[] {
  const own = stats.ranks[rank]!;
  if (stats.ranks.length === 1) return [];
  const { bytes_per_token: bytes, us_per_exchange: microseconds } = own;
  return [
    ['Sent per token', known(bytes, formatBytes(Math.round(bytes)))],
    ['Exchange', known(microseconds, milliseconds(microseconds))],
  ];
}

const milliseconds = (microseconds: number): string =>
  `${(microseconds / 1000).toFixed(microseconds < 10_000 ? 2 : 1)} ms`;
