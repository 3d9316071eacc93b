import type { CodePoints } from './code_points.js';

type ByteRange = readonly [low: number, high: number];

const encoder = new TextEncoder();
const bytesOf = (code: number): number[] => [...encoder.encode(String.fromCodePoint(code))];

/** The bytes of a set's characters: runs of ranges, one of which each character is. */
export function byteRuns(set: CodePoints): ByteRange[][] {
  const runs: ByteRange[][] = [];
  // What takes as many bytes.
  for (const [first, last] of [
    [0, 0x7f],
    [0x80, 0x7ff],
    [0x800, 0xffff],
    [0x10000, 0x10ffff],
  ] as const) {
    // prettier-ignore
    for (const [from, to] of set) {
      const [low, high] = [Math.max(from, first), Math.min(to, last)];
      if (low <= high) runs.push(...runsBetween(bytesOf(low), bytesOf(high)));
    }
  }
  return runs;
}

/** The texts of bytes from `low` to `high`, of the same length, as products of ranges. */
function runsBetween(low: readonly number[], high: readonly number[]): ByteRange[][] {
  const [a, b] = [low[0]!, high[0]!];
  if (low.length === 1) return [[[a, b]]];
  const [restA, restB] = [low.slice(1), high.slice(1)];
  if (a === b) return runsBetween(restA, restB).map((rest): ByteRange[] => [[a, a], ...rest]);
  const [least, most] = [restA.map(() => 0x80), restA.map(() => 0xbf)];
  const wholeA = restA.every((byte) => byte === 0x80);
  const wholeB = restB.every((byte) => byte === 0xbf);
  const first = wholeA ? a : a + 1;
  const last = wholeB ? b : b - 1;
  return [
    ...(wholeA ? [] : runsBetween(restA, most).map((rest): ByteRange[] => [[a, a], ...rest])),
    ...(first <= last ? [[[first, last] as const, ...least.map((): ByteRange => [0x80, 0xbf])]] : []),
    ...(wholeB ? [] : runsBetween(least, restB).map((rest): ByteRange[] => [[b, b], ...rest])),
  ];
}
