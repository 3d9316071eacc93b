import { messageOf } from '../../../base/errors.js';
import { KV_BLOCK } from '../../../base/kv_units.js';
import { nth, range } from '../../../base/lists.js';
import { ceilDiv } from '../../../base/math.js';
import { median } from '../../../base/stats.js';
import { RECOMPUTED_ROWS, type SlotTokens } from '../../contracts/rank.js';
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

/** What is gone on with. */
export interface DraftText {
  readonly tokens: readonly number[];
  /** Of a head: those that its tokens are joined with, each the row of the position before. */
  readonly rows?: TrunkRows | undefined;
}

/** One rank of whole weights, with one slot. */
export interface DraftRank {
  readonly runner: Runner;
  isLost(): boolean;
  dispose(): void;
}

/**
 * A smaller model of the same vocabulary, or the model's own head. Its cache has one text at a time: what another text begins with alike
 * stays, and so what was accepted, however the text went on.
 */
export class DraftModel {
  /** Those whose keys and values are computed. */
  #text: readonly number[] = [];
  /** The first of them that is in the cache: rows before weren't kept. */
  #origin = 0;
  /** What it is to have next, but for the last few tokens; grows meanwhile. */
  #wanted: DraftText = { tokens: [] };
  #following: Promise<void> | undefined;
  #isOver = false;
  /** By number of tokens: seconds that proposals took. */
  readonly #seconds = new Map<number, readonly number[]>();

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
    await model.#begin();
    // The first one may compile.
    for (const token of [0, 1]) {
      model.#seconds.clear();
      const rows = model.newRows();
      for (const position of [0, 1]) rows?.take(position, new Float32Array(model.rank.runner.config.hiddenSize));
      await model.propose({ tokens: [token, token, token], rows }, 1);
    }
    return model;
  }

  /** It is the model's own, and takes rows of it. */
  get isHead(): boolean {
    return this.rank.runner.config.inputs?.joins === true;
  }

  /** Takes a request's, of a head. */
  newRows(): TrunkRows | undefined {
    return this.isHead ? new TrunkRows() : undefined;
  }

  async #begin(): Promise<void> {
    this.#text = [];
    const blocks = range(0, ceilDiv(this.rank.runner.contextLength, KV_BLOCK));
    await this.rank.runner.all((rank) => rank.setBlocks(0, blocks, 0));
  }

  /** Whether a text can be gone on with now; where much of it isn't computed, that begins, beside the main model's steps. */
  follows(text: DraftText): boolean {
    const { tokens, rows } = text;
    // Those of steps in flight are there, too.
    const isKnown = !rows || (rows.first < tokens.length - 1 && rows.end >= tokens.length - 1);
    if (this.#isOver || !isKnown) return false;
    this.#wanted = text;
    if (this.#following) return false;
    if (!this.rank.isLost() && this.#isNear(text)) return true;
    this.#following = this.#follow()
      .catch((error: unknown) => this.#fail(error))
      .finally(() => (this.#following = undefined));
    return false;
  }

  #isNear = (text: DraftText): boolean => text.tokens.length - 1 - this.#place(text).start < RECOMPUTED_ROWS;

  /** The first token of a text that is to be computed, and the one that is first in the cache then. */
  #place({ tokens, rows }: DraftText): { readonly start: number; readonly origin: number } {
    const start = this.#common(tokens);
    if (!rows || (start >= this.#origin && start > rows.first)) return { start, origin: this.#origin };
    return { start: rows.first + 1, origin: rows.first + 1 };
  }

  /** Tokens [start, end) of a text, placed so. */
  #run({ tokens, rows }: DraftText, { start, origin }: { start: number; origin: number }, end: number): SlotTokens {
    this.#origin = origin;
    const given = rows?.joined(start - 1, end - 1);
    const last = end === tokens.length;
    return { slot: 0, tokens: Uint32Array.from(tokens.slice(start, end)), start: start - origin, last, given };
  }

  /** Tokens that it has of a text, but for the last, which is fed when it is gone on with. */
  #common(text: readonly number[]): number {
    let length = 0;
    const most = Math.min(this.#text.length, text.length - 1);
    while (length < most && this.#text[length] === text[length]) length++;
    return length;
  }

  async #follow(): Promise<void> {
    if (this.rank.isLost()) {
      this.rank = await this.open().catch((error: unknown) => {
        this.#fail(error, false);
        throw error;
      });
      await this.#begin();
    }
    const { runner } = this.rank;
    while (!this.#isOver && !this.#isNear(this.#wanted)) {
      const { tokens, rows } = this.#wanted;
      const place = this.#place(this.#wanted);
      const { start, origin } = place;
      const last = Math.min(tokens.length - 1, rows ? rows.end + 1 : Infinity);
      if (start >= last) return;
      const end = origin + runner.chunkEnd(0, start - origin, last - origin);
      const text = tokens.slice(0, end);
      await runner.prefillRound([this.#run(this.#wanted, place, end)]);
      this.#text = text;
    }
  }

  /** The likeliest tokens behind a text that it `follows`; none where it fails, which is no trouble of whoever asked. */
  async propose(text: DraftText, count: number): Promise<readonly number[]> {
    const started = performance.now();
    const { runner } = this.rank;
    const { tokens, rows } = text;
    const last = tokens.length - 1;
    const token = nth(tokens, last);
    const missing = this.#run(text, this.#place(text), rows ? tokens.length : last);
    const own = { seed: 0 };
    const begun: Promise<unknown>[] = rows
      ? [runner.prefillRound([missing]), runner.all((rank) => rank.start(0, own, Uint32Array.of(token)))]
      : [
          ...(missing.tokens.length > 0 ? [runner.recomputeRound([missing])] : []),
          runner.all((rank) => rank.resume(0, own, Uint32Array.of(token), token, last)),
        ];
    // Each feeds what the one before sampled, on the device; a head's first has been fed.
    const length = tokens.length - this.#origin;
    const steps = range(0, count).map((at) => runner.sample(0, !rows || at > 0, length + at, [0]));
    await Promise.allSettled([...begun, ...steps]);
    try {
      await Promise.all(begun);
      const ids = (await Promise.all(steps)).map((row) => nth(row, 0));
      // A head's own rows give way to the model's.
      this.#text = rows ? [...tokens] : [...tokens, ...ids.slice(0, -1)];
      const seconds = (performance.now() - started) / 1000;
      this.#seconds.set(count, [...(this.#seconds.get(count) ?? []), seconds].slice(-TIMED));
      const unknown = ids.findIndex((id) => id >= this.vocabSize);
      return unknown < 0 ? ids : ids.slice(0, unknown);
    } catch (error) {
      this.#fail(error);
      return [];
    }
  }

  /** What so many tokens take; where that wasn't timed, by half of them. Of a head nothing, until it was tried twice. */
  seconds(count: number): number {
    const timed = this.#seconds.get(count);
    if (this.isHead && (timed?.length ?? 0) < 2) return 0;
    if (timed) return median(timed);
    return count > 1 ? (count / (count >> 1)) * this.seconds(count >> 1) : 0;
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
  readonly isSingle = true;
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
      seconds: (count) => model.seconds(count),
      tokens: async (count) => (this.#pending = await model.propose(text, count)),
    };
  }
}
