import { usageError } from '../base/errors.js';
import { valueIn } from '../base/lists.js';
import type { NextTokens } from './masks.js';
import type { Network } from './network.js';

/** A node, and where texts of its rule return to. */
interface Place {
  readonly node: number;
  readonly frames: Frames;
}

/** Where texts of a rule return to, in order of nodes, then of frames. Alike ones are one object. */
export interface Frames {
  readonly id: number;
  readonly backs: readonly Place[];
}

/** Back to nowhere: the text is whole. */
const OUT = -1;

/** What a text may go on with: nodes with edges, in order. Alike ones of a matcher are one object. */
export interface State {
  readonly places: readonly Place[];
  /** The text may end here. */
  readonly accepts: boolean;
  /** By class of symbols, as far as it was asked for; null: nowhere. */
  readonly next: (State | null | undefined)[];
  /** What is kept of it by whoever runs over tokens (masks.ts). */
  mask?: Uint32Array | undefined;
  exits?: readonly number[] | undefined;
  told?: NextTokens | undefined;
}

/** Nodes looked at for a mask: more than anything usual by far. */
const MAX_STEPS = 4_000_000;
/** Nodes looked at to follow a token: where answers are generated, which all others wait for. */
export const MAX_FOLLOWED = 200_000;
/** What is kept of states, in units of about 8 bytes, until all of it is forgotten. */
const MAX_KEPT = 1_500_000;

const tooMuch = (): Error =>
  usageError('the form can be read in too many ways at once; make it smaller, or its parts easier to tell apart');

/** Runs along a network: a deterministic automaton with a stack, which is made where texts go. */
export class Matcher {
  readonly #frames = new Map<string, Frames>();
  readonly #states = new Map<string, State>();
  #frameCount = 0;
  #kept = 0;
  #left = MAX_STEPS;
  readonly #bottom: Frames;
  #start: State;

