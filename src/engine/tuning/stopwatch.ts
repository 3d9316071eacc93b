import { nth, range } from '../../base/lists.js';
import type { Buffer, Device } from '../../gpu/index.js';

/** Encodes something into a pass of its own. */
export type Encode = (pass: GPUComputePassEncoder) => void;

/** Seconds that passes take on a device: by the GPU's own clock where it has one (`timestamp-query`), otherwise from submit to done. */
export interface Stopwatch {
  /** What a pass should last for its time to mean something. */
  readonly enough: number;
  /** One after the other. */
  seconds(passes: readonly Encode[]): Promise<number[]>;
  dispose(): void;
}

/** @param most passes at once */
export function openStopwatch(device: Device, most: number): Stopwatch {
  const { gpu } = device;
  if (!gpu.features.has('timestamp-query')) return hostStopwatch(device);
  const clock = new PassClock(device, most);
  return {
    enough: 0.003,
    async seconds(passes) {
      const encoder = gpu.createCommandEncoder({ label: 'stopwatch' });
      for (const encode of passes) {
        const pass = encoder.beginComputePass({ timestampWrites: clock.next() });
        encode(pass);
        pass.end();
      }
      clock.record(encoder);
      gpu.queue.submit([encoder.finish()]);
      const seconds = await clock.seconds();
      // Some drivers have a clock that stands still.
      return seconds.every((each) => each > 0) ? seconds : hostStopwatch(device).seconds(passes);
    },
    dispose: () => clock.dispose(),
  };
}

const hostStopwatch = (device: Device): Stopwatch => ({
  enough: 0.02,
  async seconds(passes) {
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
  },
  dispose: () => {},
});

/** Times passes by the GPU's own clock (`timestamp-query`). Browsers round what GPUs tell to 0.1 ms. */
export class PassClock {
  readonly #queries: GPUQuerySet;
  readonly #resolved: GPUBuffer;
  readonly #read: Buffer;
  #passes = 0;

  /** @param most passes from one `seconds` to the next; 2048 at most */
  constructor(
    readonly device: Device,
    readonly most: number,
  ) {
    const { gpu } = device;
    this.#queries = gpu.createQuerySet({ type: 'timestamp', count: 2 * most });
    const usage = GPUBufferUsage.QUERY_RESOLVE | GPUBufferUsage.COPY_SRC;
    this.#resolved = gpu.createBuffer({ label: 'timestamps', size: 16 * most, usage });
    this.#read = device.createBuffer('timestamps read', 16 * most, 'staging');
  }

  /** For the next pass that is timed. */
  next(): GPUComputePassTimestampWrites {
    const index = 2 * this.#passes++;
    return { querySet: this.#queries, beginningOfPassWriteIndex: index, endOfPassWriteIndex: index + 1 };
  }

  /** Forgets passes since the last `seconds`, which were never submitted. */
  forget(): void {
    this.#passes = 0;
  }

  /** Encoded behind the passes, before `seconds`. */
  record(encoder: GPUCommandEncoder): void {
    if (this.#passes === 0) return;
    encoder.resolveQuerySet(this.#queries, 0, 2 * this.#passes, this.#resolved, 0);
    encoder.copyBufferToBuffer(this.#resolved, 0, this.#read.gpu, 0, 16 * this.#passes);
  }

  /** Of each pass, once all is submitted. Some drivers have a clock that stands still: 0. */
  async seconds(): Promise<number[]> {
    const passes = this.#passes;
    this.#passes = 0;
    if (passes === 0) return [];
    await this.device.wait(this.#read.gpu.mapAsync(GPUMapMode.READ));
    const times = new BigInt64Array(this.#read.gpu.getMappedRange(0, 16 * passes).slice(0));
    this.#read.gpu.unmap();
    return range(0, passes).map((index) => Number(nth(times, 2 * index + 1) - nth(times, 2 * index)) / 1e9);
  }

  dispose(): void {
    this.#queries.destroy();
    this.#resolved.destroy();
    this.#read.dispose();
  }
}
