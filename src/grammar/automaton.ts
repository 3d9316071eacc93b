import { usageError } from '../base/errors.js';
import { ALL, type CodePoints, complement, difference, intersection, union } from './code_points.js';

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

const tooLarge = (): Error =>
  usageError(`a pattern, or patterns together, take more than ${MAX_STATES} states: make them or their bounds smaller`);

/** Nodes of an automaton that needn't be deterministic, while expressions are put together. */
export class Fragments {
  readonly #edges: (readonly [characters: CodePoints, target: number])[][] = [];
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
    const states: { accepts: boolean; edges: Edge[] }[] = [];
    const numbers = new Map<string, number>();
    const members: number[][] = [];
    const numberOf = (nodes: readonly number[]): number => {
      const closed = this.#closure(nodes);
      const key = closed.join();
      let number = numbers.get(key);
      if (number === undefined) {
        if (states.length >= MAX_STATES) throw tooLarge();
        number = states.length;
        numbers.set(key, number);
        members.push(closed);
        states.push({ accepts: closed.includes(end), edges: [] });
      }
      return number;
    };
    numberOf([start]);
    for (let state = 0; state < states.length; state++) {
      const edges = members[state]!.flatMap((node) => this.#edges[node]!);
      const targets = new Map<number, CodePoints>();
      for (const atom of atoms(edges.map(([characters]) => characters))) {
        const next = edges.flatMap(([characters, target]) =>
          intersection(characters, atom).length > 0 ? [target] : [],
        );
        const target = numberOf(next);
        targets.set(target, union(targets.get(target) ?? [], atom));
      }
      states[state]!.edges = [...targets].map(([target, characters]) => [characters, target]);
    }
    return trimmed(states);
  }

  #closure(nodes: readonly number[]): number[] {
    const seen = new Set(nodes);
    for (const node of seen) for (const next of this.#empty[node]!) seen.add(next);
    return [...seen].sort((a, b) => a - b);
  }
}

/** The coarsest disjoint sets that each of the sets is a union of. */
function atoms(sets: readonly CodePoints[]): CodePoints[] {
  const all = sets.flat();
  if (all.length > 2000) return atomsByCut(all);
  let parts: CodePoints[] = [];
  for (const set of sets) {
    const split = parts.flatMap((part) => [intersection(part, set), difference(part, set)]);
    const rest = difference(set, union(...parts));
    parts = [...split, rest].filter((part) => part.length > 0);
  }
  return parts;
}

function atomsByCut(ranges: readonly (readonly [number, number])[]): CodePoints[] {
  const cuts = [...new Set(ranges.flatMap(([first, last]) => [first, last + 1]))].sort((a, b) => a - b);
  const covered = union(ranges);
  return cuts.flatMap((first, at) => {
    const part = intersection(covered, [[first, (cuts[at + 1] ?? first + 1) - 1]]);
    return part.length > 0 ? [part] : [];
  });
}

/** What can be reached, and leads to an accepting state; equal states as one. */
function trimmed(states: readonly AutomatonState[]): Automaton {
  const sources = states.map((): number[] => []);
  for (const [state, { edges }] of states.entries()) for (const [, target] of edges) sources[target]!.push(state);
  const alive = new Set(states.flatMap(({ accepts }, state) => (accepts ? [state] : [])));
  for (const state of alive) for (const source of sources[state]!) alive.add(source);
  const kept = states.map(({ accepts, edges }, state) => ({
    accepts,
    edges: alive.has(state) ? edges.filter(([, target]) => alive.has(target)) : [],
  }));
  // States are alike as long as nothing tells them apart.
  let classes: number[] = kept.map(({ accepts }, state) => (alive.has(state) ? (accepts ? 1 : 2) : 0));
  for (let count = -1; ;) {
    const numbers = new Map<string, number>();
    const next = kept.map(({ edges }, state) => {
      const byClass = new Map<number, CodePoints>();
      for (const [characters, target] of edges) {
        const to = classes[target]!;
        byClass.set(to, union(byClass.get(to) ?? [], characters));
      }
      const key = JSON.stringify([classes[state], [...byClass].sort(([a], [b]) => a - b)]);
      if (!numbers.has(key)) numbers.set(key, numbers.size);
      return numbers.get(key)!;
    });
    classes = next;
    if (numbers.size === count) break;
    count = numbers.size;
  }
  const order = new Map<number, number>([[classes[0]!, 0]]);
  const result: { accepts: boolean; edges: Edge[] }[] = [];
  for (const [of] of order) {
    const { accepts, edges } = kept[classes.indexOf(of)]!;
    const byTarget = new Map<number, CodePoints>();
    for (const [characters, target] of edges) {
      const to = classes[target]!;
      if (!order.has(to)) order.set(to, order.size);
      byTarget.set(order.get(to)!, union(byTarget.get(order.get(to)!) ?? [], characters));
    }
    result.push({ accepts, edges: [...byTarget].map(([target, characters]) => [characters, target]) });
  }
  return { states: result };
}

/** Every text. */
export const ANY_TEXT: Automaton = { states: [{ accepts: true, edges: [[ALL, 0]] }] };

export const isEmpty = ({ states }: Automaton): boolean => !states[0]!.accepts && states[0]!.edges.length === 0;

/** Texts that are in both. */
export function both(a: Automaton, b: Automaton): Automaton {
  const states: { accepts: boolean; edges: Edge[] }[] = [];
  const pairs: [number, number][] = [];
  const numbers = new Map<string, number>();
  const numberOf = (i: number, j: number): number => {
    const key = `${i} ${j}`;
    let number = numbers.get(key);
    if (number === undefined) {
      if (states.length >= MAX_STATES) throw tooLarge();
      number = states.length;
      numbers.set(key, number);
      pairs.push([i, j]);
      states.push({ accepts: a.states[i]!.accepts && b.states[j]!.accepts, edges: [] });
    }
    return number;
  };
  numberOf(0, 0);
  for (let state = 0; state < states.length; state++) {
    const [i, j] = pairs[state]!;
    const edges: Edge[] = [];
    for (const [left, to] of a.states[i]!.edges) {
      for (const [right, other] of b.states[j]!.edges) {
        const characters = intersection(left, right);
        if (characters.length > 0) edges.push([characters, numberOf(to, other)]);
      }
    }
    states[state]!.edges = edges;
  }
  return trimmed(states);
}

/** All other texts. */
export function except({ states }: Automaton): Automaton {
  const sink = states.length;
  const total = states.map(({ accepts, edges }): AutomatonState => {
    const rest = complement(union(...edges.map(([characters]) => characters)));
    return { accepts: !accepts, edges: rest.length > 0 ? [...edges, [rest, sink]] : edges };
  });
  return trimmed([...total, { accepts: true, edges: [[ALL, sink]] }]);
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
