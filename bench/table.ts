import type { BenchEnvironment, Comparison } from './document.js';
import { alignedTable } from '../src/base/aligned_table.js';
import type { Estimate } from './statistics.js';

/** Where and on what the numbers were taken, as lines for people. */
export function environmentLines(environment: BenchEnvironment): string {
  const { date, commit, host, node, chrome, os, cpu, cpu_threads: threads, adapters, note } = environment;
  const runtime = host === 'chrome' ? `Chrome ${chrome ?? 'of unknown version'}` : `Node ${node}`;
  const names = adapters.map(({ name, software }) => `${name}${software ? ' (software)' : ''}`).join(', ');
  return [
    `${date.slice(0, 16).replace('T', ' ')} UTC, ${commit === undefined ? 'no checkout' : `commit ${commit}`}, ${runtime}, ${os}`,
    `${cpu}, ${threads} threads; adapter: ${names || 'none'}`,
    ...(note === undefined ? [] : [note]),
    '',
  ].join('\n');
}

export function comparisonTable({ date, commit, differences, changes }: Comparison): string {
  const heading = `Against ${date.slice(0, 16).replace('T', ' ')} UTC${commit === undefined ? '' : `, commit ${commit}`}:`;
  const rows = changes.map(({ metric, unit, setting, before, after, gain, verdict }) => [
    metric,
    settingText(setting),
    unit,
    before === undefined ? '-' : decimals(before),
    after === undefined ? '-' : decimals(after),
    gain === undefined ? '-' : ratio(gain),
    verdict,
  ]);
  const notes = differences.length === 0 ? [] : [`Not like for like: ${differences.join('; ')}.`];
  return [
    heading,
    ...notes,
    alignedTable([['metric', 'setting', 'unit', 'before', 'now', 'gain', ''], ...rows], 3),
    'gain: above 1 is better now; the interval holds the true one in 95 of 100 cases (bootstrap of medians).\n',
  ].join('\n');
}

export const settingText = (setting: Readonly<Record<string, string | number>>): string =>
  Object.entries(setting)
    .map(([name, value]) => (typeof value === 'number' ? `${name.replaceAll('_', ' ')} ${value}` : value))
    .join(', ');

/** A ratio and its interval: `1.52 (1.47 to 1.58)`. */
export const ratio = ({ value, low, high }: Estimate): string =>
  `${value.toFixed(2)} (${low.toFixed(2)} to ${high.toFixed(2)})`;

export const megabytes = (bytes: number | undefined): string => (bytes === undefined ? '-' : (bytes / 1e6).toFixed(0));

export const decimals = (value: number): string => (value >= 100 ? value.toFixed(0) : value.toPrecision(3));
