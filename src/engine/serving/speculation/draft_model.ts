import { messageOf } from '../../../base/errors.js';
import { KV_BLOCK } from '../../../base/kv_units.js';
import { nth, range } from '../../../base/lists.js';
import { ceilDiv } from '../../../base/math.js';
import { median } from '../../../base/stats.js';
import { RECOMPUTED_ROWS } from '../../contracts/rank.js';
import type { Runner } from '../../ranks/runner.js';
import type { Drafter, Proposal } from './speculation.js';

/** Most drafts of a step, each of which takes a step of the draft model. */
const MOST = 7;
/** How often a draft is right before any was verified, which weighs as much as so many tokens. What was counted long ago counts less. */
const USUAL = 0.8;
const WEIGHT = 6;
const FADES = 0.98;
/** Proposals of a length that are timed, the last ones. */
const TIMED = 5;

/** One rank of whole weights, with one slot. */
export interface DraftRank {
  readonly runner: Runner;
  isLost(): boolean;
  dispose(): void;
}

/**
 * A smaller model of the same vocabulary. Its cache has one text at a time: what another text begins with alike stays, and so what was
 * accepted, however the text went on.
 */
export class DraftModel {
  /** Those whose keys and values are computed. */
  #text: readonly number[] = [];
  /** What it is to have next, but for the last few tokens; grows meanwhile. */
  #wanted: readonly number[] = [];
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
      await model.propose([token, token, token], 1);
    }
    return model;
  }

  async #begin(): Promise<void> {
    this.#text = [];
    const blocks = range(0, ceilDiv(this.rank.runner.contextLength, KV_BLOCK));
    await this.rank.runner.all((rank) => rank.setBlocks(0, blocks, 0));
  }

  /** Whether a text can be gone on with now; where much of it isn't computed, that begins, beside the main model's steps. */
  follows(text: readonly number[]): boolean {
    if (this.#isOver) return false;
    this.#wanted = text;
    if (this.#following) return false;
    if (!this.rank.isLost() && this.#isNear(text)) return true;
    this.#following = this.#follow()
      .catch((error: unknown) => this.#fail(error))
      .finally(() => (this.#following = undefined));
    return false;
  }

  #isNear = (text: readonly number[]): boolean => text.length - 1 - this.#common(text) <= RECOMPUTED_ROWS;

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
      const text = this.#wanted.slice(0, -1);
      const start = this.#common(this.#wanted);
      const end = runner.chunkEnd(0, start, text.length);
      await runner.prefillRound([{ slot: 0, tokens: Uint32Array.from(text.slice(start, end)), start, last: false }]);
      this.#text = text.slice(0, end);
    }
  }

  /** The likeliest tokens behind a text that it `follows`; none where it fails, which is no trouble of whoever asked. */
  async propose(text: readonly number[], count: number): Promise<readonly number[]> {
    const started = performance.now();
    const { runner } = this.rank;
    const [start, last] = [this.#common(text), text.length - 1];
    const missing = Uint32Array.from(text.slice(start, last));
    const token = nth(text, last);
    const again = missing.length > 0 && runner.recomputeRound([{ slot: 0, tokens: missing, start, last: false }]);
    const fed = runner.all((rank) => rank.resume(0, { seed: 0 }, Uint32Array.of(token), token, last));
    // Each feeds what the one before sampled, on the device.
    const steps = range(0, count).map((at) => runner.sample(0, true, text.length + at, [0]));
    await Promise.allSettled([again, fed, ...steps]);
    try {
      await Promise.all([again, fed]);
      const ids = (await Promise.all(steps)).map((row) => nth(row, 0));
      this.#text = [...text, ...ids.slice(0, -1)];
      const seconds = (performance.now() - started) / 1000;
      this.#seconds.set(count, [...(this.#seconds.get(count) ?? []), seconds].slice(-TIMED));
      const unknown = ids.findIndex((id) => id >= this.vocabSize);
      return unknown < 0 ? ids : ids.slice(0, unknown);
    } catch (error) {
      this.#fail(error);
      return [];
    }
  }

  /** What so many tokens take; where that wasn't timed, by half of them. */
  seconds(count: number): number {
    const timed = this.#seconds.get(count);
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

/** Proposes what a draft model would say. */
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
    const room = Math.min(most, MOST, model.rank.runner.contextLength - this.#text.length + 1);
    return {
      length: this.#isKnown && room > 0 && model.follows(this.#text) ? room : 0,
      sureness: (this.#right + USUAL * WEIGHT) / (this.#all + WEIGHT),
      seconds: (count) => model.seconds(count),
      tokens: async (count) => (this.#pending = await model.propose(this.#text, count)),
    };
  }
}
