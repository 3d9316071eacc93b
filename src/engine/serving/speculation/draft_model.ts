import { messageOf } from '../../../base/errors.js';
import { KV_BLOCK } from '../../../base/kv_units.js';
import { nth, range, valueIn } from '../../../base/lists.js';
import { ceilDiv } from '../../../base/math.js';
import { median } from '../../../base/stats.js';
import { type Rank, RECOMPUTED_ROWS, type SlotTokens } from '../../contracts/rank.js';
import type { Runner } from '../../ranks/runner.js';
import type { Drafter, Proposal } from './speculation.js';
import { TrunkRows } from './trunk_rows.js';

/** Most drafts of a step, each of which takes a step of the draft model. */
const MOST = 7;
/** How often a draft is right before any was verified, which weighs as much as so many tokens. What was counted long ago counts less. */
const USUAL = 0.8;
/** Of a head: what isn't tried isn't counted, and less wouldn't be tried where states are taken back. */
const HOPED = 0.95;
const WEIGHT = 6;
const FADES = 0.98;
/** Proposals of a length that are timed, the last ones. */
const TIMED = 5;
/** What twice as many texts take, until that was timed. */
const TWICE_TEXTS = 1.3;
const GREEDY = { seed: 0 };

/** What is gone on with. */
export interface DraftText {
  readonly tokens: readonly number[];
  /** Of a head: those that its tokens are joined with, each the row of the position before. */
  readonly rows?: TrunkRows | undefined;
}

/** One rank of whole weights, with a slot for each text that it goes on with in a step. */
export interface DraftRank {
  readonly runner: Runner;
  isLost(): boolean;
  dispose(): void;
}

/** A text in the cache. */
interface Cached {
  /** Those whose keys and values are computed. */
  tokens: readonly number[];
  /** The first of them that is in the cache: rows before weren't kept. */
  origin: number;
  readonly blocks: number[];
  /** The request's tokens that go on here; undefined: it is over, and another's that begins alike may. */
  owner: readonly number[] | undefined;
}

interface Asked {
  readonly text: DraftText;
  readonly count: number;
}

/**
 * A smaller model of the same vocabulary, or the model's own head. Its cache has a text of each of some requests, of one context's length
 * together: what was accepted stays, however they went on, and of one that is over what another begins with alike.
 */
export class DraftModel {
  /** Those of requests that are over in the order of their ends. */
  #cached: readonly Cached[] = [];
  #free: number[] = [];
  /** By request's tokens: what it is to have next, but for the last few tokens; they grow meanwhile. */
  readonly #wanted = new Map<readonly number[], DraftText>();
  #following: Promise<void> | undefined;
  /** What one step's requests have asked for, and what comes of it. */
  #asked: Asked[] = [];
  #answers: Promise<readonly (readonly number[])[]> | undefined;
  #isOver = false;
  /** By number of texts, and of tokens: seconds that proposals took. */
  readonly #seconds = new Map<number, Map<number, readonly number[]>>();

  private constructor(
    readonly name: string,
    /** Tokens of both models. */
    readonly vocabSize: number,
    readonly open: () => Promise<DraftRank>,
    public rank: DraftRank,
    readonly onWarning: (message: string) => void,
  ) {}

  /** @param open also after the device was lost */
  static async open(
    name: string,
    vocabSize: number,
    open: () => Promise<DraftRank>,
    onWarning: (message: string) => void = () => {},
  ): Promise<DraftModel> {
    const model = new DraftModel(name, vocabSize, open, await open(), onWarning);
    model.#begin();
    const { slots } = model.rank.runner.options;
    // The first ones may compile.
    for (const token of [0, 1]) {
      model.#seconds.clear();
      for (const texts of slots > 1 ? [1, 2] : [1]) await model.#tryTexts(texts, token);
    }
    return model;
  }

