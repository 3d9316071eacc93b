import { usageError } from '../base/errors.js';
import { Kept } from '../base/kept.js';
import { listIn, valueIn, nth } from '../base/lists.js';
import { ALL, type CodePoints, codePoints, complement, union } from './code_points.js';

/**
 * A set of texts: a deterministic automaton over characters, which begins in state 0. A state's edges are disjoint; a character without
 * an edge leads nowhere. Every state can be reached, and from every state an accepting one can be: but for state 0 of the empty set.
 */
export interface Automaton {
  readonly states: readonly AutomatonState[];
}

interface AutomatonState {
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

/** A place of an automaton that needn't be deterministic, while expressions are put together. */
export class Place {
  readonly edges: (readonly [characters: CodePoints, target: Place])[] = [];
  /** Where nothing is needed to go on. */
  readonly joins: Place[] = [];
  /** Edges by classes of characters. */
  next: (readonly [of: readonly number[], target: Place])[] = [];
  /** When it was last reached. */
  round = -1;

  constructor(readonly number: number) {}
}

/** Places, and the texts that lead from one to another. */
export class Fragments {
  readonly #places: Place[] = [];

  place(): Place {
    if (this.#places.length > 20 * MAX_STATES) throw tooLarge();
    const place = new Place(this.#places.length);
    this.#places.push(place);
    return place;
  }

  /** The texts that lead from one place to the other. */
  between(start: Place, end: Place): Automaton {
    const classes = new Classes(this.#places.flatMap(({ edges }) => edges.map(([characters]) => characters)));
    for (const place of this.#places) place.next = place.edges.map(([set, target]) => [classes.of(set), target]);
    const members: Place[][] = [];
    const byHash = new Map<number, [state: number, places: Place[]][]>();
    let round = 0;
    const numberOf = (places: readonly Place[]): number => {
      // What nothing is needed for, of which only places count that something follows or that end.
      const [reached, closed]: [Place[], Place[]] = [[], []];
      const reach = (place: Place): void => {
        if (place.round === round) return;
        place.round = round;
        reached.push(place);
      };
      places.forEach(reach);
      for (const place of reached) {
        if (place.next.length > 0 || place === end) closed.push(place);
        place.joins.forEach(reach);
        spend(1 + place.joins.length);
      }
      round++;
      closed.sort((a, b) => a.number - b.number);
      const hash = closed.reduce((sum, { number }) => (Math.imul(sum, 0x01000193) ^ number) | 0, closed.length);
      const alike = listIn(byHash, hash);
      const known = alike.find(
        ([, of]) => of.length === closed.length && of.every((place, at) => place === closed[at]),
      );
      if (known) return known[0];
      if (members.length >= MAX_STATES) throw tooLarge();
      alike.push([members.length, closed]);
      return members.push(closed) - 1;
    };
    numberOf([start]);
    const nextOf = (state: number): [number, number][] => {
      const targets = new Map<number, Place[]>();
      for (const { next } of nth(members, state)) {
        for (const [of, target] of next) {
          spend(of.length);
          for (const one of of) listIn(targets, one).push(target);
        }
      }
      // Classes that lead to the same places are looked up once.
      const found = new Map<string, number>();
      return Array.from(targets, ([one, places]) => {
        if (places.length > 8) return [one, numberOf(places)];
        return [one, valueIn(found, places.map(({ number }) => number).join(), () => numberOf(places))];
      });
    };
    return automatonOf(classes, (state) => nth(members, state).includes(end), nextOf);
  }
}

/** Characters that no set tells apart are a class, and sets are lists of classes. */
class Classes {
  readonly #sets = new Map<CodePoints, number[]>();
  readonly #characters: [number, number][][] = [];
  readonly #unions = new Map<string, CodePoints>();

  constructor(sets: Iterable<CodePoints>) {
    const distinct = new Map<string, { readonly set: CodePoints; readonly list: number[]; readonly index: number }>();
    for (const set of new Set(sets)) {
      const own = valueIn(distinct, set.join(), () => ({ set, list: [], index: distinct.size }));
      this.#sets.set(set, own.list);
    }
    const events = [...distinct.values()].flatMap((of) =>
      of.set.flatMap(([first, last]) => [
        { at: first, of, begins: true },
        { at: last + 1, of, begins: false },
      ]),
    );
    spend(10 * events.length);
    events.sort((a, b) => a.at - b.at);
    const inside = new Set<(typeof events)[number]['of']>();
    const numbers = new Map<string, number>();
    let from = 0;
    for (const { at, of, begins } of events) {
      if (at > from && inside.size > 0) {
        spend(inside.size);
        const key = Array.from(inside, ({ index }) => index)
          .sort((a, b) => a - b)
          .join();
        const number = valueIn(numbers, key, () => {
          for (const { list } of inside) list.push(this.#characters.length);
          return this.#characters.push([]) - 1;
        });
        nth(this.#characters, number).push([from, at - 1]);
      }
      from = at;
      if (begins) inside.add(of);
      else inside.delete(of);
    }
  }

  /** The classes that a set is made of. */
  of(set: CodePoints): readonly number[] {
    return this.#sets.get(set)!;
  }

  characters(classes: readonly number[]): CodePoints {
    return valueIn(this.#unions, classes.join(), () =>
      codePoints(classes.flatMap((one) => nth(this.#characters, one))),
    );
  }
}

interface ClassState {
  readonly accepts: boolean;
  /** A class leads to one state. */
  readonly next: ClassEdge[];
  readonly into: ClassEdge[];
  /** It leads to an accepting state. */
  isAlive: boolean;
  /** States that nothing has told apart from it yet. */
  block: Set<ClassState>;
}

interface ClassEdge {
  readonly of: number;
  readonly from: ClassState;
  readonly to: ClassState;
}

/**
 * The texts that lead from state 0 to an accepting one, in the fewest states.
 * @param nexts where classes lead from a state
 */
function automatonOf(
  classes: Classes,
  accepts: (state: number) => boolean,
  nexts: (state: number) => Iterable<readonly [of: number, target: number]>,
): Automaton {
  const states = new Map<number, ClassState>();
  const alive: ClassState[] = [];
  const none = new Set<ClassState>();
  const stateOf = (number: number): ClassState =>
    valueIn(states, number, () => {
      if (states.size >= MAX_STATES) throw tooLarge();
      const isAlive = accepts(number);
      const state: ClassState = { accepts: isAlive, next: [], into: [], isAlive, block: none };
      if (isAlive) alive.push(state);
      return state;
    });
  const first = stateOf(0);
  for (const [number, from] of states) {
    for (const [of, target] of nexts(number)) {
      const edge = { of, from, to: stateOf(target) };
      from.next.push(edge);
      edge.to.into.push(edge);
    }
  }
  for (const { into } of alive) {
    for (const { from } of into) {
      if (!from.isAlive) alive.push(from);
      from.isAlive = true;
    }
  }
  if (!first.isAlive) return NO_TEXT;
  tellApart(alive);
  // One state of each block, in the order in which they are met.
  const met = [first];
  const numbers = new Map([[first.block, 0]]);
  const result: AutomatonState[] = [];
  for (const { accepts: does, next } of met) {
    const edges = new Map<number, number[]>();
    for (const { of, to } of next)
      if (to.isAlive)
        listIn(
          edges,
          valueIn(numbers, to.block, () => met.push(to) - 1),
        ).push(of);
    result.push({
      accepts: does,
      edges: Array.from(edges, ([to, of]): Edge => [classes.characters(of.sort((a, b) => a - b)), to]),
    });
  }
  return { states: result };
}

/**
 * States that nothing tells apart come to be of one block (Hopcroft, 1971: time grows as edges times the logarithm of states). Edges
 * without a target count as told apart, so every state must lead to an accepting one.
 */
function tellApart(states: readonly ClassState[]): void {
  const blocks = [true, false].map((which) => new Set(states.filter(({ accepts }) => accepts === which)));
  for (const block of blocks) for (const state of block) state.block = block;
  // By which others are still to be split: of two parts of one by which they were, the smaller alone.
  const waiting = new Set(blocks);
  for (const by of waiting) {
    waiting.delete(by);
    const sources = new Map<number, ClassState[]>();
    for (const { into } of by) for (const { of, from } of into) listIn(sources, of).push(from);
    for (const some of sources.values()) {
      const met = new Map<Set<ClassState>, ClassState[]>();
      for (const state of some) listIn(met, state.block).push(state);
      for (const [block, part] of met) {
        if (part.length === block.size) continue;
        const isPart = new Set(part);
        const smaller =
          2 * part.length <= block.size ? isPart : new Set([...block].filter((state) => !isPart.has(state)));
        waiting.add(smaller);
        for (const state of smaller) {
          block.delete(state);
          state.block = smaller;
        }
      }
    }
  }
}

const NO_TEXT: Automaton = { states: [{ accepts: false, edges: [] }] };
/** Every text. */
export const ANY_TEXT: Automaton = { states: [{ accepts: true, edges: [[ALL, 0]] }] };

/** Whether every beginning of a text is the beginning of ever more texts. */
export function isEndless({ states }: Automaton): boolean {
  // States of which only so many texts come.
  const finite = new Set<number>();
  for (let before = -1; before < finite.size;) {
    before = finite.size;
    for (const [state, { edges }] of states.entries())
      if (edges.every(([, target]) => finite.has(target))) finite.add(state);
  }
  return finite.size === 0;
}

export const isEmpty = ({ states: [first] }: Automaton): boolean => !first?.accepts && first?.edges.length === 0;

const setsOf = ({ states }: Automaton): CodePoints[] =>
  states.flatMap(({ edges }) => edges.map(([characters]) => characters));

/** By state, where classes lead. */
const nextsOf = ({ states }: Automaton, classes: Classes): Map<number, number>[] =>
  states.map(({ edges }) => new Map(edges.flatMap(([of, target]) => classes.of(of).map((one) => [one, target]))));

/** Texts that are in both. */
export function both(a: Automaton, b: Automaton): Automaton {
  if (a === ANY_TEXT || b === ANY_TEXT) return a === ANY_TEXT ? b : a;
  const classes = new Classes([...setsOf(a), ...setsOf(b)]);
  const [ours, theirs] = [nextsOf(a, classes), nextsOf(b, classes)];
  const count = theirs.length;
  const pair = <T>(of: readonly T[], others: readonly T[], state: number): [T, T] => [
    nth(of, Math.floor(state / count)),
    nth(others, state % count),
  ];
  return automatonOf(
    classes,
    (state) => pair(a.states, b.states, state).every(({ accepts }) => accepts),
    (state) => {
      const [one, other] = pair(ours, theirs, state);
      spend(1 + one.size);
      return [...one].flatMap(([of, to]) => {
        const target = other.get(of);
        return target === undefined ? [] : [[of, to * count + target] as const];
      });
    },
  );
}

const rests = new Kept<CodePoints>(1000);

/** Characters without an edge: one list for the same ones, of which it is then known how they are written. */
function restOf(edges: readonly Edge[]): CodePoints {
  const sets = edges.map(([set]) => set);
  spend(sets.reduce((sum, { length }) => sum + length, 1));
  const key = sets.join();
  const rest = rests.get(key) ?? complement(union(...sets));
  rests.set(key, rest, 1);
  return rest;
}

/** All other texts. In the fewest states where those of the set are. */
export function except({ states }: Automaton): Automaton {
  const rest = states.map(({ edges }) => restOf(edges));
  // Where every text goes on to be of the set: nothing of the others leads there.
  const full = states.findIndex(
    ({ accepts, edges }, at) => accepts && rest[at]?.length === 0 && edges.every(([, to]) => to === at),
  );
  if (full === 0) return NO_TEXT;
  if (states.length === 1 && !states[0]?.accepts) return ANY_TEXT;
  const numberOf = (state: number): number => (full >= 0 && state > full ? state - 1 : state);
  const sink = numberOf(states.length);
  const others = states.map(({ accepts, edges }, at): AutomatonState => {
    const own = edges.flatMap(([set, to]): Edge[] => (to === full ? [] : [[set, numberOf(to)]]));
    return { accepts: !accepts, edges: rest[at]?.length === 0 ? own : [...own, [rest[at]!, sink]] };
  });
  if (rest.some((set) => set.length > 0)) others.push({ accepts: true, edges: [[ALL, sink]] });
  return { states: others.filter((_, at) => at !== full) };
}

/** Whether a text is of the set. */
export function includes({ states }: Automaton, text: string): boolean {
  let at = states[0];
  for (const character of text) {
    const code = character.codePointAt(0) ?? 0;
    const [, target = -1] = at?.edges.find(([of]) => of.some(([first, last]) => first <= code && code <= last)) ?? [];
    at = states[target];
  }
  return at?.accepts === true;
}

/** Texts of `least` to `most` characters. */
export function ofLength(least: number, most: number): Automaton {
  if (most < least) return NO_TEXT;
  if (least === 0 && most === Infinity) return ANY_TEXT;
  const last = Number.isFinite(most) ? most : least;
  if (last >= MAX_STATES) throw tooLarge();
  const states = Array.from({ length: last + 1 }, (_, length): AutomatonState => {
    const goesOn = length < last ? length + 1 : Number.isFinite(most) ? undefined : length;
    return { accepts: length >= least, edges: goesOn === undefined ? [] : [[ALL, goesOn]] };
  });
  return { states };
}

/** These texts alone: a tree of which equal parts are one, from its leaves on (Daciuk et al., 2000). */
export function listed(texts: readonly string[]): Automaton {
  const states: AutomatonState[] = [];
  const known = new Map<string, number>();
  const place = { accepts: false, next: new Map<number, [number, number][]>() };
  // Of the text before, by the states that their characters lead to.
  const path = [place];
  let before: number[] = [];
  const stateOf = ({ accepts, next }: typeof place): AutomatonState => ({
    accepts,
    edges: Array.from(next, ([to, of]): Edge => [codePoints(of), to]),
  });
  const close = (depth: number): void => {
    for (; path.length > depth; path.pop()) {
      const last = path.at(-1)!;
      const to = valueIn(known, `${last.accepts} ${[...last.next].join()}`, () => {
        if (states.length >= MAX_STATES) throw tooLarge();
        return states.push(stateOf(last));
      });
      const code = before[path.length - 2]!;
      listIn(path.at(-2)!.next, to).push([code, code]);
    }
  };
  for (const text of texts.toSorted()) {
    const codes = Array.from(text, (character) => character.codePointAt(0) ?? 0);
    spend(codes.length);
    let same = 0;
    while (same < codes.length && codes[same] === before[same]) same++;
    close(same + 1);
    for (let at = same; at < codes.length; at++) path.push({ accepts: false, next: new Map() });
    path.at(-1)!.accepts = true;
    before = codes;
  }
  close(1);
  return { states: [stateOf(place), ...states] };
}
