import { usageError } from '../base/errors.js';
import { cyclesOf } from '../base/lists.js';
import { spend } from './automaton.js';
import { byteRuns, type CodePoints } from './code_points.js';
import { all, any, type Expression, NOTHING, repeat } from './notation.js';

/**
 * A grammar as matcher.ts follows it: nodes, which belong to rules. An edge takes a symbol; a call takes a text of a rule and returns to a
 * node; what nothing is needed for is a join. Lists of node or rule `n` stand in `...` from `...From[n]` to `...From[n + 1]`.
 */
export interface Network {
  /** Symbols that no edge tells apart are of one class; `symbols` has one of each. */
  readonly classes: Uint16Array;
  readonly symbols: Uint16Array;
  /** First and last symbol, and where they lead. */
  readonly edges: Int32Array;
  readonly edgesFrom: Int32Array;
  /** Rule, where it returns to, and whether nothing but the end of the caller's rule is there. */
  readonly calls: Int32Array;
  readonly callsFrom: Int32Array;
  readonly joins: Int32Array;
  readonly joinsFrom: Int32Array;
  /** Nodes that end their rule: 1. */
  readonly ends: Uint8Array;
  /** What a rule begins with: nodes with edges, and calls, of rules with higher numbers alone. Its empty text is a join of its callers. */
  readonly starts: Int32Array;
  readonly startsFrom: Int32Array;
  readonly firstCalls: Int32Array;
  readonly firstCallsFrom: Int32Array;
  readonly root: number;
  /** Whether the empty text is of it. */
  readonly empty: boolean;
}

/** What anybody needs comes to less; with it a form takes some ten megabytes. */
const MAX_NODES = 300_000;
/** Copies of a part, one after the other; more are counted by halves. */
const COUNTED = 32;
/** Sets of characters that take more runs of bytes are rules. */
const INLINE = 16;
/** Rules that begin with one another. */
const MAX_CYCLE = 64;

interface Rule {
  readonly start: number;
  end: number;
  isEmpty: boolean;
  /** As in a network. */
  starts: number[];
  firstCalls: Call[];
}

type Call = readonly [rule: number, back: number];

/** @param rule what a rule's number stands for @returns undefined where no text is of it */
export function networkOf(root: Expression, rule: (number: number) => Expression): Network | undefined {
  return new Builder(rule).build(root);
}

class Builder {
  readonly #edges: (readonly [first: number, last: number, target: number])[][] = [];
  #calls: Call[][] = [];
  #joins: number[][] = [];
  readonly #owner: number[] = [];
  /** By node: nodes from which an expression, or a range of bytes, leads there. */
  readonly #befores: Map<Expression | string, number>[] = [];
  readonly #rules: Rule[] = [];
  readonly #named = new Map<string, number>();
  readonly #ids = new Map<Expression, number>();
  readonly #todo: (() => void)[] = [];
  #owning = 0;

  constructor(private readonly rule: (number: number) => Expression) {}

  build(root: Expression): Network | undefined {
    this.#ruleOf('root', (start, end) => this.#add(root, start, end));
    for (let next = this.#todo.pop(); next; next = this.#todo.pop()) next();
    if (!this.#prune()) return undefined;
    this.#findEmpty();
    for (const rule of this.#rules) this.#begin(rule);
    this.#unwind();
    return this.#packed();
  }

  #node(): number {
    if (this.#edges.length >= MAX_NODES)
      throw usageError('the form comes to too many states: make it, or its bounds, smaller');
    spend(1);
    this.#calls.push([]);
    this.#joins.push([]);
    this.#owner.push(this.#owning);
    return this.#edges.push([]) - 1;
  }

  #ruleOf(key: string, make: (start: number, end: number) => void): number {
    let number = this.#named.get(key);
    if (number === undefined) {
      const owning = this.#owning;
      number = this.#owning = this.#rules.length;
      this.#named.set(key, number);
      const [start, end] = [this.#node(), this.#node()];
      this.#owning = owning;
      this.#rules.push({ start, end, isEmpty: false, starts: [], firstCalls: [] });
      this.#todo.push(() => {
        this.#owning = number!;
        make(start, end);
      });
    }
    return number;
  }

  /** A part as a rule of its own. */
  #partOf(of: Expression): Expression {
    return of.kind === 'rule' || of.kind === 'one' ? of : { kind: 'rule', number: ~this.#idOf(of) };
  }

  #parts: Expression[] = [];
  #idOf(of: Expression): number {
    let id = this.#ids.get(of);
    if (id === undefined) this.#ids.set(of, (id = this.#parts.push(of) - 1));
    return id;
  }

