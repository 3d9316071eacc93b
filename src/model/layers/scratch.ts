import type { Buffer, Device } from '../../gpu/index.js';

/**
 * Working buffers by name. Stages of a program run one after another on a rank, so a later one works in the buffers of those before,
 * where they are large enough: ask for the largest first.
 */
export class Scratch implements Pick<Device, 'createBuffer'> {
  readonly #buffers = new Map<string, Buffer>();

  constructor(readonly device: Pick<Device, 'createBuffer'>) {}

  /** At least `size` bytes. */
  createBuffer(label: string, size: number): Buffer {
    const made = this.#buffers.get(label);
    if (made && made.size >= size) return made;
    const buffer = this.device.createBuffer(label, size);
    this.#buffers.set(label, buffer);
    return buffer;
  }
}
