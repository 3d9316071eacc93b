import { usageError } from '../base/errors.js';
import { listIn } from '../base/lists.js';
import { ALL, type CodePoints, codePoints } from './code_points.js';

/**
 * A set of texts: a deterministic automaton over characters, which begins in state 0. A state's edges are disjoint; a character without
 * an edge leads nowhere. Every state can be reached, and from every state an accepting one can be: but for state 0 of the empty set.
 */
export interface Automaton {
  readonly states: readonly AutomatonState[];
}

export interface AutomatonState {
  readonly accepts: boolean;
  readonly edges: readonly Edge[];
}

type Edge = readonly [characters: CodePoints, target: number];

/** More than what anybody writes by hand comes to. */
const MAX_STATES = 4000;
/** Nodes and edges looked at for one form: it is done in a fraction of a second, or refused, on any machine alike. */
const MAX_STEPS = 2_000_000;
let left = MAX_STEPS;

/** A new form may take as many steps as any: forms are made one after the other. */
export const begin = (): void => void (left = MAX_STEPS);

export const stepsLeft = (): number => left;

export function spend(steps: number): void {
  left -= steps;
  if (left < 0) throw tooMuch();
}

const tooLarge = (): Error =>
  usageError(`a pattern, or patterns together, take more than ${MAX_STATES} states: make them or their bounds smaller`);
const tooMuch = (): Error =>
  usageError('a pattern, or patterns together, can be read in too many ways: make them or their bounds smaller');

/** Nodes of an automaton that needn't be deterministic, while expressions are put together. */
export class Fragments {
  readonly #edges: Edge[][] = [];
  readonly #empty: number[][] = [];

