import { internalError } from '../../base/errors.js';
import { KV_BLOCK, NO_BLOCK } from '../../base/kv_units.js';
import { nth, range, sum } from '../../base/lists.js';
import { ceilDiv, joinBytes } from '../../base/math.js';
import type { Region, Transfer } from '../../distributed/communicator.js';
import type { Buffer, Device } from '../../gpu/index.js';
import type { Decoder } from '../../model/forward/decoder.js';
import type { World } from '../../model/layers/world.js';
import type { Plan } from '../../placement/index.js';
import type { HandedKv, KvPiece } from '../contracts/prefill_worker.js';

/** Blocks of a layer's kv heads, each by place: NO_BLOCK where another rank holds it. */
export interface LayerBlocks {
  readonly layer: number;
  readonly heads: readonly (readonly number[])[];
}

/** Blocks of one cache buffer, in order. */
export interface BufferBlocks {
  readonly buffer: Buffer;
  readonly blockBytes: number;
  /** NO_BLOCK: of another rank, or before a window. */
  readonly blocks: readonly number[];
}

/** What this rank sends to another and receives from it; the lists of two ranks match block by block. */
export interface PeerBlocks<Blocks = BufferBlocks> {
  readonly peer: number;
  readonly sends: readonly Blocks[];
  readonly receives: readonly Blocks[];
}

/** Bytes that are mapped at once, about. */
const STAGING_BYTES = 2 ** 26;
/** Bytes of one message, about: what an exchange stages at once. */
const MESSAGE_BYTES = 2 ** 24;

/** A layer's buffers whose heads have blocks of their own, and bytes of a block in each: K and V have half of one each. */
export function headBuffers(forward: Pick<Decoder, 'layerCache'>, layer: number): Omit<BufferBlocks, 'blocks'>[] {
  const { buffers, headBlockBytes } = forward.layerCache(layer);
  return buffers.map((buffer) => ({ buffer, blockBytes: headBlockBytes! / 2 }));
}

/** Of heads with blocks of their own: [cache buffer][kv head][block]. */
export const headBlocks = (forward: Pick<Decoder, 'layerCache'>, layers: readonly LayerBlocks[]): BufferBlocks[] =>
  layers.flatMap(({ layer, heads }) => headBuffers(forward, layer).map((of) => ({ ...of, blocks: heads.flat() })));

/** Where blocks lie. */
const regionsOf = (list: readonly BufferBlocks[]): Region[] =>
  list.flatMap(({ buffer, blockBytes: size, blocks }) =>
    blocks.map((block) => ({ buffer, offset: block * size, size })),
  );