  /** Goes on with so many texts. */
  async #tryTexts(count: number, token: number): Promise<void> {
    const texts = range(0, count).map((): DraftText => {
      const rows = this.newRows();
      for (const position of [0, 1]) rows?.take(position, new Float32Array(this.rank.runner.config.hiddenSize));
      return { tokens: [token, token, token], rows };
    });
    await Promise.all(texts.filter((text) => this.follows(text)).map((text) => this.propose(text, 1)));
    for (const { tokens } of texts) this.end(tokens);
  }

  /** It is the model's own, and takes rows of it. */
  get isHead(): boolean {
    return this.rank.runner.config.inputs?.joins === true;
  }

  /** Takes a request's, of a head. */
  newRows(): TrunkRows | undefined {
    return this.isHead ? new TrunkRows() : undefined;
  }

  /** Nothing is in the cache. */
  #begin(): void {
    this.#cached = [];
    this.#free = range(0, ceilDiv(this.rank.runner.contextLength, KV_BLOCK));
  }

  /**
   * Whether a request's text can be gone on with now: not where others have the room. Where much of it isn't computed, that begins, beside
   * the main model's steps.
   */
  follows(text: DraftText): boolean {
    const { tokens, rows } = text;
    // Those of steps in flight are there, too.
    const isKnown = !rows || (rows.first < tokens.length - 1 && rows.end >= tokens.length - 1);
    if (this.#isOver || !isKnown) return false;
    if (!this.rank.isLost() && !this.#seat(text)) return false;
    this.#wanted.set(tokens, text);
    if (this.#following) return false;
    if (!this.rank.isLost() && this.#isNear(text)) return true;
    this.#following = this.#follow()
      .catch((error: unknown) => this.#fail(error))
      .finally(() => {
        this.#following = undefined;
        this.#wanted.clear();
      });
    return false;
  }

  /** The request of these tokens is over. */
  end(tokens: readonly number[]): void {
    this.#wanted.delete(tokens);
    const cached = this.#cachedOf(tokens);
    if (!cached) return;
    cached.owner = undefined;
    this.#cached = [...this.#cached.filter((other) => other !== cached), cached];
  }

  #cachedOf = (tokens: readonly number[]): Cached | undefined => this.#cached.find(({ owner }) => owner === tokens);

  /** Where a text is in the cache, with blocks for what may be proposed, if there is room. */
  #seat(text: DraftText): Cached | undefined {
    const { tokens } = text;
    const { contextLength, options } = this.rank.runner;
    let cached = this.#cachedOf(tokens);
    if (!cached) {
      const over = this.#cached.filter(({ owner }) => !owner);
      if (this.#cached.length - over.length === options.slots) return undefined;
      const [best] = over.toSorted((a, b) => common(b, tokens) - common(a, tokens));
      if (best && common(best, tokens) >= KV_BLOCK) cached = best;
      else this.#cached = [...this.#cached, (cached = { tokens: [], origin: 0, blocks: [], owner: tokens })];
      cached.owner = tokens;
    }
    const length = Math.min(tokens.length + MOST - placeOf(cached, text).origin, contextLength);
    while (cached.blocks.length < ceilDiv(length, KV_BLOCK)) {
      if (this.#free.length === 0) this.#drop(this.#cached.find(({ owner }) => !owner));
      const block = this.#free.pop();
      if (block === undefined) {
        // It waits until there is room for all of it.
        this.#drop(cached);
        return undefined;
      }
      cached.blocks.push(block);
    }
    return cached;
  }

  #drop(cached: Cached | undefined): void {
    this.#free.push(...(cached?.blocks ?? []));
    this.#cached = this.#cached.filter((other) => other !== cached);
  }

  /** Whether what a text lacks comes with its proposals: of a head, whose rows are those of a prompt, more. */
  #isNear = (text: DraftText): boolean => {
    const cached = this.#cachedOf(text.tokens);
    const most = this.isHead ? this.rank.runner.promptRows : RECOMPUTED_ROWS;
    return cached !== undefined && text.tokens.length - 1 - placeOf(cached, text).start < most;
  };

  async #follow(): Promise<void> {
    if (this.rank.isLost()) {
      this.rank = await this.open().catch((error: unknown) => {
        this.#fail(error, false);
        throw error;
      });
      this.#begin();
    }
    const { runner } = this.rank;
    while (!this.#isOver) {
      const text = [...this.#wanted.values()].find((wanted) => !this.#isNear(wanted));
      if (!text) return;
      const { tokens, rows } = text;
      const cached = this.#seat(text);
      const place = cached && placeOf(cached, text);
      const last = Math.min(tokens.length - 1, rows ? rows.end + 1 : Infinity);
      if (!cached || !place || place.start >= last) {
        this.#wanted.delete(tokens);
        continue;
      }
      const end = place.origin + runner.chunkEnd(0, place.start - place.origin, last - place.origin);
      const computed = tokens.slice(0, end);
      cached.origin = place.origin;
      cached.tokens = tokens.slice(0, place.start);
      const table = runner.all((rank) => rank.setBlocks(0, cached.blocks, 0));
      await Promise.all([table, runner.prefillRound([runOf(0, text, place, end)])]);
      cached.tokens = computed;
    }
  }

  /**
   * The likeliest tokens behind a text that it `follows`; what is asked for at once, a step's, comes in the same steps of its own. None
   * where it fails, which is no trouble of whoever asked.
   */
  async propose(text: DraftText, count: number): Promise<readonly number[]> {
    const at = this.#asked.push({ text, count }) - 1;
    this.#answers ??= Promise.resolve().then(() => {
      const asked = this.#asked;
      [this.#asked, this.#answers] = [[], undefined];
      return this.#proposeAll(asked);
    });
    return nth(await this.#answers, at);
  }

  async #proposeAll(asked: readonly Asked[]): Promise<readonly (readonly number[])[]> {
    const none = asked.map(() => []);
    const cached = asked.flatMap(({ text }) => this.#cachedOf(text.tokens) ?? []);
    // Another one's text has begun to be computed meanwhile, or a text's blocks are gone.
    if (this.#following || cached.length < asked.length) return none;
    const started = performance.now();
    const begun = asked.map(({ text }, slot) => this.#goOn(slot, nth(cached, slot), text));
    const late = begun.flatMap(({ late }, slot) => (late ? [{ slot, late }] : []));
    const { runner } = this.rank;
    const calls = begun.flatMap(({ calls }) => calls);
    const all = (call: (rank: Rank) => Promise<unknown>): void => void calls.push(runner.all(call));
    const step = (slots: readonly number[], decodes: boolean, at: number): Promise<Uint32Array> => {
      const longest = Math.max(...slots.map((slot) => asked[slot]!.text.tokens.length - nth(cached, slot).origin));
      return runner.sample(0, decodes, longest + at, slots);
    };
    if (late.length > 0) {
      for (const { slot, late: token } of late) {
        const position = nth(asked, slot).text.tokens.length - 2;
        all((rank) => rank.resume(slot, GREEDY, Uint32Array.of(token), token, position));
      }
      const slots = late.map(({ slot }) => slot);
      calls.push(step(slots, true, -1));
    }
    for (const [slot, { text }] of asked.entries()) {
      const position = text.tokens.length - 1;
      const token = Uint32Array.of(nth(text.tokens, position));
      if (!text.rows) all((rank) => rank.resume(slot, GREEDY, token, nth(token, 0), position));
    }
    // Each feeds what the one before sampled, on the device; a head's first has been fed.
    const steps = range(0, Math.max(...asked.map(({ count }) => count))).map((at) => {
      for (const [slot, { count }] of asked.entries()) if (count === at) all((rank) => rank.pause(slot));
      const slots = range(0, asked.length).filter((slot) => asked[slot]!.count > at);
      return step(slots, !this.isHead || at > 0, at);
    });
    for (const slot of asked.keys()) all((rank) => rank.pause(slot));
    await Promise.allSettled([...calls, ...steps]);
    try {
      await Promise.all(calls);
      const rows = await Promise.all(steps);
      const seconds = (performance.now() - started) / 1000;
      const timed = valueIn(this.#seconds, asked.length, () => new Map<number, readonly number[]>());
      timed.set(steps.length, [...(timed.get(steps.length) ?? []), seconds].slice(-TIMED));
      return asked.map(({ text: { tokens, rows: given }, count }, slot) => {
        const ids = rows.slice(0, count).map((row) => nth(row, slot));
        // A head's own rows give way to the model's.
        nth(cached, slot).tokens = given ? [...tokens] : [...tokens, ...ids.slice(0, -1)];
        const unknown = ids.findIndex((id) => id >= this.vocabSize);
        return unknown < 0 ? ids : ids.slice(0, unknown);
      });
    } catch (error) {
      this.#fail(error);
      return none;
    }
  }

  /** Begins with a text in a slot. `late`: the token before its last one, where that is to be fed in a step of all. */
  #goOn(slot: number, cached: Cached, text: DraftText): { calls: Promise<unknown>[]; late: number | undefined } {
    const { runner } = this.rank;
    const { tokens, rows } = text;
    const place = placeOf(cached, text);
    cached.origin = place.origin;
    const calls: Promise<unknown>[] = [runner.all((rank) => rank.setBlocks(slot, cached.blocks, 0))];
    if (rows) {
      const token = Uint32Array.of(tokens.at(-1)!);
      calls.push(runner.prefillRound([runOf(slot, text, place, tokens.length)]));
      calls.push(runner.all((rank) => rank.start(slot, GREEDY, token)));
      return { calls, late: undefined };
    }
    const last = tokens.length - 1;
    if (place.start >= last) return { calls, late: undefined };
    if (place.start < last - 1) calls.push(runner.recomputeRound([runOf(slot, text, place, last - 1)]));
    return { calls, late: nth(tokens, last - 1) };
  }

  /**
   * What so many tokens take, of so many texts at once; where that wasn't timed, by half of them. Of a head nothing, until it was tried
   * twice.
   */
  seconds(count: number, texts = 1): number {
    const timed = this.#seconds.get(texts)?.get(count);
    if (this.isHead && (timed?.length ?? 0) < 2) return 0;
    if (timed) return median(timed);
    if (count > 1) return (count / (count >> 1)) * this.seconds(count >> 1, texts);
    return texts > 1 ? TWICE_TEXTS * this.seconds(count, texts >> 1) : 0;
  }

  /** A lost device is made anew with the main model's; otherwise there are no more drafts. */
  #fail(error: unknown, isLost = this.rank.isLost()): void {
    if (isLost || this.#isOver) return;
    this.#isOver = true;
    this.onWarning(`draft ${this.name} failed, and proposes nothing any more: ${messageOf(error)}`);
  }

  async dispose(): Promise<void> {
    this.#isOver = true;
    await this.#following;
    this.rank.dispose();
  }
}

/** Proposes what a draft model would say, or the model's head. */
export class ModelDrafter implements Drafter {
  readonly #text: number[];
  /** What was proposed and may still come, and how often that was right. */
  #pending: readonly number[] = [];
  #all = 0;
  #right = 0;
  /** All its tokens are of both vocabularies. */
  #isKnown: boolean;

  constructor(
    readonly model: DraftModel,
    text: readonly number[],
    readonly rows?: TrunkRows,
  ) {
    this.#text = [...text];
    this.#isKnown = text.every((token) => token < model.vocabSize);
  }

  take(token: number): void {
    const [next] = this.#pending;
    this.#all = this.#all * FADES + (next === undefined ? 0 : 1);
    this.#right = this.#right * FADES + (next === token ? 1 : 0);
    this.#pending = next === token ? this.#pending.slice(1) : [];
    this.#isKnown &&= token < this.model.vocabSize;
    this.#text.push(token);
  }

  propose(most: number): Proposal {
    const { model } = this;
    const text = { tokens: this.#text, rows: this.rows };
    const room = Math.min(most, MOST, model.rank.runner.contextLength - this.#text.length + 1);
    return {
      length: this.#isKnown && room > 0 && model.follows(text) ? room : 0,
      sureness: (this.#right + (model.isHead ? HOPED : USUAL) * WEIGHT) / (this.#all + WEIGHT),
      seconds: (count, texts) => model.seconds(count, texts),
      tokens: async (count) => (this.#pending = await model.propose(text, count)),
    };
  }

  end(): void {
    this.model.end(this.#text);
  }
}

/** Tokens of a text that are computed, but for its last one, which is fed when it is gone on with. */
function common({ tokens: computed }: Cached, tokens: readonly number[]): number {
  let length = 0;
  const most = Math.min(computed.length, tokens.length - 1);
  while (length < most && computed[length] === tokens[length]) length++;
  return length;
}

interface Place {
  readonly start: number;
  readonly origin: number;
}

/** The first token of a text that is to be computed, and the one that is first in the cache then. */
function placeOf(cached: Cached, { tokens, rows }: DraftText): Place {
  const start = common(cached, tokens);
  if (!rows || (start >= cached.origin && start > rows.first)) return { start, origin: cached.origin };
  return { start: rows.first + 1, origin: rows.first + 1 };
}

/** Tokens up to `end` of a text, placed so. */
function runOf(slot: number, { tokens, rows }: DraftText, { start, origin }: Place, end: number): SlotTokens {
  const given = rows?.joined(start - 1, end - 1);
  const last = end === tokens.length;
  return { slot, tokens: Uint32Array.from(tokens.slice(start, end)), start: start - origin, last, given };
}
