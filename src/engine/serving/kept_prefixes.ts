import { GIVEN_ID, KV_BLOCK } from '../../base/kv_units.js';
import { nth, range } from '../../base/lists.js';
import { KV_PARTS, type KvBlock, type KvLayout, type KvPart } from '../cache/kv_layout.js';
import type { CachedBlock } from '../scheduler/prefix_cache.js';
import type { KeptKv } from '../cache/kept/kept_kv.js';
import type { HandedKv } from '../contracts/prefill_worker.js';
import type { RequestSpec } from '../scheduler/sequence.js';

/** Tokens, and how they are computed. */
export type KeptRows = Pick<RequestSpec, 'generatedSpans' | 'continuation'> & { readonly prompt: readonly number[] };

/** A beginning of a request that was kept: tokens [from, end). */
export interface KeptBeginning {
  readonly span: readonly [from: number, end: number];
  readonly kv: HandedKv;
}

/** Below the prefix cache: what outlives it, block by block, on any plan. */
export class KeptPrefixes {
  /** @param keepsAll of every request; otherwise of those that ask for it @param shipped files that every request may begin with */
  constructor(
    readonly kept: KeptKv | undefined,
    readonly keepsAll: boolean,
    readonly shipped: readonly KeptKv[] = [],
  ) {}

  /** What is nearest first. */
  get #all(): readonly KeptKv[] {
    return [...(this.kept ? [this.kept] : []), ...this.shipped];
  }

  #has(key: string, part: KvPart): boolean {
    return this.#all.some((each) => each.has(key, part));
  }

  /** Those of the whole blocks that a request begins with; rows of pictures are known to this engine alone. */
  #keysOf({ prompt, generatedSpans = [], continuation = [] }: KeptRows, most = Infinity): Promise<string[]> {
    const all = [...prompt, ...continuation];
    const given = all.findIndex((id) => id >= GIVEN_ID);
    const spans = [...generatedSpans, [prompt.length, Infinity] as const];
    const isGenerated = (at: number): boolean => spans.some(([start, end]) => at >= start && at < end);
    return nth(this.#all, 0).keysOf(all.slice(0, Math.min(most, given < 0 ? all.length : given)), isGenerated);
  }

  /**
   * What is kept of a request's beginning beyond what is cached.
   * @param cached how many tokens are, asked as late as may be
   */
  async find(layout: KvLayout, rows: KeptRows, cached: () => number): Promise<KeptBeginning | undefined> {
    // The last token is always computed.
    const keys = await this.#keysOf(rows, rows.prompt.length + (rows.continuation?.length ?? 0) - 1);
    const from = Math.floor(cached() / KV_BLOCK);
    const blocks: KvBlock[] = [];
    for (let end = this.#endOf(layout, keys, from); end > from;) {
      const at = from + blocks.length;
      if (at === end) {
        await this.kept?.used(keys.slice(0, end));
        return { span: [from * KV_BLOCK, end * KV_BLOCK], kv: layout.handed(from, blocks) };
      }
      const block = await this.#read(layout, nth(keys, at), this.#partsOf(layout, at, from, end));
      if (block) {
        blocks.push(block);
        continue;
      }
      // What is damaged is forgotten: there is less now, which may need other parts.
      end = this.#endOf(layout, keys, from);
      blocks.length = layout.bytes.window + layout.bytes.state > 0 ? 0 : Math.min(blocks.length, end - from);
    }
    return undefined;
  }

  /** What a sequence of `end` blocks needs of block `at`. */
  #partsOf(layout: KvLayout, at: number, from: number, end: number): KvPart[] {
    const seen = layout.needsAllWindows ? from : Math.floor(Math.max(0, end * KV_BLOCK - layout.window + 1) / KV_BLOCK);
    const needs = { all: true, window: at >= seen, state: at === end - 1 };
    return KV_PARTS.filter((part) => layout.bytes[part] > 0 && needs[part]);
  }

  /** The most blocks that a sequence may begin with, of which those before `from` are cached; `from` where there are none. */
  #endOf(layout: KvLayout, keys: readonly string[], from: number): number {
    const isThere = (at: number, end: number): boolean =>
      this.#partsOf(layout, at, from, end).every((part) => this.#has(nth(keys, at), part));
    const { all } = layout.bytes;
    const missing = all > 0 ? range(from, keys.length).find((at) => !this.#has(nth(keys, at), 'all')) : undefined;
    for (let end = missing ?? keys.length; end > from; end--) {
      if (range(from, end).every((at) => isThere(at, end))) return end;
    }
    return from;
  }

  async #read(layout: KvLayout, key: string, parts: readonly KvPart[]): Promise<KvBlock | undefined> {
    const block: KvBlock = {};
    for (const part of parts) {
      for (const each of this.#all) {
        if (block[part] || !each.has(key, part)) continue;
        const bytes = await each.read(key, part, layout.bytes[part]);
        if (!bytes) continue;
        block[part] = bytes;
        if (this.keepsAll) await this.kept?.write(key, part, bytes);
      }
      if (!block[part]) return undefined;
    }
    return block;
  }

  /**
   * Keeps what is cached of some tokens.
   * @param placed where that is now; `read` is called at once with those of it that aren't kept
   */
  async keep(
    rows: KeptRows,
    placed: () => readonly CachedBlock[],
    read: (blocks: readonly CachedBlock[]) => Promise<readonly KvBlock[]>,
  ): Promise<void> {
    const { kept } = this;
    if (!kept) return;
    const keys = await this.#keysOf(rows);
    const found = placed();
    const isNew = ({ window, state }: CachedBlock, at: number): boolean => {
      const has = (part: KvPart): boolean => kept.has(nth(keys, at), part);
      return !has('all') || (window !== undefined && !has('window')) || (state !== undefined && !has('state'));
    };
    const fresh = found.slice(0, keys.length).flatMap((block, at) => (isNew(block, at) ? [{ block, at }] : []));
    const blocks = fresh.length === 0 ? [] : await read(fresh.map(({ block }) => block));
    for (const [index, { at }] of fresh.entries()) {
      for (const part of KV_PARTS) {
        const bytes = nth(blocks, index)[part];
        if (bytes) await kept.write(nth(keys, at), part, bytes);
      }
    }
    await kept.used(keys.slice(0, found.length));
  }
}