  node(): number {
    if (this.#edges.length > 20 * MAX_STATES) throw tooLarge();
    this.#edges.push([]);
    this.#empty.push([]);
    return this.#edges.length - 1;
  }

  /** A character of the set leads on. */
  edge(source: number, characters: CodePoints, target: number): void {
    this.#edges[source]!.push([characters, target]);
  }

  /** Nothing is needed to go on. */
  join(source: number, target: number): void {
    this.#empty[source]!.push(target);
  }

  /** The texts that lead from one node to the other. */
  between(start: number, end: number): Automaton {
    const classes = new Classes(this.#edges.flatMap((edges) => edges.map(([characters]) => characters)));
    const edges = this.#edges.map((of) => of.map(([characters, target]) => [classes.of(characters), target] as const));
    const states: ClassState[] = [];
    const members: (readonly number[])[] = [];
    const byHash = new Map<number, number[]>();
    const seen = new Int32Array(this.#edges.length).fill(-1);
    let round = 0;
    const numberOf = (nodes: readonly number[]): number => {
      // What nothing is needed for, of which only nodes count that something follows or that end.
      const [reached, closed]: [number[], number[]] = [[], []];
      const reach = (node: number): void => {
        if (seen[node] === round) return;
        seen[node] = round;
        reached.push(node);
      };
      nodes.forEach(reach);
      for (let at = 0; at < reached.length; at++) {
        const node = reached[at]!;
        if (edges[node]!.length > 0 || node === end) closed.push(node);
        for (const next of this.#empty[node]!) reach(next);
        spend(1 + this.#empty[node]!.length);
      }
      round++;
      closed.sort((a, b) => a - b);
      const hash = closed.reduce((sum, node) => (Math.imul(sum, 0x01000193) ^ node) | 0, closed.length);
      const alike = byHash.get(hash) ?? [];
      const known = alike.find(
        (state) => members[state]!.length === closed.length && members[state]!.every((node, at) => node === closed[at]),
      );
      if (known !== undefined) return known;
      if (states.length >= MAX_STATES) throw tooLarge();
      byHash.set(hash, [...alike, states.length]);
      members.push(closed);
      return states.push({ accepts: closed.includes(end), next: [] }) - 1;
    };
    numberOf([start]);
    for (let state = 0; state < states.length; state++) {
      const targets = new Map<number, number[]>();
      for (const node of members[state]!) {
        for (const [of, target] of edges[node]!) {
          spend(of.length);
          for (const one of of) listIn(targets, one).push(target);
        }
      }
      // Classes that lead to the same nodes are looked up once.
      const found = new Map<string, number>();
      for (const [one, nodes] of targets) {
        const key = nodes.length <= 8 ? nodes.join() : undefined;
        let target = key === undefined ? undefined : found.get(key);
        if (target === undefined) target = numberOf(nodes);
        if (key !== undefined) found.set(key, target);
        states[state]!.next.push([one, target]);
      }
    }
    return trimmed(states, classes);
  }
}

/** Characters that no set tells apart are a class, and sets are lists of classes. */
class Classes {
  readonly #sets = new Map<CodePoints, number[]>();
  readonly #characters: [number, number][][] = [];
  readonly #unions = new Map<string, CodePoints>();

  constructor(sets: Iterable<CodePoints>) {
    const distinct = new Map<string, { readonly set: CodePoints; readonly list: number[] }>();
    for (const set of new Set(sets)) {
      const key = set.join();
      let own = distinct.get(key);
      if (!own) distinct.set(key, (own = { set, list: [] }));
      this.#sets.set(set, own.list);
    }
    const lists = Array.from(distinct.values(), ({ list }) => list);
    const events = Array.from(distinct.values(), ({ set }) => set).flatMap((set, index) =>
      set.flatMap(([first, last]) => [
        [first, index],
        [last + 1, ~index],
      ]),
    );
    spend(10 * events.length);
    events.sort((a, b) => a[0]! - b[0]!);
    const inside = new Set<number>();
    const numbers = new Map<string, number>();
    let from = 0;
    for (const [at, index] of events) {
      if (at! > from && inside.size > 0) {
        spend(inside.size);
        const key = [...inside].sort((a, b) => a - b).join();
        let number = numbers.get(key);
        if (number === undefined) {
          numbers.set(key, (number = this.#characters.length));
          this.#characters.push([]);
          for (const set of inside) lists[set]!.push(number);
        }
        this.#characters[number]!.push([from, at! - 1]);
      }
      from = at!;
      if (index! >= 0) inside.add(index!);
      else inside.delete(~index!);
    }
  }

  get count(): number {
    return this.#characters.length;
  }

  /** The classes that a set is made of. */
  of(set: CodePoints): readonly number[] {
    return this.#sets.get(set)!;
  }

  characters(classes: readonly number[]): CodePoints {
    const key = classes.join();
    let set = this.#unions.get(key);
    if (!set) this.#unions.set(key, (set = codePoints(classes.flatMap((one) => this.#characters[one]!))));
    return set;
  }
}

interface ClassState {
  readonly accepts: boolean;
  /** A class leads to one state. */
  readonly next: (readonly [of: number, target: number])[];
}

/** What can be reached, and leads to an accepting state; equal states as one. State 0 is the first. */
function trimmed(states: readonly ClassState[], classes: Classes): Automaton {
  const sources = states.map((): number[] => []);
  for (const [state, { next }] of states.entries()) for (const [, target] of next) sources[target]!.push(state);
  const alive = new Set(states.flatMap(({ accepts }, state) => (accepts ? [state] : [])));
  for (const state of alive) for (const source of sources[state]!) alive.add(source);
  if (!alive.has(0)) return { states: [{ accepts: false, edges: [] }] };
  // The states that stay, in the order in which they are met.
  const order = new Map([[0, 0]]);
  const [tails, labels, heads]: [number[], number[], number[]] = [[], [], []];
  for (const [state, at] of order) {
    for (const [of, target] of states[state]!.next) {
      if (!alive.has(target)) continue;
      if (!order.has(target)) order.set(target, order.size);
      tails.push(at);
      labels.push(of);
      heads.push(order.get(target)!);
    }
  }
  const kept = [...order.keys()].map((state) => states[state]!);
  const blocks = alike(kept.map(({ accepts }) => accepts), tails, labels, heads); // prettier-ignore
  const numbers = new Map<number, number>();
  for (let state = 0; state < kept.length; state++)
    if (!numbers.has(blocks[state]!)) numbers.set(blocks[state]!, numbers.size);
  const result = Array.from(numbers, () => new Map<number, number[]>());
  const accepts: boolean[] = [];
  const first = new Map<number, number>();
  for (const [state, { accepts: does }] of kept.entries()) {
    const number = numbers.get(blocks[state]!)!;
    if (!first.has(number)) first.set(number, state);
    accepts[number] = does;
  }
  for (const [edge, tail] of tails.entries()) {
    const number = numbers.get(blocks[tail]!)!;
    if (first.get(number) !== tail) continue;
    listIn(result[number]!, numbers.get(blocks[heads[edge]!]!)!).push(labels[edge]!);
  }
  return {
    states: result.map((edges, number) => ({
      accepts: accepts[number]!,
      edges: Array.from(edges, ([target, of]): Edge => [classes.characters(of.sort((a, b) => a - b)), target]),
    })),
  };
}

/**
 * States that nothing tells apart have the same number (Hopcroft, 1971: time grows as edges times the logarithm of states). Edges without a
 * target count as told apart, so every state must lead to an accepting one.
 */
function alike(
  accepts: readonly boolean[],
  tails: readonly number[],
  labels: readonly number[],
  heads: readonly number[],
): readonly number[] {
  const into = accepts.map((): number[] => []);
  for (const [edge, head] of heads.entries()) into[head]!.push(edge);
  const numbers: number[] = accepts.map((does) => (does ? 0 : 1));
  const blocks = [true, false].map(
    (which) => new Set(accepts.flatMap((does, state) => (does === which ? [state] : []))),
  );
  // By which others are still to be split: of two parts of one by which they were, the smaller alone.
  const waiting = new Set([0, 1]);
  for (const by of waiting) {
    waiting.delete(by);
    const sources = new Map<number, number[]>();
    for (const state of blocks[by]!) for (const edge of into[state]!) listIn(sources, labels[edge]!).push(tails[edge]!);
    for (const states of sources.values()) {
      const met = new Map<number, number[]>();
      for (const state of states) listIn(met, numbers[state]!).push(state);
      for (const [number, part] of met) {
        const block = blocks[number]!;
        if (part.length === block.size) continue;
        const isPart = new Set(part);
        const smaller = 2 * part.length <= block.size ? part : [...block].filter((state) => !isPart.has(state));
        waiting.add(blocks.push(new Set(smaller)) - 1);
        for (const state of smaller) {
          block.delete(state);
          numbers[state] = blocks.length - 1;
        }
      }
    }
  }
  return numbers;
}

/** Every text. */
export const ANY_TEXT: Automaton = { states: [{ accepts: true, edges: [[ALL, 0]] }] };

export const isEmpty = ({ states }: Automaton): boolean => !states[0]!.accepts && states[0]!.edges.length === 0;

const setsOf = ({ states }: Automaton): CodePoints[] =>
  states.flatMap(({ edges }) => edges.map(([characters]) => characters));

/** Texts that are in both. */
export function both(a: Automaton, b: Automaton): Automaton {
  if (a === ANY_TEXT || b === ANY_TEXT) return a === ANY_TEXT ? b : a;
  const classes = new Classes([...setsOf(a), ...setsOf(b)]);
  const nextOf = ({ states }: Automaton): Map<number, number>[] =>
    states.map(({ edges }) => new Map(edges.flatMap(([of, target]) => classes.of(of).map((one) => [one, target])))); // prettier-ignore
  const [ours, theirs] = [nextOf(a), nextOf(b)];
  const states: ClassState[] = [];
  const pairs: [number, number][] = [];
  const numbers = new Map<number, number>();
  const numberOf = (i: number, j: number): number => {
    const key = i * b.states.length + j;
    let number = numbers.get(key);
    if (number === undefined) {
      if (states.length >= MAX_STATES) throw tooLarge();
      number = states.length;
      numbers.set(key, number);
      pairs.push([i, j]);
      states.push({ accepts: a.states[i]!.accepts && b.states[j]!.accepts, next: [] });
    }
    return number;
  };
  numberOf(0, 0);
  for (let state = 0; state < states.length; state++) {
    const [i, j] = pairs[state]!;
    const others = theirs[j]!;
    for (const [one, to] of ours[i]!) {
      const other = others.get(one);
      if (other !== undefined) states[state]!.next.push([one, numberOf(to, other)]);
    }
    spend(1 + ours[i]!.size);
  }
  return trimmed(states, classes);
}

/** All other texts. */
export function except(of: Automaton): Automaton {
  const sink = of.states.length;
  const classes = new Classes([ALL, ...setsOf(of)]);
  spend(of.states.length * classes.count);
  const everything = classes.of(ALL);
  const states = of.states.map(({ accepts, edges }): ClassState => {
    const targets = new Map(edges.flatMap(([set, target]) => classes.of(set).map((one) => [one, target])));
    return { accepts: !accepts, next: everything.map((one) => [one, targets.get(one) ?? sink]) };
  });
  states.push({ accepts: true, next: everything.map((one) => [one, sink]) });
  return trimmed(states, classes);
}

/** Whether a text is of the set. */
export function includes({ states }: Automaton, text: string): boolean {
  let at = 0;
  for (const character of text) {
    const code = character.codePointAt(0)!;
    const edge = states[at]!.edges.find(([of]) => of.some(([first, last]) => first <= code && code <= last));
    if (!edge) return false;
    at = edge[1];
  }
  return states[at]!.accepts;
}

/** Texts of `least` to `most` characters. */
export function ofLength(least: number, most: number): Automaton {
  const last = Number.isFinite(most) ? most : least;
  if (last >= MAX_STATES) throw tooLarge();
  const states = Array.from({ length: last + 1 }, (_, length): AutomatonState => {
    const goesOn = length < last ? length + 1 : Number.isFinite(most) ? undefined : length;
    return { accepts: length >= least, edges: goesOn === undefined ? [] : [[ALL, goesOn]] };
  });
  return { states };
}

/** These texts alone. */
export function listed(texts: readonly string[]): Automaton {
  const fragments = new Fragments();
  const [start, end] = [fragments.node(), fragments.node()];
  for (const text of texts) {
    let at = start;
    for (const character of text) {
      const next = fragments.node();
      const code = character.codePointAt(0)!;
      fragments.edge(at, [[code, code]], next);
      at = next;
    }
    fragments.join(at, end);
  }
  return fragments.between(start, end);
}
