import { usageError } from '../base/errors.js';
import { cyclesOf, valueIn, nth } from '../base/lists.js';
import { spend } from './automaton.js';
import { byteRuns, type CodePoints, WIDE } from './code_points.js';
import { all, any, type Expression, NEVER, NOTHING, oneOf, repeat } from './notation.js';

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
  /** Nodes where a string begins that no other of its list may be: how many brackets it is within it. Undefined where there are none. */
  readonly distinct: Uint8Array | undefined;
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
const ANY_WIDE = oneOf(WIDE);
/** Rules that begin with one another. */
const MAX_CYCLE = 64;

interface RuleNodes {
  number: number;
  readonly start: number;
  end: number;
  /** As in a network. */
  starts: number[];
  firstCalls: Call[];
  /** Links that call it. */
  readonly callers: number[];
  begunBy: number;
}

type Call = readonly [rule: RuleNodes, back: number];

type ByteRun = readonly (readonly [number, number])[];

/** In the place of a link's first symbol: nothing is needed; or a text of the rule whose number is in the place of the last. */
const [JOIN, CALL, GONE] = [-1, -2, -3];

/** @returns undefined where no text is of it */
export const networkOf = (root: Expression): Network | undefined => new Builder().build(root);

/** Nodes are numbers, and what leads from one to another is in one list: objects would take most of the time. */
class Builder {
  /** By node, the number of its rule. */
  readonly #owners: number[] = [];
  /** Links, each as four numbers: from where, first and last symbol, where to. */
  readonly #links: number[] = [];
  /** Nodes from which an expression, or a range of bytes, leads to a node. */
  readonly #befores = new Map<number, Map<Expression, number>>();
  readonly #ranges = new Map<number, number>();
  /** Nodes where a string begins that no other of its list may be. */
  readonly #distinct = new Map<number, number>();
  readonly #rules: RuleNodes[] = [];
  readonly #named = new Map<Expression | string, RuleNodes>();
  readonly #parts = new Map<Expression, Expression>();
  readonly #counts = new Map<Expression, Map<string, Expression>>();
  readonly #todo: (() => void)[] = [];
  #owning = 0;

