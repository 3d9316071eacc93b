import type { Device } from '../../gpu/index.js';
import { PassClock } from './pass_clock.js';

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

export function openStopwatch(device: Device, most: number): Stopwatch {
  return device.gpu.features.has('timestamp-query') ? new GpuStopwatch(device, most) : new HostStopwatch(device);
}

class GpuStopwatch implements Stopwatch {
  readonly enough = 0.003;
  readonly #host: HostStopwatch;
  readonly #clock: PassClock;

  /** @param most passes at once */
  constructor(
    readonly device: Device,
    most: number,
  ) {
    this.#host = new HostStopwatch(device);
    this.#clock = new PassClock(device, most);
  }

  async seconds(passes: readonly Encode[]): Promise<number[]> {
    const { gpu } = this.device;
    const encoder = gpu.createCommandEncoder({ label: 'stopwatch' });
    for (const encode of passes) {
      const pass = encoder.beginComputePass({ timestampWrites: this.#clock.next() });
      encode(pass);
      pass.end();
    }
    this.#clock.record(encoder);
    gpu.queue.submit([encoder.finish()]);
    const seconds = await this.#clock.seconds();
    // Some drivers have a clock that stands still.
    return seconds.every((each) => each > 0) ? seconds : this.#host.seconds(passes);
  }

  dispose(): void {
    this.#clock.dispose();
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
