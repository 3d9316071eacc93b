import { KV_BLOCK, NO_BLOCK } from '../../base/kv_units.js';
import { SplitkvError } from '../../base/errors.js';
import type { Region } from '../../distributed/communicator.js';
import type { Buffer, Device } from '../../gpu/index.js';
import type { Decoder } from '../../model/forward/decoder.js';

type CacheBuffers = Decoder['cacheBuffers'];

/** Blocks of a layer's kv heads, each by place: NO_BLOCK where another rank holds it. */
export interface LayerBlocks {
  readonly layer: number;
  readonly heads: readonly (readonly number[])[];
}

/** Bytes that are mapped at once, about. */
const STAGING_BYTES = 2 ** 26;

/** A layer's buffers whose heads have blocks of their own, and bytes of a block in each: K and V have half of one each. */
export function headBuffers(
  forward: Pick<Decoder, 'layerCache'>,
  layer: number,
): { readonly buffer: Buffer; readonly blockBytes: number }[] {
  const { buffers, headBlockBytes } = forward.layerCache(layer);
  return buffers.map((buffer) => ({ buffer, blockBytes: headBlockBytes! / 2 }));
}

/** Where blocks lie. */
export const blockRegions = (
  { buffer, blockBytes: size }: { readonly buffer: Buffer; readonly blockBytes: number },
  blocks: readonly number[],
): Region[] => blocks.map((block) => ({ buffer, offset: block * size, size }));

/**
 * Reads a sequence's KV blocks off the GPU.
 * @param table physical blocks in logical order, all of them on this rank
 * @returns [cache buffer][block] in the cache's layout
 */
export const readBlocks = (
  device: Device,
  buffers: CacheBuffers,
  table: readonly number[],
): Promise<Uint8Array<ArrayBuffer>> =>
  readCopied(
    device,
    buffers.flatMap((of) => blockRegions(of, table)),
  );

/** As `readBlocks`, where heads have blocks of their own, all of them on this rank: [cache buffer][kv head][block]. */
export const readHeadBlocks = (
  device: Device,
  forward: Pick<Decoder, 'layerCache'>,
  layers: readonly LayerBlocks[],
): Promise<Uint8Array<ArrayBuffer>> =>
  readCopied(
    device,
    layers.flatMap(({ layer, heads }) => headBuffers(forward, layer).flatMap((of) => blockRegions(of, heads.flat()))),
  );

async function readCopied(device: Device, copies: readonly Region[]): Promise<Uint8Array<ArrayBuffer>> {
  const all = new Uint8Array(copies.reduce((sum, { size }) => sum + size, 0));
  const largest = Math.max(...copies.map(({ size }) => size));
  const staging = device.createBuffer(
    'KV on its way',
    Math.min(all.byteLength, Math.max(STAGING_BYTES, largest)),
    'staging',
  );
  try {
    let done = 0;
    for (let next = 0; next < copies.length;) {
      const encoder = device.gpu.createCommandEncoder();
      let at = 0;
      for (; next < copies.length && at + copies[next]!.size <= staging.size; next++) {
        const { buffer, offset, size } = copies[next]!;
        encoder.copyBufferToBuffer(buffer.gpu, offset, staging.gpu, at, size);
        at += size;
      }
      device.gpu.queue.submit([encoder.finish()]);
      await device.wait(staging.gpu.mapAsync(GPUMapMode.READ));
      all.set(new Uint8Array(staging.gpu.getMappedRange(0, at)), done);
      staging.gpu.unmap();
      done += at;
    }
    return all;
  } finally {
    staging.dispose();
  }
}

/**
 * Writes KV blocks that came from elsewhere where a sequence's tables say; those that another rank holds, or that are before a window,
 * are passed over.
 * @param tableOf `windowed`: of layers with windows
 * @param bytes as `readBlocks` gives them, from logical block `first` on
 */
export function writeBlocks(
  device: Device,
  buffers: CacheBuffers,
  tableOf: (windowed: boolean) => ArrayLike<number>,
  first: number,
  bytes: Uint8Array,
): void {
  const blocks = bytes.byteLength / buffers.reduce((sum, { blockBytes }) => sum + blockBytes, 0);
  if (!Number.isInteger(blocks) || first + blocks > tableOf(false).length) {
    throw new SplitkvError(
      'internal',
      `${bytes.byteLength} bytes of KV from block ${first} on fit no table of ${tableOf(false).length}`,
    );
  }
  let at = 0;
  for (const { buffer, blockBytes, isWindowed } of buffers) {
    const table = tableOf(isWindowed);
    for (let block = first; block < first + blocks; block++) {
      const physical = table[block]!;
      if (physical !== NO_BLOCK) device.write(buffer, physical * blockBytes, bytes.subarray(at, at + blockBytes));
      at += blockBytes;
    }
  }
}

/**
 * As `writeBlocks`, where heads have blocks of their own.
 * @param bytes as `readHeadBlocks` gives them, of `entries` of each head
 */
export function writeHeadBlocks(
  device: Device,
  forward: Pick<Decoder, 'layerCache'>,
  layers: readonly LayerBlocks[],
  entries: ReadonlyMap<number, readonly number[]>,
  bytes: Uint8Array,
): void {
  let at = 0;
  for (const { layer, heads } of layers) {
    for (const { buffer, blockBytes: size } of headBuffers(forward, layer)) {
      for (const [head, blocks] of heads.entries()) {
        for (let block = 0; block * KV_BLOCK < entries.get(layer)![head]!; block++, at += size) {
          const physical = blocks[block];
          if (physical === undefined)
            throw new SplitkvError('internal', `layer ${layer}: no room for KV block ${block}`);
          if (physical !== NO_BLOCK) device.write(buffer, physical * size, bytes.subarray(at, at + size));
        }
      }
    }
  }
  if (at !== bytes.byteLength) {
    throw new SplitkvError('internal', `${bytes.byteLength} bytes of KV, of which heads take ${at}`);
  }
}
