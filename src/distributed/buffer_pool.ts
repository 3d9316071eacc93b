import type { Buffer, Device } from '../gpu/index.js';

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
    const { maxBufferSize, maxStorageBufferBindingSize } = this.device.traits.limits;
    const most = this.kind === 'staging' ? maxBufferSize : Math.min(maxBufferSize, maxStorageBufferBindingSize);
    const rounded = Math.max(SMALLEST, 2 ** Math.ceil(Math.log2(bytes)));
    const size = rounded <= most ? rounded : bytes;
    const free = this.#free.get(size)?.pop();
    if (free) return free;
    const buffer = this.device.createBuffer(this.label, size, this.kind);
    this.#all.push(buffer);
    return buffer;
  }

  /** Gives a buffer back, unmapped. */
  give(buffer: Buffer): void {
    if (this.#disposed) return;
    const free = this.#free.get(buffer.size);
    if (free) free.push(buffer);
    else this.#free.set(buffer.size, [buffer]);
  }

  /** Destroys every buffer, those that are out too. */
  dispose(): void {
    this.#disposed = true;
    for (const buffer of this.#all) buffer.dispose();
    this.#free.clear();
  }
}
