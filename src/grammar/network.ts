import { usageError } from '../base/errors.js';
import { cyclesOf, valueIn, nth } from '../base/lists.js';
import { spend } from './automaton.js';
import { byteRuns, type CodePoints } from './code_points.js';
import { all, any, type Expression, NEVER, NOTHING, repeat } from './notation.js';

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
/** Rules that begin with one another. */
const MAX_CYCLE = 64;

interface Node {
  readonly id: number;
  /** Number of its rule. */
  readonly owner: number;
  edges: Edge[];
  calls: Call[];
  joins: Node[];
  /** Nodes from which an expression, or a range of bytes, leads here. */
  befores?: Map<Expression | string, Node>;
  /** What leads here without a call; and calls that need this node, which they return to or begin with. */
  readonly into: Node[];
  readonly callers: { readonly node: Node; readonly call: Call }[];
  /** The end of its rule can be reached. */
  isAlive: boolean;
  /** A string begins here that no other of its list may be. */
  distinct?: number;
}

type Edge = readonly [first: number, last: number, target: Node];
type Call = readonly [rule: RuleNodes, back: Node];

interface RuleNodes {
  number: number;
  readonly start: Node;
  end: Node;
  /** As in a network. */
  starts: Node[];
  firstCalls: Call[];
  callers: number;
}

type ByteRun = readonly (readonly [number, number])[];

/** @returns undefined where no text is of it */
export const networkOf = (root: Expression): Network | undefined => new Builder().build(root);

class Builder {
  readonly #nodes: Node[] = [];
  readonly #rules: RuleNodes[] = [];
  readonly #named = new Map<Expression | string, RuleNodes>();
  readonly #parts = new Map<Expression, Expression>();
  readonly #counts = new Map<Expression, Map<string, Expression>>();
  readonly #todo: (() => void)[] = [];
  #owning = 0;

