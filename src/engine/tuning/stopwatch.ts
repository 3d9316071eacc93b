import type { Buffer, Device } from '../../gpu/index.js';

/** Encodes something into a pass of its own. */
export type Encode = (pass: GPUComputePassEncoder) => void;

/** Seconds that passes take on a device: by the GPU's own clock where it has one (`timestamp-query`), else from submit to done. */
export interface Stopwatch {
  /** What a pass should last for its time to mean something. */
  readonly enough: number;
  /** One after the other. */
  seconds(passes: readonly Encode[]): Promise<number[]>;
  dispose(): void;
}

export function openStopwatch(device: Device, most: number): Stopwatch {
  return device.gpu.features.has('timestamp-query') ? new GpuStopwatch(device, most) : new HostStopwatch(device);
}

/** Browsers round what GPUs tell to 0.1 ms. */
class GpuStopwatch implements Stopwatch {
  readonly enough = 0.003;
  readonly #queries: GPUQuerySet;
  readonly #resolved: GPUBuffer;
  readonly #host: HostStopwatch;
  readonly #read: Buffer;

  /** @param most passes at once */
  constructor(
    readonly device: Device,
    most: number,
  ) {
    const { gpu } = device;
    this.#host = new HostStopwatch(device);
    this.#queries = gpu.createQuerySet({ type: 'timestamp', count: 2 * most });
    const usage = GPUBufferUsage.QUERY_RESOLVE | GPUBufferUsage.COPY_SRC;
    this.#resolved = gpu.createBuffer({ label: 'timestamps', size: 16 * most, usage });
    this.#read = device.createBuffer('timestamps read', 16 * most, 'staging');
  }

  async seconds(passes: readonly Encode[]): Promise<number[]> {
    const { gpu } = this.device;
    const encoder = gpu.createCommandEncoder({ label: 'stopwatch' });
    for (const [index, encode] of passes.entries()) {
      const pass = encoder.beginComputePass({
        timestampWrites: {
          querySet: this.#queries,
          beginningOfPassWriteIndex: 2 * index,
          endOfPassWriteIndex: 2 * index + 1,
        },
      });
      encode(pass);
      pass.end();
    }
    const bytes = 16 * passes.length;
    encoder.resolveQuerySet(this.#queries, 0, 2 * passes.length, this.#resolved, 0);
    encoder.copyBufferToBuffer(this.#resolved, 0, this.#read.gpu, 0, bytes);
    gpu.queue.submit([encoder.finish()]);
    await this.device.wait(this.#read.gpu.mapAsync(GPUMapMode.READ));
    const times = new BigInt64Array(this.#read.gpu.getMappedRange(0, bytes).slice(0));
    this.#read.gpu.unmap();
    const seconds = passes.map((_, index) => Number(times[2 * index + 1]! - times[2 * index]!) / 1e9);
    // Some drivers have a clock that stands still.
    return seconds.every((each) => each > 0) ? seconds : this.#host.seconds(passes);
  }

  dispose(): void {
    this.#queries.destroy();
    this.#resolved.destroy();
    this.#read.dispose();
  }
}

class HostStopwatch implements Stopwatch {
  readonly enough = 0.02;

  constructor(readonly device: Device) {}

  async seconds(passes: readonly Encode[]): Promise<number[]> {
    const { device } = this;
    const seconds: number[] = [];
    for (const encode of passes) {
      const encoder = device.gpu.createCommandEncoder({ label: 'stopwatch' });
      const pass = encoder.beginComputePass();
      encode(pass);
      pass.end();
      const commands = encoder.finish();
      const started = performance.now();
      device.gpu.queue.submit([commands]);
      await device.wait(device.gpu.queue.onSubmittedWorkDone());
      seconds.push((performance.now() - started) / 1000);
    }
    return seconds;
  }

  dispose(): void {}
}