  build(of: Expression): Network | undefined {
    const root = this.#ruleOf('root', (start, end) => this.#add(of, start, end));
    for (let next = this.#todo.pop(); next; next = this.#todo.pop()) next();
    const alive = this.#ending(true);
    if (!alive[root.start]) return undefined;
    const links = this.#links;
    const count = links.length;
    // What no text comes of is left out.
    for (let at = 0; at < count; at += 4) if (!this.#leads(at, alive)) links[at + 1] = GONE;
    // Calls of rules that the empty text is of are joins as well.
    const empty = this.#ending(false);
    for (let at = 0; at < count; at += 4)
      if (links[at + 1] === CALL && empty[nth(this.#rules, links[at + 2]!).start])
        links.push(links[at]!, JOIN, 0, links[at + 3]!);
    this.#begin();
    this.#unwind();
    return this.#packed(root, empty[root.start] === 1);
  }

  #node(): number {
    const id = this.#owners.length;
    if (id >= MAX_NODES) throw usageError('the form comes to too many states: make it, or its bounds, smaller');
    spend(1);
    return this.#owners.push(this.#owning) - 1;
  }

  #join(from: number, to: number): void {
    this.#links.push(from, JOIN, 0, to);
  }

  /** By nodes, which column `by` has: links `order[from[node]]` to `order[from[node + 1]]`. */
  #linksBy(by: 0 | 3): { readonly order: Int32Array; readonly from: Int32Array } {
    const links = this.#links;
    const from = new Int32Array(this.#owners.length + 1);
    for (let at = 0; at < links.length; at += 4) if (links[at + 1] !== GONE) from[links[at + by]! + 1]!++;
    for (let node = 1; node < from.length; node++) from[node]! += from[node - 1]!;
    const next = from.slice();
    const order = new Int32Array(from.at(-1)!);
    for (let at = 0; at < links.length; at += 4) if (links[at + 1] !== GONE) order[next[links[at + by]!]!++] = at;
    return { order, from };
  }

  /** Whether an end is behind a link, and a called rule has texts. */
  #leads(at: number, alive: Uint8Array): boolean {
    const links = this.#links;
    return alive[links[at + 3]!] === 1 && (links[at + 1] !== CALL || alive[this.#rules[links[at + 2]!]!.start] === 1);
  }

  #ruleOf(key: Expression | string, make: (start: number, end: number) => void): RuleNodes {
    return valueIn(this.#named, key, () => {
      const owning = this.#owning;
      const number = (this.#owning = this.#rules.length);
      const [start, end] = [this.#node(), this.#node()];
      this.#owning = owning;
      const rule: RuleNodes = { number, start, end, starts: [], firstCalls: [], callers: [], begunBy: 0 };
      this.#rules.push(rule);
      this.#todo.push(() => {
        this.#owning = number;
        make(start, end);
      });
      return rule;
    });
  }
  /** A part as a rule of its own. */
  #partOf(of: Expression): Expression {
    if (of.kind === 'rule' || of.kind === 'one') return of;
    return valueIn(this.#parts, of, () => ({ kind: 'rule', body: of }));
  }

  /** The texts of an expression lead from one node to the other. Nothing else leaves the one or comes to the other here. */
  #add(of: Expression, from: number, to: number): void {
    spend(1);
    switch (of.kind) {
      case 'text':
        return this.#addText(of.symbols, from, to);
      case 'one':
        return this.#addSet(of.of, from, to);
      case 'rule':
        return this.#call(
          this.#ruleOf(of, (start, end) => this.#add(of.body ?? NEVER, start, end)),
          from,
          to,
        );
      case 'distinct': {
        const make = (start: number, end: number): void => {
          this.#distinct.set(start, of.within);
          this.#add(of.of, start, end);
        };
        return this.#call(this.#ruleOf(of, make), from, to);
      }
      case 'any':
        for (const option of of.options) this.#add(option, from, to);
        return;
      case 'all': {
        const [first = NOTHING, ...rest] = of.parts;
        const behind = rest.reduceRight((next, part) => this.#before(part, next), to);
        return this.#add(first, from, behind);
      }
      case 'states': {
        const nodes = of.of.states.map((_, state) => (state === 0 ? from : this.#node()));
        for (const [state, { accepts, edges }] of of.of.states.entries()) {
          const node = nth(nodes, state);
          if (accepts) this.#join(node, to);
          for (const [set, target] of edges) this.#add(of.write(set), node, nth(nodes, target));
        }
        return;
      }
      case 'repeat':
        return this.#addTimes(of.part, of.least, of.most, from, to);
    }
  }

  #call({ number, callers }: RuleNodes, from: number, back: number): void {
    callers.push(this.#links.push(from, CALL, number, back) - 4);
  }

  /** A node from which an expression leads to another: one for all that need it. */
  #before(of: Expression, to: number): number {
    const befores = valueIn(this.#befores, to, () => new Map<Expression, number>());
    return valueIn(befores, of, () => {
      const node = this.#node();
      this.#add(of, node, to);
      return node;
    });
  }

  #addText(symbols: readonly number[], from: number, to: number): void {
    if (symbols.length === 0) return this.#join(from, to);
    for (let at = from, index = 0; index < symbols.length; index++) {
      const next = index === symbols.length - 1 ? to : this.#node();
      this.#links.push(at, symbols[index]!, symbols[index]!, next);
      at = next;
    }
  }

  #addSet(set: CodePoints, from: number, to: number): void {
    const { runs, andWide } = byteRuns(set);
    if (andWide) this.#join(from, this.#before(ANY_WIDE, to));
    spend(runs.length);
    if (runs.length <= INLINE) return this.#addRuns(runs, from, to);
    this.#call(
      this.#ruleOf(`set ${set.join()}`, (start, end) => this.#addRuns(runs, start, end)),
      from,
      to,
    );
  }

