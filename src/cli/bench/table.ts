import type { BenchEnvironment } from './environment.js';

/** Rows under a heading, aligned: the first `textColumns` to the left, the others, numbers, to the right. */
export function alignedTable(rows: readonly (readonly string[])[], textColumns: number): string {
  const columns = Math.max(...rows.map((row) => row.length));
  const widths = Array.from({ length: columns }, (_, i) => Math.max(...rows.map((row) => (row[i] ?? '').length)));
  const line = (row: readonly string[]): string =>
    row
      .map((text, i) => (i < textColumns ? text.padEnd(widths[i]!) : text.padStart(widths[i]!)))
      .join('  ')
      .trimEnd();
  return `${rows.map(line).join('\n')}\n`;
}

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

export const megabytes = (bytes: number | undefined): string => (bytes === undefined ? '-' : (bytes / 1e6).toFixed(0));

export const decimals = (value: number): string => (value >= 100 ? value.toFixed(0) : value.toPrecision(3));
