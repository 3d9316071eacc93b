import { nth, range, sum } from '../../base/lists.js';
import { KV_BLOCK, NO_BLOCK } from '../../base/kv_units.js';
import type { Buffer, Device } from '../../gpu/index.js';
import type { Decoder } from '../../model/forward/decoder.js';
import { headBuffers } from './cache_blocks.js';
import type { HeadPages } from './head_pages.js';

/** A layer's K or V beside its cache: block k of kv head h begins at (h * count + k) * blockBytes. */
interface KeptBuffer {
  readonly layer: number;
  /** Of the cache. */
  readonly own: Buffer;
  readonly kept: Buffer;
  readonly blockBytes: number;
}

/** Blocks that lie side by side in both buffers. */
interface Run {
  readonly own: number;
  readonly kept: number;
  count: number;
}

/** Where a rank keeps blocks of whole prompts, beside a cache in which prompts are compressed. */
export class KeptPromptBlocks {
  readonly #buffers: readonly KeptBuffer[];

  /** @param count blocks of each kv head */
  constructor(
    readonly device: Device,
    readonly pages: HeadPages,
    forward: Pick<Decoder, 'layerCache'>,
    readonly count: number,
  ) {
    this.#buffers = [...pages.kvHeads].flatMap(([layer, { length: heads }]) =>
      headBuffers(forward, layer).map(({ buffer: own, blockBytes }) => {
        const kept = device.createBuffer(`layers.${layer}.kept_prompts`, heads * count * blockBytes);
        return { layer, own, kept, blockBytes };
      }),
    );
  }

  get bytes(): number {
    return sum(this.#buffers.map(({ kept }) => kept.size));
  }

  /** As `Rank.copyPrompt`; the slot has room for what comes back. */
  copy(slot: number, first: number, kept: readonly number[], back: boolean): void {
    const encoder = this.device.gpu.createCommandEncoder();
    const runs = new Map(
      this.pages.blocksBelow(slot, (first + kept.length) * KV_BLOCK).map(({ layer, heads }) => {
        const places = heads.flatMap((blocks, head) =>
          range(0, kept.length).map((at) => ({
            own: nth(blocks, first + at),
            kept: head * this.count + nth(kept, at),
          })),
        );
        return [layer, runsOf(places)] as const;
      }),
    );
    for (const { layer, own, kept: other, blockBytes } of this.#buffers) {
      for (const { own: at, kept: there, count } of runs.get(layer)!) {
        const [ownAt, otherAt, bytes] = [at * blockBytes, there * blockBytes, count * blockBytes];
        if (back) encoder.copyBufferToBuffer(other.gpu, otherAt, own.gpu, ownAt, bytes);
        else encoder.copyBufferToBuffer(own.gpu, ownAt, other.gpu, otherAt, bytes);
      }
    }
    this.device.gpu.queue.submit([encoder.finish()]);
  }
}

/** Pairs of blocks joined to runs; those that another rank holds are left out. */
function runsOf(places: readonly { readonly own: number; readonly kept: number }[]): Run[] {
  const runs: Run[] = [];
  for (const { own, kept } of places) {
    if (own === NO_BLOCK) continue;
    const last = runs.at(-1);
    if (last && own === last.own + last.count && kept === last.kept + last.count) last.count++;
    else runs.push({ own, kept, count: 1 });
  }
  return runs;
}