  /** What ends alike is there once. */
  #addRuns(runs: readonly ByteRun[], from: number, to: number): void {
    for (const run of runs) {
      let next = to;
      for (let at = run.length - 1; at > 0; at--) {
        const [low, high] = run[at]!;
        const target = next;
        next = valueIn(this.#ranges, (target * 64 + low - 0x80) * 64 + high - 0x80, () => {
          const node = this.#node();
          this.#links.push(node, low, high, target);
          return node;
        });
      }
      const [low, high] = run[0]!;
      this.#links.push(from, low, high, next);
    }
  }

  #addTimes(part: Expression, least: number, most: number, from: number, to: number): void {
    const one = least > 1 || (most > 1 && most !== Infinity) ? this.#partOf(part) : part;
    if (most === Infinity) {
      const loop = this.#node();
      this.#add(least === 0 ? NOTHING : this.#exactly(one, least), from, loop);
      this.#add(part, loop, loop);
      this.#join(loop, to);
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
      if (mayStop) this.#join(at, to);
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

  #counted(what: string, part: Expression, make: () => Expression): Expression {
    const counts = valueIn(this.#counts, part, () => new Map<string, Expression>());
    return valueIn(counts, what, () => this.#partOf(make()));
  }

  /** Nodes that lead to their rule's end: 1. @param texts false: by the empty text alone */
  #ending(texts: boolean): Uint8Array {
    const links = this.#links;
    const { order, from } = this.#linksBy(3);
    const alive = new Uint8Array(this.#owners.length);
    const waiting: number[] = [];
    const reach = (node: number): void => {
      if (alive[node]) return;
      alive[node] = 1;
      waiting.push(node);
    };
    const back = (at: number): void => {
      if ((texts || links[at + 1]! < 0) && links[at + 1] !== GONE && this.#leads(at, alive)) reach(links[at]!);
    };
    for (const { end } of this.#rules) reach(end);
    for (let node = waiting.pop(); node !== undefined; node = waiting.pop()) {
      for (let i = from[node]!; i < from[node + 1]!; i++) back(order[i]!);
      const rule = this.#rules[this.#owners[node]!]!;
      if (rule.start === node) rule.callers.forEach(back);
    }
    return alive;
  }

  /** What rules begin with. */
  #begin(): void {
    const links = this.#links;
    const { order, from } = this.#linksBy(0);
    const met = new Int32Array(this.#owners.length).fill(-1);
    for (const { number, start, starts, firstCalls } of this.#rules) {
      const seen = [start];
      met[start] = number;
      for (const node of seen) {
        spend(1);
        let hasEdges = false;
        for (let i = from[node]!; i < from[node + 1]!; i++) {
          const at = order[i]!;
          const next = links[at + 3]!;
          hasEdges ||= links[at + 1]! >= 0;
          if (links[at + 1] === CALL) firstCalls.push([this.#rules[links[at + 2]!]!, next]);
          if (links[at + 1] !== JOIN || met[next] === number) continue;
          met[next] = number;
          seen.push(next);
        }
        if (hasEdges) starts.push(node);
      }
    }
  }

  /**
   * Rules that begin with themselves, or with one another, begin with what each of them begins with otherwise; behind one of them comes what
   * may follow it there.
   */
  #unwind(): void {
    const cycles = cyclesOf(this.#rules.map(({ firstCalls }) => firstCalls.map(([rule]) => rule.number)));
    if (cycles.flat().length > MAX_CYCLE)
      throw usageError(`the grammar has more than ${MAX_CYCLE} rules that begin with themselves`);
    for (const cycle of cycles) {
      const rules = cycle.map((number) => nth(this.#rules, number));
      const isOf = new Set(cycle);
      const nodes = [...this.#owners.keys()].filter((node) => isOf.has(nth(this.#owners, node)));
      const links = this.#links.slice();
      const unwound = rules.map(({ number, end }) => {
        this.#owning = number;
        const copies = new Map(nodes.map((node) => [node, this.#node()]));
        const copy = (node: number): number => copies.get(node)!;
        for (let at = 0; at < links.length; at += 4)
          if (copies.has(links[at]!) && links[at + 1] !== GONE)
            this.#links.push(copy(links[at]!), links[at + 1]!, links[at + 2]!, copy(links[at + 3]!));
        const begun = { end: copy(end), starts: [] as number[], firstCalls: [] as Call[] };
        for (const { starts, firstCalls } of rules) {
          begun.starts.push(...starts.map(copy));
          for (const [called, back] of firstCalls) {
            if (rules.includes(called)) this.#join(copy(called.end), copy(back));
            else begun.firstCalls.push([called, copy(back)]);
          }
        }
        return begun;
      });
      for (const [at, rule] of rules.entries()) Object.assign(rule, unwound[at]);
    }
  }

  /** Numbers of rules: each before those that it begins with. */
  #ordered(): RuleNodes[] {
    for (const { firstCalls } of this.#rules) for (const [rule] of firstCalls) rule.begunBy++;
    const order = this.#rules.filter(({ begunBy }) => begunBy === 0);
    for (const rule of order) for (const [called] of rule.firstCalls) if (--called.begunBy === 0) order.push(called);
    for (const [at, rule] of order.entries()) rule.number = at;
    return order;
  }

  #packed(root: RuleNodes, empty: boolean): Network {
    const rules = this.#ordered();
    const links = this.#links;
    const { order, from } = this.#linksBy(0);
    const ends = new Uint8Array(this.#owners.length);
    for (const { end } of rules) ends[end] = 1;
    const callOf = ({ number }: RuleNodes, back: number): number[] => [
      number,
      back,
      ends[back] === 1 && from[back] === from[back + 1] ? 1 : 0,
    ];
    const [edges, joins, calls]: [number[], number[], number[]] = [[], [], []];
    const [edgesFrom, joinsFrom, callsFrom] = [from.slice(), from.slice(), from.slice()];
    for (let node = 0; node < ends.length; node++) {
      for (let i = from[node]!; i < from[node + 1]!; i++) {
        const at = order[i]!;
        const to = links[at + 3]!;
        if (links[at + 1] === JOIN) joins.push(to);
        else if (links[at + 1] === CALL) calls.push(...callOf(this.#rules[links[at + 2]!]!, to));
        else edges.push(links[at + 1]!, links[at + 2]!, to);
      }
      edgesFrom[node + 1] = edges.length;
      joinsFrom[node + 1] = joins.length;
      callsFrom[node + 1] = calls.length;
    }
    const list = (of: (rule: RuleNodes) => number[]): [Int32Array, Int32Array] => {
      const from = new Int32Array(rules.length + 1);
      const all = rules.map(of);
      for (const [at, { length }] of all.entries()) from[at + 1] = from[at]! + length;
      return [Int32Array.from(all.flat()), from];
    };
    const [starts, startsFrom] = list((rule) => rule.starts);
    const [firstCalls, firstCallsFrom] = list((rule) => rule.firstCalls.flatMap((call) => callOf(...call)));
    return {
      ...classesOf(edges),
      edges: Int32Array.from(edges),
      edgesFrom,
      calls: Int32Array.from(calls),
      callsFrom,
      joins: Int32Array.from(joins),
      joinsFrom,
      ends,
      starts,
      startsFrom,
      firstCalls,
      firstCallsFrom,
      distinct:
        this.#distinct.size > 0 ? Uint8Array.from(this.#owners, (_, node) => this.#distinct.get(node) ?? 0) : undefined,
      root: root.number,
      empty,
    };
  }
}

function classesOf(edges: readonly number[]): Pick<Network, 'classes' | 'symbols'> {
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
