import { SplitkvError } from '../../base/errors.js';
import type { Buffer } from '../../gpu/index.js';
import type { Communicator, Exchange, Region } from '../communicator.js';

/** Words that tell sender, receiver and round apart; never zero, which is what an unwritten buffer holds. */
export function words(count: number, ...seeds: readonly number[]): Uint32Array<ArrayBuffer> {
  let state = 0x9e3779b9;
  for (const seed of seeds) state = Math.imul(state ^ (seed + 1), 0x85ebca6b) >>> 0;
  const result = new Uint32Array(count);
  for (let i = 0; i < count; i++) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    result[i] = state | 1;
  }
  return result;
}

/** How a promise ended, as data that a worker can send. */
export interface Outcome {
  readonly code: string;
  readonly message: string;
}

export const RESOLVED: Outcome = { code: 'resolved', message: '' };

export async function outcome(work: Promise<unknown>): Promise<Outcome> {
  try {
    await work;
    return RESOLVED;
  } catch (error) {
    return {
      code: error instanceof SplitkvError ? error.code : typeof error,
      message: error instanceof Error ? error.message : String(error),
    };
  }
}

/** What a test program sees of its rank: the communicator, and buffers that go when the program ends. */
export class TestRank {
  readonly #buffers: Buffer[] = [];

  constructor(readonly comm: Communicator) {}

  get rank(): number {
    return this.comm.rank;
  }

  get worldSize(): number {
    return this.comm.worldSize;
  }

  /** Every rank's number. */
  get ranks(): number[] {
    return Array.from({ length: this.worldSize }, (_, rank) => rank);
  }

  /** A buffer with these contents, or of this many zero words (and room for one, where there are none). */
  buffer(label: string, contents: ArrayBufferView | number): Buffer {
    const bytes = typeof contents === 'number' ? contents * 4 : contents.byteLength;
    const buffer = this.comm.device.createBuffer(label, bytes);
    this.#buffers.push(buffer);
    if (typeof contents !== 'number') this.comm.device.write(buffer, 0, contents);
    return buffer;
  }

  encoder(): GPUCommandEncoder {
    return this.comm.device.gpu.createCommandEncoder();
  }

  exchange(exchange: Exchange): Promise<void> {
    return this.comm.exchange(this.encoder(), exchange);
  }

  /** Where a buffer differs from the words expected at word `first`, as a sentence; undefined where it doesn't. */
  async difference(buffer: Buffer, expected: ArrayLike<number>, first = 0): Promise<string | undefined> {
    if (expected.length === 0) return undefined;
    const bytes = await this.comm.device.read(buffer, first * 4, expected.length * 4);
    const got = expected instanceof Float32Array ? new Float32Array(bytes) : new Uint32Array(bytes);
    for (let i = 0; i < expected.length; i++) {
      if (got[i] === expected[i]) continue;
      return `rank ${this.rank}, '${buffer.label}': word ${i} of ${expected.length} is ${got[i]}, not ${expected[i]}`;
    }
    return undefined;
  }

  dispose(): void {
    for (const buffer of this.#buffers) buffer.dispose();
  }
}

/** Words [first, first + count) of a buffer. */
export const part = (buffer: Buffer, first: number, count: number): Region => ({
  buffer,
  offset: first * 4,
  size: count * 4,
});

/** Parts of a buffer, one after another. */
export function parts(buffer: Buffer, counts: readonly number[]): Region[] {
  let first = 0;
  return counts.map((count) => {
    first += count;
    return part(buffer, first - count, count);
  });
}

export const sum = (counts: readonly number[]): number => counts.reduce((total, count) => total + count, 0);
