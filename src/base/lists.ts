import { internalError } from './errors.js';

/** first .. end - 1. */
export const range = (first: number, end: number): number[] => Array.from({ length: end - first }, (_, i) => first + i);

/** What a list has at a place. @throws SplitkvError `internal` where it has nothing there, which is a mistake here. */
export function nth<T>(list: ArrayLike<T | undefined>, at: number): T {
  const item = list[at];
  if (item === undefined) throw internalError(`a list of ${list.length} has nothing at ${at}`);
  return item;
}

export const sum = (values: readonly number[]): number => values.reduce((total, value) => total + value, 0);

export const sameList = (a: readonly number[], b: readonly number[]): boolean =>
  a.length === b.length && a.every((value, i) => value === b[i]);

/** What all lists begin with; of a list by itself all but the last. */
export function commonPrefix(lists: readonly (readonly number[])[]): readonly number[] {
  const [first = []] = lists;
  const shortest = lists.reduce((least, { length }) => Math.min(least, length), first.length) - 1;
  let length = 0;
  while (length < shortest && lists.every((list) => list[length] === first[length])) length++;
  return first.slice(0, length);
}

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

/** What a map has of a key, which is made where there is nothing. */
export function valueIn<K, V>(
  map: { get(key: K): V | undefined; set(key: K, value: V): unknown },
  key: K,
  make: () => V,
): V {
  let value = map.get(key);
  if (value === undefined) map.set(key, (value = make()));
  return value;
}

/** The list of a key, which is made where there is none. */
export const listIn = <K, V>(lists: Map<K, V[]>, key: K): V[] => valueIn(lists, key, () => []);

/**
 * The cycles of a graph: nodes that lead back to themselves, all that lead to one another together (Tarjan, 1972).
 * @param nexts where each node leads
 */
export function cyclesOf(nexts: readonly (readonly number[])[]): number[][] {
  const cycles: number[][] = [];
  const open: number[] = [];
  /** By node: its place in `open`, and the first place that it leads back to; Infinity: nothing leads there any more. */
  const [places, firsts]: [number[], number[]] = [[], []];
  const waiting = [...nexts.keys()].reverse();
  for (let node = waiting.pop(); node !== undefined; node = waiting.pop()) {
    if (node >= 0) {
      if (places[node] !== undefined) continue;
      places[node] = firsts[node] = open.push(node) - 1;
      waiting.push(~node);
      for (const next of nth(nexts, node)) waiting.push(next);
      continue;
    }
    // All behind it has been met.
    const done = ~node;
    const place = nth(places, done);
    firsts[done] = nth(nexts, done).reduce((first, next) => Math.min(first, nth(firsts, next)), place);
    if (firsts[done] < place) continue;
    const cycle = open.splice(place);
    for (const one of cycle) firsts[one] = Infinity;
    if (cycle.length > 1 || nth(nexts, done).includes(done)) cycles.push(cycle);
  }
  return cycles;
}