/** Reads KV blocks off the GPU, all of them on this rank, one after the other in the cache's layout. */
export async function readBlocks(device: Device, blocks: readonly BufferBlocks[]): Promise<Uint8Array<ArrayBuffer>> {
  const copies = regionsOf(blocks);
  const all = new Uint8Array(sum(copies.map(({ size }) => size)));
  if (all.byteLength === 0) return all;
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
      for (; next < copies.length && at + nth(copies, next).size <= staging.size; next++) {
        const { buffer, offset, size } = nth(copies, next);
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
 * Writes KV blocks that came from elsewhere; those that have no place here are passed over.
 * @param bytes as `readBlocks` gives them
 */
export function writeBlocks(device: Device, list: readonly BufferBlocks[], bytes: Uint8Array): void {
  const room = sum(list.map(({ blocks, blockBytes }) => blocks.length * blockBytes));
  if (room !== bytes.byteLength) {
    throw internalError(`${bytes.byteLength} bytes of KV, for which there are blocks of ${room}`);
  }
  let at = 0;
  for (const { buffer, blockBytes, blocks } of list) {
    for (const block of blocks) {
      if (block !== NO_BLOCK) device.write(buffer, block * blockBytes, bytes.subarray(at, at + blockBytes));
      at += blockBytes;
    }
  }
}

/**
 * Regions in order, cut into messages between two of them. Ranks that keep the same layers and heads cut alike, whatever the blocks'
 * numbers: the messages of two lists of as many blocks match one by one.
 */
function messagesOf(blocks: readonly BufferBlocks[]): Region[][] {
  const messages: Region[][] = [];
  let [message, room]: [Region[], number] = [[], 0];
  for (const region of regionsOf(blocks)) {
    if (region.size > room) {
      messages.push((message = []));
      room = MESSAGE_BYTES;
    }
    message.push(region);
    room -= region.size;
  }
  return messages;
}

/** Copies blocks between this rank and its peers, all of which make this call with what they have to do. */
export async function exchangeBlocks(world: World, device: Device, peers: readonly PeerBlocks[]): Promise<void> {
  const lists = peers.map(({ peer, sends, receives }) => ({
    peer,
    sends: messagesOf(sends),
    receives: messagesOf(receives),
  }));
  const rounds = Math.max(0, ...lists.map(({ sends, receives }) => Math.max(sends.length, receives.length)));
  for (let round = 0; round < rounds; round++) {
    const inRound = (of: 'sends' | 'receives'): Transfer[] =>
      lists.flatMap(({ peer, [of]: { [round]: regions } }) => (regions ? [{ peer, regions }] : []));
    await world.exchange(device.gpu.createCommandEncoder(), {
      label: 'moved KV',
      sends: inRound('sends'),
      receives: inRound('receives'),
    });
  }
}

interface CutOptions {
  readonly numLayers: number;
  /** kv heads of a whole cache block. */
  readonly kvHeads: number;
  /** Blocks before it are there already. */
  readonly firstBlock: number;
  /** The rank keeps the sequence, as far as whole sequences are sharded over ranks. */
  readonly keeps: boolean;
  /** The rank's heads have blocks of their own: prompts are compressed, or heads are copied. */
  readonly byHead: boolean;
}

/** Cuts a handover for one rank: its layers and its kv heads; nothing of a sequence that another rank keeps. */
export function pieceFor(plan: Plan, rank: number, kv: HandedKv, options: CutOptions): KvPiece {
  const { numLayers, kvHeads, firstBlock, keeps, byHead } = options;
  const perLayer = kv.buffers.length / numLayers;
  const layerOf = (buffer: number): number => kv.layers?.[buffer] ?? Math.floor(buffer / perLayer);
  const parts: Uint8Array[] = [];
  const entries = new Map<number, readonly number[]>();
  for (const { layers, shares } of plan.stages) {
    const share = shares.find((candidate) => candidate.rank === rank);
    if (!share || !keeps) continue;
    for (const layer of range(...layers)) {
      if (byHead) entries.set(layer, kv.entries?.[layer] ?? range(0, kvHeads).map(() => kv.tokens));
      for (const buffer of range(0, kv.buffers.length)) {
        if (layerOf(buffer) === layer) parts.push(...partsOf(kv, layer, buffer, share.kvHeads, options));
      }
    }
  }
  const runsRow = keeps || !plan.stages.some(({ kind }) => kind === 'adp');
  const samples = runsRow && plan.head.some(({ rank: holder, rows }) => holder === rank && rows[1] > rows[0]);
  return {
    tokens: kv.tokens,
    firstBlock,
    bytes: parts.length > 0 ? joinBytes(parts) : undefined,
    lastRow: samples ? kv.lastRow : undefined,
    ...(byHead && keeps && { entries }),
  };
}

/** Of some heads in one buffer: block after block from `firstBlock` on, or by head all blocks of each. */
function partsOf(
  { buffers, blocks, firstBlock: begin = 0, entries }: HandedKv,
  layer: number,
  buffer: number,
  heads: readonly number[],
  { kvHeads, firstBlock, byHead }: CutOptions,
): Uint8Array[] {
  const bytes = nth(buffers, buffer);
  const counts = range(0, kvHeads).map((head) =>
    entries ? ceilDiv(nth(nth(entries, layer), head), KV_BLOCK) : blocks - begin,
  );
  const size = bytes.byteLength / sum(counts);
  const part = (head: number, block: number): Uint8Array => {
    const at = entries ? sum(counts.slice(0, head)) + block : (block - begin) * kvHeads + head;
    return bytes.subarray(at * size, (at + 1) * size);
  };
  if (byHead) return heads.flatMap((head) => range(0, nth(counts, head)).map((block) => part(head, block)));
  return range(firstBlock, blocks).flatMap((block) => heads.map((head) => part(head, block)));
}
