import { SplitkvError } from '../../base/errors.js';
import type { Buffer, Device } from '../../gpu/index.js';

/** A fixed pool of mappable buffers for small results that are read while later steps run. Creates nothing after construction. */
export class Readback {
  readonly #free: Buffer[];

  constructor(
    readonly device: Device,
    readonly bytes: number,
    count: number,
  ) {
    this.#free = Array.from({ length: count }, (_, index) =>
      device.createBuffer(`readback ${index}`, bytes, 'staging'),
    );
  }

  /** Encodes the copy; call the returned function after submitting to await and free the buffer. */
  record(encoder: GPUCommandEncoder, source: Buffer, offset: number): () => Promise<Uint32Array> {
    const staging = this.#free.pop();
    if (!staging) throw new SplitkvError('internal', 'more steps in flight than readback buffers');
    encoder.copyBufferToBuffer(source.gpu, offset, staging.gpu, 0, this.bytes);
    return async () => {
      try {
        await this.device.wait(staging.gpu.mapAsync(GPUMapMode.READ));
        const words = new Uint32Array(staging.gpu.getMappedRange()).slice();
        staging.gpu.unmap();
        return words;
      } finally {
        this.#free.push(staging);
      }
    };
  }
}
