/** first .. end - 1. */
export const range = (first: number, end: number): number[] => Array.from({ length: end - first }, (_, i) => first + i);

export const sum = (values: readonly number[]): number => values.reduce((total, value) => total + value, 0);

export const sameList = (a: readonly number[], b: readonly number[]): boolean =>
  a.length === b.length && a.every((value, i) => value === b[i]);

/** An ascending list for people: [0, 1, 2, 5] -> "0-2, 5"; "none" when empty. */
export function showList(values: readonly number[]): string {
  const runs: [first: number, last: number][] = [];
  for (const value of values) {
    const run = runs.at(-1);
    if (run && value === run[1] + 1) run[1] = value;
    else runs.push([value, value]);
  }
  return runs.map(([first, last]) => (first === last ? `${first}` : `${first}-${last}`)).join(', ') || 'none';
}

/** "2 ranks", "1 rank". */
export const count = (n: number, noun: string): string => `${n} ${noun}${n === 1 ? '' : 's'}`;

/** [0, n) in `parts` contiguous ranges whose lengths differ by at most one, the longer ones first; some may be empty. */
export function spreadEvenly(n: number, parts: number): [first: number, end: number][] {
  const base = Math.floor(n / parts);
  const longer = n % parts;
  const start = (part: number): number => part * base + Math.min(part, longer);
  return range(0, parts).map((part) => [start(part), start(part + 1)]);
}
