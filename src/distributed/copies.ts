import { listIn, nth } from '../base/lists.js';
import type { Buffer, Device } from '../gpu/index.js';
import type { Region } from './communicator.js';

const SMALLEST = 4096;

/** Buffers of a device for reuse, in sizes that are powers of two: a steady loop of exchanges creates none. */
export class BufferPool {
  readonly #free = new Map<number, Buffer[]>();
  readonly #all: Buffer[] = [];
  #disposed = false;

  constructor(
    readonly device: Device,
    readonly label: string,
    readonly kind: 'staging' | 'storage',
  ) {}

  /** A buffer of at least `bytes`. @throws SplitkvError `limit` when the adapter can't hold it. */
  take(bytes: number): Buffer {
    const { traits, bindingLimit } = this.device;
    const most = this.kind === 'staging' ? traits.limits.maxBufferSize : bindingLimit;
    const rounded = Math.max(SMALLEST, 2 ** Math.ceil(Math.log2(bytes)));
    const size = rounded <= most ? rounded : bytes;
    const free = this.#free.get(size)?.pop();
    if (free) return free;
    const buffer = this.device.createBuffer(this.label, size, this.kind);
    this.#all.push(buffer);
    return buffer;
  }

  give(buffer: Buffer): void {
    if (!this.#disposed) listIn(this.#free, buffer.size).push(buffer);
  }

  /** Destroys every buffer, those that are out too. */
  dispose(): void {
    this.#disposed = true;
    for (const buffer of this.#all) buffer.dispose();
    this.#free.clear();
  }
}

/**
 * Encodes the copy of a message between buffers of one device; the two lists hold the same number of bytes, cut anyhow.
 * WebGPU doesn't copy within one buffer everywhere: such bytes go by a scratch buffer of the pool.
 */
export function encodeCopies(
  encoder: GPUCommandEncoder,
  from: readonly Region[],
  to: readonly Region[],
  scratch: BufferPool,
): void {
  let source = 0;
  let sourceAt = 0;
  for (const { buffer, offset, size } of to) {
    for (let done = 0; done < size;) {
      const part = nth(from, source);
      const bytes = Math.min(part.size - sourceAt, size - done);
      encodeCopy(encoder, part.buffer, part.offset + sourceAt, buffer, offset + done, bytes, scratch);
      done += bytes;
      sourceAt += bytes;
      if (sourceAt === part.size) [source, sourceAt] = [source + 1, 0];
    }
  }
}

function encodeCopy(
  encoder: GPUCommandEncoder,
  from: Buffer,
  fromAt: number,
  to: Buffer,
  toAt: number,
  bytes: number,
  scratch: BufferPool,
): void {
  if (from !== to) {
    encoder.copyBufferToBuffer(from.gpu, fromAt, to.gpu, toAt, bytes);
  } else if (fromAt !== toAt) {
    const between = scratch.take(bytes);
    encoder.copyBufferToBuffer(from.gpu, fromAt, between.gpu, 0, bytes);
    encoder.copyBufferToBuffer(between.gpu, 0, to.gpu, toAt, bytes);
    // A queue runs copies in order, so the next one may use the same bytes.
    scratch.give(between);
  }
}

/** Longer messages are written in pieces with a flush after each: see docs/decisions.md, "Messages are uploaded by writeBuffer". */
const WHOLE_BYTES = 4 * 2 ** 20;
const PIECE_BYTES = 2 ** 20;

/** Queues the upload of a message into its regions; the bytes may be overwritten once it returns. */
export function uploadRegions(device: Device, bytes: Uint8Array, regions: readonly Region[]): void {
  const most = bytes.byteLength > WHOLE_BYTES ? PIECE_BYTES : WHOLE_BYTES;
  let at = 0;
  let unflushed = 0;
  for (const { buffer, offset, size } of regions) {
    for (let done = 0; done < size;) {
      const piece = Math.min(size - done, most - unflushed);
      device.write(buffer, offset + done, bytes.subarray(at, at + piece));
      at += piece;
      done += piece;
      unflushed += piece;
      if (unflushed < most) continue;
      device.gpu.queue.submit([]);
      unflushed = 0;
    }
  }
}
