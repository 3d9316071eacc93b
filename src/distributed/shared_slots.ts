const SLOTS = 8;
/** Larger messages are transferred: their copy would cost more than a transfer. */
const SLOT_BYTES = 64 * 1024;

/** Whether this page or process may share memory with its workers. */
export const canShareMemory = (): boolean =>
  typeof SharedArrayBuffer !== 'undefined' && globalThis.crossOriginIsolated !== false;

/**
 * Small messages of one sender to one receiver in shared memory: slots that the sender fills and the receiver frees. Nobody
 * waits: without a free slot the sender transfers its message instead.
 */
export class SharedSlots {
  readonly #taken: Int32Array;

  constructor(
    readonly buffer: SharedArrayBuffer = new SharedArrayBuffer(
      SLOTS * Int32Array.BYTES_PER_ELEMENT + SLOTS * SLOT_BYTES,
    ),
  ) {
    this.#taken = new Int32Array(buffer, 0, SLOTS);
  }

  /** Copies a message into a free slot; undefined where it doesn't fit or all are taken. */
  put(bytes: Uint8Array): number | undefined {
    if (bytes.byteLength > SLOT_BYTES) return undefined;
    for (let slot = 0; slot < SLOTS; slot++) {
      if (Atomics.load(this.#taken, slot) !== 0) continue;
      this.#bytesOf(slot, bytes.byteLength).set(bytes);
      Atomics.store(this.#taken, slot, 1);
      return slot;
    }
    return undefined;
  }

  /** Copies a message out into `into`, and frees its slot. */
  take(slot: number, into: Uint8Array): void {
    into.set(this.#bytesOf(slot, into.byteLength));
    Atomics.store(this.#taken, slot, 0);
  }

  #bytesOf(slot: number, size: number): Uint8Array {
    return new Uint8Array(this.buffer, SLOTS * Int32Array.BYTES_PER_ELEMENT + slot * SLOT_BYTES, size);
  }
}
