import { valueIn } from '../base/lists.js';

/** Sets of Unicode scalar values: code points without surrogates, as sorted, disjoint, inclusive ranges. */
export type CodePoints = readonly (readonly [first: number, last: number])[];

const LAST = 0x10ffff;
/** Every character. */
export const ALL: CodePoints = [
  [0, 0xd7ff],
  [0xe000, LAST],
];
export const NONE: CodePoints = [];

/** Ranges in any order, which may overlap. */
export function codePoints(ranges: readonly (readonly [number, number])[]): CodePoints {
  const merged: [number, number][] = [];
  for (const [first, last] of ranges.toSorted((a, b) => a[0] - b[0])) {
    const before = merged.at(-1);
    if (before && first <= before[1] + 1) before[1] = Math.max(before[1], last);
    else merged.push([first, last]);
  }
  return intersection(merged, ALL);
}

export const characters = (text: string): CodePoints =>
  codePoints(Array.from(text, (character) => character.codePointAt(0) ?? 0).map((code) => [code, code]));

export const union = (...sets: readonly CodePoints[]): CodePoints => codePoints(sets.flat());

export function intersection(a: CodePoints, b: CodePoints): CodePoints {
  const both: [number, number][] = [];
  for (let i = 0, j = 0; i < a.length && j < b.length;) {
    const [one, other] = [a[i]!, b[j]!];
    const first = Math.max(one[0], other[0]);
    const last = Math.min(one[1], other[1]);
    if (first <= last) both.push([first, last]);
    if (one[1] < other[1]) i++;
    else j++;
  }
  return both;
}

export function complement(set: CodePoints): CodePoints {
  const rest: [number, number][] = [];
  let next = 0;
  for (const [first, last] of set) {
    if (first > next) rest.push([next, first - 1]);
    next = last + 1;
  }
  if (next <= LAST) rest.push([next, LAST]);
  return intersection(rest, ALL);
}

export const difference = (a: CodePoints, b: CodePoints): CodePoints => intersection(a, complement(b));

type ByteRange = readonly [low: number, high: number];

const encoder = new TextEncoder();
const bytesOf = (code: number): number[] => [...encoder.encode(String.fromCodePoint(code))];

/** What takes one byte, two, three and four. */
const WIDTHS: CodePoints = [
  [0, 0x7f],
  [0x80, 0x7ff],
  [0x800, 0xffff],
  [0x10000, LAST],
];

const known = new WeakMap<CodePoints, ByteRange[][]>();

/** The bytes of a set's characters: runs of ranges, one of which each character is. */
export const byteRuns = (set: CodePoints): ByteRange[][] =>
  valueIn(known, set, () =>
    WIDTHS.flatMap((width) => intersection(set, [width])).flatMap(([low, high]) =>
      runsBetween(bytesOf(low), bytesOf(high)),
    ),
  );

/** The texts of bytes from `low` to `high`, of the same length, as products of ranges. */
function runsBetween(low: readonly number[], high: readonly number[]): ByteRange[][] {
  const [a = 0, b = 0] = [low[0], high[0]];
  const [restA, restB] = [low.slice(1), high.slice(1)];
  if (low.length === 1) return [[[a, b]]];
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
