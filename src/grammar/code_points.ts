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
  codePoints(Array.from(text, (character) => [character.codePointAt(0)!, character.codePointAt(0)!] as const));

export const union = (...sets: readonly CodePoints[]): CodePoints => codePoints(sets.flat());

export function intersection(a: CodePoints, b: CodePoints): CodePoints {
  const both: [number, number][] = [];
  for (let i = 0, j = 0; i < a.length && j < b.length;) {
    const first = Math.max(a[i]![0], b[j]![0]);
    const last = Math.min(a[i]![1], b[j]![1]);
    if (first <= last) both.push([first, last]);
    if (a[i]![1] < b[j]![1]) i++;
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
