import type { Buffer } from '../gpu/index.js';
import type { BufferPool } from './buffer_pool.js';
import type { Region } from './communicator.js';

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
      const part = from[source]!;
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