  /** The texts of an expression lead from one node to the other. Nothing else leaves the one or comes to the other here. */
  #add(of: Expression, from: number, to: number): void {
    spend(1);
    switch (of.kind) {
      case 'text':
        return this.#addText(of.symbols, from, to);
      case 'one':
        return this.#addSet(of.of, from, to);
      case 'rule': {
        const body = (): Expression => (of.number < 0 ? this.#parts[~of.number]! : this.rule(of.number));
        const rule = this.#ruleOf(`${of.number}`, (start, end) => this.#add(body(), start, end));
        return void this.#calls[from]!.push([rule, to]);
      }
      case 'any':
        for (const option of of.options) this.#add(option, from, to);
        return;
      case 'all': {
        let next = to;
        for (let at = of.parts.length - 1; at > 0; at--) next = this.#before(of.parts[at]!, next);
        return this.#add(of.parts[0]!, from, next);
      }
      case 'states': {
        const nodes = of.of.states.map((_, state) => (state === 0 ? from : this.#node()));
        for (const [state, { accepts, edges }] of of.of.states.entries()) {
          if (accepts) this.#joins[nodes[state]!]!.push(to);
          for (const [set, target] of edges) this.#add(of.write(set), nodes[state]!, nodes[target]!);
        }
        return;
      }
      case 'repeat':
        return this.#addTimes(of.part, of.least, of.most, from, to);
    }
  }

  /** A node from which an expression leads to another: one for all that need it. */
  #before(of: Expression, to: number): number {
    return this.#leading(to, of, (node) => this.#add(of, node, to));
  }

  #leading(to: number, key: Expression | string, make: (node: number) => void): number {
    const known = (this.#befores[to] ??= new Map<Expression | string, number>());
    let node = known.get(key);
    if (node === undefined) {
      known.set(key, (node = this.#node()));
      make(node);
    }
    return node;
  }

  #addText(symbols: readonly number[], from: number, to: number): void {
    if (symbols.length === 0) return void this.#joins[from]!.push(to);
    let at = from;
    for (const [index, symbol] of symbols.entries()) {
      const next = index === symbols.length - 1 ? to : this.#node();
      this.#edges[at]!.push([symbol, symbol, next]);
      at = next;
    }
  }

  #addSet(set: CodePoints, from: number, to: number): void {
    const runs = byteRuns(set);
    spend(runs.length);
    if (runs.length > INLINE) {
      const rule = this.#ruleOf(`set ${set.join()}`, (start, end) => this.#addRuns(runs, start, end));
      return void this.#calls[from]!.push([rule, to]);
    }
    this.#addRuns(runs, from, to);
  }

  /** What ends alike is there once. */
  #addRuns(runs: readonly (readonly (readonly [number, number])[])[], from: number, to: number): void {
    for (const run of runs) {
      let target = to;
      for (let at = run.length - 1; at > 0; at--) {
        const [range, next] = [run[at]!, target];
        target = this.#leading(next, range.join(), (node) => this.#edges[node]!.push([...range, next]));
      }
      this.#edges[from]!.push([...run[0]!, target]);
    }
  }

