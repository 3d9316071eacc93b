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

function bytesOf(code: number): number[] {
  const rest = (shift: number): number => 0x80 | ((code >> shift) & 0x3f);
  if (code < 0x80) return [code];
  if (code < 0x800) return [0xc0 | (code >> 6), rest(0)];
  if (code < 0x10000) return [0xe0 | (code >> 12), rest(6), rest(0)];
  return [0xf0 | (code >> 18), rest(12), rest(6), rest(0)];
}

/** What takes one byte, two, three and four. */
const WIDTHS: CodePoints = [
  [0, 0x7f],
  [0x80, 0x7ff],
  [0x800, 0xffff],
  [0x10000, LAST],
];

/** All that take more than one. */
export const WIDE: CodePoints = [
  [0x80, 0xd7ff],
  [0xe000, LAST],
];

interface ByteRuns {
  /** One of them is what a character's bytes are of. */
  readonly runs: readonly (readonly ByteRange[])[];
  /** The set has those of WIDE as well, all of them. */
  readonly andWide: boolean;
}

const known = new WeakMap<CodePoints, ByteRuns>();

/** The bytes of a set's characters. */
export const byteRuns = (set: CodePoints): ByteRuns =>
  valueIn(known, set, () => {
    const narrow = intersection(set, WIDTHS.slice(0, 1));
    const andWide = narrow.length > 0 && intersection(set, WIDE).join() === WIDE.join();
    const runs = WIDTHS.flatMap((width) => intersection(andWide ? narrow : set, [width])).flatMap(([low, high]) =>
      runsBetween(bytesOf(low), bytesOf(high)),
    );
    return { runs, andWide };
  });

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