  build(of: Expression): Network | undefined {
    const root = this.#ruleOf('root', (start, end) => this.#add(of, start, end));
    for (let next = this.#todo.pop(); next; next = this.#todo.pop()) next();
    this.#findEnding(true);
    if (!root.start.isAlive) return undefined;
    this.#prune();
    // Calls of rules that the empty text is of are joins as well.
    this.#findEnding(false);
    for (const { calls, joins } of this.#nodes)
      for (const [rule, back] of calls) if (rule.start.isAlive) joins.push(back);
    for (const rule of this.#rules) this.#begin(rule);
    this.#unwind();
    return this.#packed(root, root.start.isAlive);
  }

  #node(): Node {
    const id = this.#nodes.length;
    if (id >= MAX_NODES) throw usageError('the form comes to too many states: make it, or its bounds, smaller');
    spend(1);
    const node = { id, owner: this.#owning, edges: [], calls: [], joins: [], into: [], callers: [], isAlive: false };
    this.#nodes.push(node);
    return node;
  }

  #ruleOf(key: Expression | string, make: (start: Node, end: Node) => void): RuleNodes {
    return valueIn(this.#named, key, () => {
      const owning = this.#owning;
      const number = (this.#owning = this.#rules.length);
      const [start, end] = [this.#node(), this.#node()];
      this.#owning = owning;
      const rule: RuleNodes = { number, start, end, starts: [], firstCalls: [], callers: 0 };
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
  #add(of: Expression, from: Node, to: Node): void {
    spend(1);
    switch (of.kind) {
      case 'text':
        return this.#addText(of.symbols, from, to);
      case 'one':
        return this.#addSet(of.of, from, to);
      case 'rule':
        from.calls.push([this.#ruleOf(of, (start, end) => this.#add(of.body ?? NEVER, start, end)), to]);
        return;
      case 'distinct': {
        const make = (start: Node, end: Node): void => {
          start.distinct = of.within;
          this.#add(of.of, start, end);
        };
        from.calls.push([this.#ruleOf(of, make), to]);
        return;
      }
      case 'any':
        for (const option of of.options) this.#add(option, from, to);
        return;
      case 'all': {
        const [first = NOTHING, ...rest] = of.parts;
        const behind = rest.reduceRight<Node>((next, part) => this.#before(part, next), to);
        return this.#add(first, from, behind);
      }
      case 'states': {
        const nodes = of.of.states.map((_, state) => (state === 0 ? from : this.#node()));
        for (const [state, { accepts, edges }] of of.of.states.entries()) {
          const node = nth(nodes, state);
          if (accepts) node.joins.push(to);
          for (const [set, target] of edges) this.#add(of.write(set), node, nth(nodes, target));
        }
        return;
      }
      case 'repeat':
        return this.#addTimes(of.part, of.least, of.most, from, to);
    }
  }

  /** A node from which an expression leads to another: one for all that need it. */
  #before(of: Expression, to: Node): Node {
    return this.#leading(to, of, (node) => this.#add(of, node, to));
  }

  #leading(to: Node, key: Expression | string, make: (node: Node) => void): Node {
    return valueIn((to.befores ??= new Map<Expression | string, Node>()), key, () => {
      const node = this.#node();
      make(node);
      return node;
    });
  }

  #addText(symbols: readonly number[], from: Node, to: Node): void {
    if (symbols.length === 0) return void from.joins.push(to);
    let at = from;
    for (const [index, symbol] of symbols.entries()) {
      const next = index === symbols.length - 1 ? to : this.#node();
      at.edges.push([symbol, symbol, next]);
      at = next;
    }
  }

  #addSet(set: CodePoints, from: Node, to: Node): void {
    const runs = byteRuns(set);
    spend(runs.length);
    if (runs.length <= INLINE) return this.#addRuns(runs, from, to);
    from.calls.push([this.#ruleOf(`set ${set.join()}`, (start, end) => this.#addRuns(runs, start, end)), to]);
  }

  /** What ends alike is there once. */
  #addRuns(runs: readonly ByteRun[], from: Node, to: Node): void {
    for (const [first, ...rest] of runs) {
      const behind = rest.reduceRight<Node>(
        (next, range) => this.#leading(next, range.join(), (node) => node.edges.push([...range, next])),
        to,
      );
      if (first) from.edges.push([...first, behind]);
    }
  }

  #addTimes(part: Expression, least: number, most: number, from: Node, to: Node): void {
    const one = least > 1 || (most > 1 && most !== Infinity) ? this.#partOf(part) : part;
    if (most === Infinity) {
      const loop = this.#node();
      this.#add(least === 0 ? NOTHING : this.#exactly(one, least), from, loop);
      this.#add(part, loop, loop);
      loop.joins.push(to);
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

  #chain(part: Expression, times: number, from: Node, to: Node, mayStop: boolean): void {
    let at = from;
    for (let left = times; left > 0; left--) {
      if (mayStop) at.joins.push(to);
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

  /** Which nodes lead to their rule's end. @param texts false: by the empty text alone */
  #findEnding(texts: boolean): void {
    for (const node of this.#nodes) {
      node.into.length = node.callers.length = 0;
      node.isAlive = false;
    }
    for (const node of this.#nodes) {
      if (texts) for (const [, , target] of node.edges) target.into.push(node);
      for (const target of node.joins) target.into.push(node);
      for (const call of node.calls) {
        const [{ start }, back] = call;
        const caller = { node, call };
        start.callers.push(caller);
        back.callers.push(caller);
      }
    }
    const waiting: Node[] = [];
    const reach = (node: Node): void => {
      if (node.isAlive) return;
      node.isAlive = true;
      waiting.push(node);
    };
    for (const { end } of this.#rules) reach(end);
    for (let next = waiting.pop(); next; next = waiting.pop()) {
      next.into.forEach(reach);
      for (const { node, call } of next.callers) if (leads(call)) reach(node);
    }
  }

  /** Leaves out what no text comes of. */
  #prune(): void {
    for (const node of this.#nodes) {
      node.edges = node.edges.filter(([, , target]) => target.isAlive);
      node.joins = node.joins.filter(({ isAlive }) => isAlive);
      node.calls = node.calls.filter(leads);
    }
  }

  /** What a rule begins with. */
  #begin(rule: RuleNodes): void {
    const seen = new Set([rule.start]);
    for (const node of seen) {
      spend(1);
      for (const next of node.joins) seen.add(next);
      if (node.edges.length > 0) rule.starts.push(node);
      rule.firstCalls.push(...node.calls);
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
      const nodes = this.#nodes.filter(({ owner }) => cycle.includes(owner));
      const unwound = rules.map(({ number, end }) => {
        this.#owning = number;
        const copies = new Map(nodes.map((node) => [node, this.#node()]));
        const copy = (node: Node): Node => copies.get(node)!;
        for (const [node, own] of copies) {
          own.edges = node.edges.map(([first, last, target]) => [first, last, copy(target)]);
          own.calls = node.calls.map(([rule, back]) => [rule, copy(back)]);
          own.joins = node.joins.map(copy);
        }
        const begun = { end: copy(end), starts: [] as Node[], firstCalls: [] as Call[] };
        for (const { starts, firstCalls } of rules) {
          begun.starts.push(...starts.map(copy));
          for (const [called, back] of firstCalls) {
            if (rules.includes(called)) copy(called.end).joins.push(copy(back));
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
    for (const { firstCalls } of this.#rules) for (const [rule] of firstCalls) rule.callers++;
    const order = this.#rules.filter(({ callers }) => callers === 0);
    for (const rule of order) for (const [called] of rule.firstCalls) if (--called.callers === 0) order.push(called);
    for (const [at, rule] of order.entries()) rule.number = at;
    return order;
  }

  #packed(root: RuleNodes, empty: boolean): Network {
    const rules = this.#ordered();
    const ends = new Set(rules.map(({ end }) => end));
    const isOnlyEnd = (node: Node): boolean =>
      ends.has(node) && node.edges.length + node.calls.length + node.joins.length === 0;
    type Write<T> = (one: T, all: number[]) => void;
    const list = <T>(of: readonly T[], write: Write<T>): [Int32Array, Int32Array] => {
      const all: number[] = [];
      const from = new Int32Array(of.length + 1);
      for (const [at, one] of of.entries()) {
        write(one, all);
        from[at + 1] = all.length;
      }
      return [Int32Array.from(all), from];
    };
    const ids = (nodes: readonly Node[], all: number[]): void => nodes.forEach(({ id }) => all.push(id));
    const write = (of: readonly Call[], all: number[]): void => {
      for (const [rule, back] of of) all.push(rule.number, back.id, isOnlyEnd(back) ? 1 : 0);
    };
    const [edges, edgesFrom] = list(this.#nodes, (node, all) => {
      for (const [first, last, { id }] of node.edges) all.push(first, last, id);
    });
    const [calls, callsFrom] = list(this.#nodes, (node, all) => write(node.calls, all));
    const [joins, joinsFrom] = list(this.#nodes, (node, all) => ids(node.joins, all));
    const [starts, startsFrom] = list(rules, (rule, all) => ids(rule.starts, all));
    const [firstCalls, firstCallsFrom] = list(rules, (rule, all) => write(rule.firstCalls, all));
    return {
      ...classesOf(edges),
      edges,
      edgesFrom,
      calls,
      callsFrom,
      joins,
      joinsFrom,
      ends: Uint8Array.from(this.#nodes, (node) => (ends.has(node) ? 1 : 0)),
      starts,
      startsFrom,
      firstCalls,
      firstCallsFrom,
      distinct: this.#nodes.some(({ distinct }) => distinct)
        ? Uint8Array.from(this.#nodes, ({ distinct = 0 }) => distinct)
        : undefined,
      root: root.number,
      empty,
    };
  }
}

/** Of a call of a rule: the rule has texts, and what is behind leads to an end. */
const leads = ([rule, back]: Call): boolean => back.isAlive && rule.start.isAlive;

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