  constructor(
    readonly network: Network,
    private readonly mayKeep = MAX_KEPT,
  ) {
    const backs: Place[] = [];
    this.#bottom = { id: this.#frameCount++, backs };
    backs.push({ node: OUT, frames: this.#bottom });
    this.#start = this.#begin();
  }

  /** Of no text yet. */
  get start(): State {
    return this.#start;
  }

  /** A new step of an answer begins: it may take as long as any. @param most nodes looked at */
  begin(most = MAX_STEPS): void {
    this.#left = most;
    if (this.#kept < this.mayKeep) return;
    this.#kept = 0;
    this.#frames.clear();
    // Answers may be at them.
    for (const state of this.#states.values()) {
      state.next.length = 0;
      state.mask = state.exits = state.told = undefined;
    }
    this.#states.clear();
    this.#start = this.#begin();
  }

  /** Something was noted of a state. */
  keep(units: number): void {
    this.#kept += units;
  }

  #begin(): State {
    const { root, empty } = this.network;
    return this.#closed([], new Map([[root, this.#bottom]]), empty) ?? this.#state([], empty);
  }

  /** Behind one symbol more; null: nothing is. */
  step(state: State, symbol: number): State | null {
    const of = this.network.classes[symbol];
    return of === undefined ? null : this.stepClass(state, of);
  }

  stepClass(state: State, of: number): State | null {
    let next = state.next[of];
    if (next === undefined) state.next[of] = next = this.#step(state, this.network.symbols[of]!);
    return next;
  }

  #step({ places }: State, symbol: number): State | null {
    const { edges, edgesFrom } = this.network;
    const targets: Place[] = [];
    for (const { node, frames } of places) {
      const from = edgesFrom[node]!;
      const to = edgesFrom[node + 1]!;
      for (let at = from; at < to; at += 3) {
        if (edges[at]! <= symbol && symbol <= edges[at + 1]!) targets.push({ node: edges[at + 2]!, frames });
      }
      this.#left -= 1 + ((to - from) >> 3);
    }
    return targets.length === 0 ? null : this.#closed(targets, new Map(), false);
  }

  /** What the nodes with these frames alone would be if nothing were around them. */
  inner(nodes: readonly number[]): State {
    return this.#state(
      nodes.map((node) => ({ node, frames: this.#bottom })),
      false,
    );
  }

  /** Where texts of rules return to. */
  behind(frames: Frames): State | null {
    return this.#closed(frames.backs, new Map(), false);
  }

  #closed(targets: readonly Place[], called: Map<number, Frames>, empty: boolean): State | null {
    const { joins, joinsFrom, ends, edgesFrom, calls, callsFrom, starts, startsFrom, firstCalls, firstCallsFrom } =
      this.network;
    const at = new Map<number, Frames>();
    const waiting: number[] = [];
    let accepts = empty;
    const reach = (node: number, frames: Frames): void => {
      if (node === OUT) {
        accepts = true;
        return;
      }
      const own = at.get(node);
      const both = own === undefined ? frames : this.#union(own, frames);
      if (both === own) return;
      at.set(node, both);
      waiting.push(node);
    };
    for (const { node, frames } of targets) reach(node, frames);
    for (let node = waiting.pop(); node !== undefined; node = waiting.pop()) {
      if (--this.#left < 0) throw tooMuch();
      const frames = at.get(node)!;
      for (let i = joinsFrom[node]!; i < joinsFrom[node + 1]!; i++) reach(joins[i]!, frames);
      if (ends[node]) for (const back of frames.backs) reach(back.node, back.frames);
    }
    // Calls, of a rule when all that call it are known: those that begin with it have lower numbers.
    const order = [...called.keys()];
    const call = (list: Int32Array, from: number, to: number, frames: Frames): void => {
      for (let i = from; i < to; i += 3) {
        const rule = list[i]!;
        const back = list[i + 2] ? frames : this.#frame([{ node: list[i + 1]!, frames }]);
        const own = called.get(rule);
        if (own === undefined) {
          let place = order.length;
          for (; place > 0 && order[place - 1]! < rule; place--) order[place] = order[place - 1]!;
          order[place] = rule;
        }
        called.set(rule, own === undefined ? back : this.#union(own, back));
      }
    };
    for (const [node, frames] of at) call(calls, callsFrom[node]!, callsFrom[node + 1]!, frames);
    for (let rule = order.pop(); rule !== undefined; rule = order.pop()) {
      const frames = called.get(rule)!;
      for (let i = startsFrom[rule]!; i < startsFrom[rule + 1]!; i++) {
        const own = at.get(starts[i]!);
        at.set(starts[i]!, own === undefined ? frames : this.#union(own, frames));
        if (--this.#left < 0) throw tooMuch();
      }
      call(firstCalls, firstCallsFrom[rule]!, firstCallsFrom[rule + 1]!, frames);
    }
    const places: Place[] = [];
    for (const [node, frames] of at) if (edgesFrom[node]! < edgesFrom[node + 1]!) places.push({ node, frames });
    if (places.length === 0 && !accepts) return null;
    return this.#state(
      places.sort((a, b) => a.node - b.node),
      accepts,
    );
  }

  #state(places: readonly Place[], accepts: boolean): State {
    return valueIn(this.#states, (accepts ? '+' : '-') + this.#keyOf(places), () => {
      this.#kept += 60 + this.network.symbols.length + 6 * places.length;
      return { places, accepts, next: [] };
    });
  }

  #frame(backs: readonly Place[]): Frames {
    return valueIn(this.#frames, this.#keyOf(backs), () => {
      this.#kept += 30 + 4 * backs.length;
      return { id: this.#frameCount++, backs };
    });
  }

  #keyOf(places: readonly Place[]): string {
    let key = '';
    this.#left -= places.length;
    for (const { node, frames } of places) key += `${node}:${frames.id},`;
    return key;
  }

  #union(a: Frames, b: Frames): Frames {
    if (a === b) return a;
    const backs: Place[] = [];
    this.#left -= a.backs.length + b.backs.length;
    if (this.#left < 0) throw tooMuch();
    for (let i = 0, j = 0; ;) {
      const one = a.backs[i];
      const other = b.backs[j];
      const order = one && other ? one.node - other.node || one.frames.id - other.frames.id : one ? -1 : 1;
      const next = order <= 0 ? one : other;
      if (!next) break;
      backs.push(next);
      if (order <= 0) i++;
      if (order >= 0) j++;
    }
    if (backs.length === a.backs.length) return a;
    return backs.length === b.backs.length ? b : this.#frame(backs);
  }
}
