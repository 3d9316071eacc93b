import { usageError } from '../base/errors.js';
import type { NextTokens } from './masks.js';
import type { Network } from './network.js';

/**
 * Where texts of a rule return to: nodes, and where texts of those nodes' rules return to in turn. Alike ones are one object.
 */
export interface Frames {
  readonly id: number;
  readonly backs: readonly number[];
  readonly outer: readonly Frames[];
}

/** Back to nowhere: the text is whole. */
const OUT = -1;

/** What a text may go on with: nodes with edges, and where their rules return to. Alike ones of a matcher are one object. */
export interface State {
  readonly nodes: readonly number[];
  readonly frames: readonly Frames[];
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
    const outer: Frames[] = [];
    this.#bottom = { id: this.#frameCount++, backs: [OUT], outer };
    outer.push(this.#bottom);
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
    return this.#closed([], new Map([[root, this.#bottom]]), empty) ?? this.#state([], [], empty);
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

  #step({ nodes, frames }: State, symbol: number): State | null {
    const { edges, edgesFrom } = this.network;
    const targets: [number, Frames][] = [];
    for (let i = 0; i < nodes.length; i++) {
      const to = edgesFrom[nodes[i]! + 1]!;
      for (let at = edgesFrom[nodes[i]!]!; at < to; at += 3) {
        if (edges[at]! <= symbol && symbol <= edges[at + 1]!) targets.push([edges[at + 2]!, frames[i]!]);
      }
      this.#left -= 1 + ((to - edgesFrom[nodes[i]!]!) >> 3);
    }
    return targets.length === 0 ? null : this.#closed(targets, new Map(), false);
  }

  /** What the nodes with these frames alone would be if nothing were around them. */
  inner(nodes: readonly number[]): State {
    return this.#state(nodes, nodes.map(() => this.#bottom), false); // prettier-ignore
  }

  /** Where texts of rules return to. */
  behind(frames: Frames): State | null {
    return this.#closed(frames.backs.map((back, at) => [back, frames.outer[at]!]), new Map(), false); // prettier-ignore
  }

  #closed(targets: readonly (readonly [number, Frames])[], called: Map<number, Frames>, empty: boolean): State | null {
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
    for (const [node, frames] of targets) reach(node, frames);
    for (let node = waiting.pop(); node !== undefined; node = waiting.pop()) {
      if (--this.#left < 0) throw tooMuch();
      const frames = at.get(node)!;
      for (let i = joinsFrom[node]!; i < joinsFrom[node + 1]!; i++) reach(joins[i]!, frames);
      if (ends[node]) for (let i = 0; i < frames.backs.length; i++) reach(frames.backs[i]!, frames.outer[i]!);
    }
    // Calls, of a rule when all that call it are known: those that begin with it have lower numbers.
    const order = [...called.keys()];
    const call = (list: Int32Array, from: number, to: number, frames: Frames): void => {
      for (let i = from; i < to; i += 3) {
        const rule = list[i]!;
        const back = list[i + 2] ? frames : this.#frame([list[i + 1]!], [frames]);
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
    const nodes: number[] = [];
    for (const node of at.keys()) if (edgesFrom[node]! < edgesFrom[node + 1]!) nodes.push(node);
    if (nodes.length === 0 && !accepts) return null;
    nodes.sort((a, b) => a - b);
    return this.#state(nodes, nodes.map((node) => at.get(node)!), accepts); // prettier-ignore
  }

  #state(nodes: readonly number[], frames: readonly Frames[], accepts: boolean): State {
    let key = accepts ? '+' : '-';
    this.#left -= nodes.length;
    for (let i = 0; i < nodes.length; i++) key += `${nodes[i]!}:${frames[i]!.id},`;
    let state = this.#states.get(key);
    if (!state) {
      this.#kept += 60 + this.network.symbols.length + 6 * nodes.length;
      this.#states.set(key, (state = { nodes, frames, accepts, next: [] }));
    }
    return state;
  }

  #frame(backs: readonly number[], outer: readonly Frames[]): Frames {
    let key = '';
    this.#left -= backs.length;
    for (let i = 0; i < backs.length; i++) key += `${backs[i]!}:${outer[i]!.id},`;
    let frames = this.#frames.get(key);
    if (!frames) {
      this.#kept += 30 + 4 * backs.length;
      this.#frames.set(key, (frames = { id: this.#frameCount++, backs, outer }));
    }
    return frames;
  }

  /** Both are in order of nodes, then of what is around. */
  #union(a: Frames, b: Frames): Frames {
    if (a === b) return a;
    const backs: number[] = [];
    const outer: Frames[] = [];
    this.#left -= a.backs.length + b.backs.length;
    if (this.#left < 0) throw tooMuch();
    for (let i = 0, j = 0; i < a.backs.length || j < b.backs.length;) {
      let order = i === a.backs.length ? 1 : j === b.backs.length ? -1 : a.backs[i]! - b.backs[j]!;
      if (order === 0) order = a.outer[i]!.id - b.outer[j]!.id;
      backs.push(order <= 0 ? a.backs[i]! : b.backs[j]!);
      outer.push(order <= 0 ? a.outer[i]! : b.outer[j]!);
      if (order <= 0) i++;
      if (order >= 0) j++;
    }
    if (backs.length === a.backs.length) return a;
    return backs.length === b.backs.length ? b : this.#frame(backs, outer);
  }
}