  #addTimes(part: Expression, least: number, most: number, from: number, to: number): void {
    const one = least > 1 || (most > 1 && most !== Infinity) ? this.#partOf(part) : part;
    if (most === Infinity) {
      const loop = this.#node();
      this.#add(least === 0 ? NOTHING : this.#exactly(one, least), from, loop);
      this.#add(part, loop, loop);
      this.#joins[loop]!.push(to);
      return;
    }
    if (least > 0 && most > least)
      return this.#add(all(this.#exactly(one, least), this.#upTo(one, most - least)), from, to);
    if (least > 0) {
      if (least > COUNTED) return this.#add(this.#exactly(one, least), from, to);
      return this.#chain(one, least, from, to, false);
    }
    if (most > COUNTED) return this.#add(this.#upTo(one, most), from, to);
    this.#chain(one, most, from, to, true);
  }

  #chain(part: Expression, times: number, from: number, to: number, mayStop: boolean): void {
    let at = from;
    for (let left = times; left > 0; left--) {
      if (mayStop) this.#joins[at]!.push(to);
      const next = left === 1 ? to : this.#node();
      this.#add(part, at, next);
      at = next;
    }
  }

  #exactly(part: Expression, times: number): Expression {
    if (times <= COUNTED) return repeat(part, times, times);
    const half = 2 ** Math.floor(Math.log2(times - 1));
    return this.#counted(`exactly ${times}`, part, () =>
      all(this.#exactly(part, half), this.#exactly(part, times - half)),
    );
  }

  /** Of any two numbers of times at most a few ways lead there. */
  #upTo(part: Expression, times: number): Expression {
    if (times <= COUNTED) return { kind: 'repeat', part, least: 0, most: times };
    const half = 2 ** Math.floor(Math.log2(times));
    return this.#counted(`up to ${times}`, part, () =>
      any(
        all(this.#exactly(part, half), times > half ? this.#upTo(part, times - half) : NOTHING),
        this.#upTo(part, half - 1),
      ),
    );
  }

  readonly #counts = new Map<string, Expression>();
  #counted(what: string, part: Expression, make: () => Expression): Expression {
    const key = `${what} ${part.kind === 'rule' ? part.number : `of ${this.#idOf(part)}`}`;
    let made = this.#counts.get(key);
    if (!made) this.#counts.set(key, (made = this.#partOf(make())));
    return made;
  }

  /** Nodes from which their rule's end can be reached: 1. @param texts false: by the empty text alone */
  #ending(texts: boolean): Uint8Array {
    const count = this.#edges.length;
    const into: number[][] = Array.from({ length: count }, () => []);
    /** Calls that return to a node, and those of a rule. */
    const callsInto: [caller: number, rule: number][][] = Array.from({ length: count }, () => []);
    const callers: [caller: number, back: number][][] = this.#rules.map(() => []);
    for (let node = 0; node < count; node++) {
      if (texts) for (const [, , target] of this.#edges[node]!) into[target]!.push(node);
      for (const target of this.#joins[node]!) into[target]!.push(node);
      for (const [rule, back] of this.#calls[node]!) {
        callsInto[back]!.push([node, rule]);
        callers[rule]!.push([node, back]);
      }
    }
    const alive = new Uint8Array(count);
    const waiting: number[] = [];
    const reach = (node: number): void => {
      if (alive[node]) return;
      alive[node] = 1;
      waiting.push(node);
    };
    const starts = new Map(this.#rules.map(({ start }, rule) => [start, rule]));
    for (const { end } of this.#rules) reach(end);
    for (let node = waiting.pop(); node !== undefined; node = waiting.pop()) {
      into[node]!.forEach(reach);
      for (const [caller, rule] of callsInto[node]!) if (alive[this.#rules[rule]!.start]) reach(caller);
      const rule = starts.get(node);
      if (rule !== undefined) for (const [caller, back] of callers[rule]!) if (alive[back]) reach(caller);
    }
    return alive;
  }

  /** Leaves out what no text comes of; whether anything is left. */
  #prune(): boolean {
    const alive = this.#ending(true);
    for (let node = 0; node < alive.length; node++) {
      this.#edges[node] = this.#edges[node]!.filter(([, , target]) => alive[target]);
      this.#joins[node] = this.#joins[node]!.filter((target) => alive[target]);
      this.#calls[node] = this.#calls[node]!.filter(([rule, back]) => alive[back] && alive[this.#rules[rule]!.start]);
    }
    return alive[this.#rules[0]!.start] === 1;
  }

  /** Rules that the empty text is of: calls of them are joins as well. */
  #findEmpty(): void {
    const ending = this.#ending(false);
    for (const rule of this.#rules) rule.isEmpty = ending[rule.start] === 1;
    for (const [node, calls] of this.#calls.entries())
      for (const [rule, back] of calls) if (this.#rules[rule]!.isEmpty) this.#joins[node]!.push(back);
  }

  /** What a rule begins with. */
  #begin(rule: Rule): void {
    const seen = new Set([rule.start]);
    for (const node of seen) {
      spend(1);
      for (const next of this.#joins[node]!) seen.add(next);
      if (this.#edges[node]!.length > 0) rule.starts.push(node);
      rule.firstCalls.push(...this.#calls[node]!);
    }
  }

  /**
   * Rules that begin with themselves, or with one another, begin with what each of them begins with otherwise; behind one of them comes what
   * may follow it there.
   */
  #unwind(): void {
    const before = this.#rules.map((rule) => ({ ...rule }));
    const cycles = cyclesOf(before.map(({ firstCalls }) => firstCalls.map(([rule]) => rule)));
    if (cycles.flat().length > MAX_CYCLE)
      throw usageError(`the grammar has more than ${MAX_CYCLE} rules that begin with themselves`);
    for (const cycle of cycles) {
      const isIn = new Set(cycle);
      const nodes = this.#owner.flatMap((owner, node) => (isIn.has(owner) ? [node] : []));
      for (const number of cycle) {
        this.#owning = number;
        const copies = new Map(nodes.map((node) => [node, this.#node()]));
        const copy = (node: number): number => copies.get(node)!;
        for (const [node, own] of copies) {
          this.#edges[own] = this.#edges[node]!.map(([first, last, target]) => [first, last, copy(target)]);
          this.#calls[own] = this.#calls[node]!.map(([rule, back]) => [rule, copy(back)]);
          this.#joins[own] = this.#joins[node]!.map(copy);
        }
        const rule = this.#rules[number]!;
        rule.end = copy(before[number]!.end);
        [rule.starts, rule.firstCalls] = [[], []];
        for (const of of cycle) {
          const { starts, firstCalls } = before[of]!;
          rule.starts.push(...starts.map(copy));
          for (const [called, back] of firstCalls) {
            if (isIn.has(called)) this.#joins[copy(before[called]!.end)]!.push(copy(back));
            else rule.firstCalls.push([called, copy(back)]);
          }
        }
      }
    }
  }

  /** Rules, each before those that it begins with. */
  #ordered(): number[] {
    const counts = this.#rules.map(() => 0);
    for (const { firstCalls } of this.#rules) for (const [rule] of firstCalls) counts[rule]!++;
    const order = counts.flatMap((count, rule) => (count === 0 ? [rule] : []));
    for (const rule of order)
      for (const [called] of this.#rules[rule]!.firstCalls) if (--counts[called]! === 0) order.push(called);
    return order;
  }

  #packed(): Network {
    const order = this.#ordered();
    const numbers = new Map(order.map((rule, at) => [rule, at]));
    const isEnd = new Set(this.#rules.map(({ end }) => end));
    const isOnlyEnd = (node: number): boolean =>
      isEnd.has(node) && this.#edges[node]!.length + this.#calls[node]!.length + this.#joins[node]!.length === 0;
    const calls = (of: readonly Call[]): number[] =>
      of.flatMap(([rule, back]) => [numbers.get(rule)!, back, isOnlyEnd(back) ? 1 : 0]);
    const list = <T>(of: readonly T[], values: (one: T) => readonly number[]): [Int32Array, Int32Array] => {
      const all: number[] = [];
      const from = new Int32Array(of.length + 1);
      for (const [at, one] of of.entries()) {
        for (const value of values(one)) all.push(value);
        from[at + 1] = all.length;
      }
      return [Int32Array.from(all), from];
    };
    const [edges, edgesFrom] = list(this.#edges, (of) => of.flat());
    const [callList, callsFrom] = list(this.#calls, calls);
    const [joins, joinsFrom] = list(this.#joins, (of) => of);
    const rules = order.map((rule) => this.#rules[rule]!);
    const [starts, startsFrom] = list(rules, (rule) => rule.starts);
    const [firstCalls, firstCallsFrom] = list(rules, (rule) => calls(rule.firstCalls));
    return {
      ...classesOf(edges),
      edges,
      edgesFrom,
      calls: callList,
      callsFrom,
      joins,
      joinsFrom,
      ends: Uint8Array.from(this.#edges, (_, node) => (isEnd.has(node) ? 1 : 0)),
      starts,
      startsFrom,
      firstCalls,
      firstCallsFrom,
      root: numbers.get(0)!,
      empty: this.#rules[0]!.isEmpty,
    };
  }
}

function classesOf(edges: Int32Array): Pick<Network, 'classes' | 'symbols'> {
  let last = 255;
  for (let at = 1; at < edges.length; at += 3) last = Math.max(last, edges[at]!);
  // A class begins where an edge begins or has ended.
  const begins = new Uint8Array(last + 2);
  for (let at = 0; at < edges.length; at += 3) begins[edges[at]!] = begins[edges[at + 1]! + 1] = 1;
  const symbols = [0];
  const classes = new Uint16Array(last + 1);
  for (let symbol = 0; symbol <= last; symbol++) {
    if (symbol > 0 && begins[symbol]) symbols.push(symbol);
    classes[symbol] = symbols.length - 1;
  }
  return { classes, symbols: Uint16Array.from(symbols) };
}
