import { largestError } from '../../statistics.js';
import { SplitkvError } from '../../../src/base/errors.js';
import type { Device, Program, ProgramStep } from '../../../src/gpu/index.js';
import type { Contender } from '../../interleave.js';

/** The same operator by our kernels and by a peer's, several in a chain: each takes what the one before gave. */
export interface KernelTask {
  readonly name: string;
  /** In the cache. */
  readonly tokens?: number;
  readonly contenders: readonly KernelContender[];
  dispose(): Promise<void>;
}

export interface KernelContender {
  readonly runtime: string;
  /** Runs the chain so many times, up to its end on the GPU. */
  run(times: number): Promise<void>;
  /** What the chain's last operator gave. */
  result(): Promise<Float32Array>;
}

/** Operators in a chain: so many that what a call costs the host counts for little, as in a model. */
export const LINKS = 4;

const MIN_MS = 20;
const MAX_TIMES = 1024;
/** Of the largest element. */
const TOLERANCE = 1e-3;

/** Runs each once and compares. @throws SplitkvError `internal` where they differ */
export async function checkTask({ name, contenders }: KernelTask): Promise<readonly number[]> {
  const results: Float32Array[] = [];
  for (const contender of contenders) {
    await contender.run(1);
    results.push(await contender.result());
  }
  const ours = results[0]!;
  return results.map((own, index) => {
    const error = largestError(own, ours);
    if (error < TOLERANCE) return error;
    throw new SplitkvError(
      'internal',
      `${name}: ${contenders[index]!.runtime} differs from ours by ${error} of the largest element, so it isn't timed; please report it with the adapter`,
    );
  });
}

/** Microseconds of one operator; each contender runs its chain so often that a sample lasts. */
export async function timedContenders({ name, contenders }: KernelTask): Promise<Contender<number>[]> {
  const timed: Contender<number>[] = [];
  for (const contender of contenders) {
    const milliseconds = async (times: number): Promise<number> => {
      const started = performance.now();
      await contender.run(times);
      return performance.now() - started;
    };
    let times = 1;
    for (
      let elapsed = await milliseconds(1);
      elapsed < MIN_MS && times < MAX_TIMES;
      elapsed = await milliseconds(times)
    ) {
      times = Math.min(MAX_TIMES, Math.ceil(times * Math.min(10, Math.max(1.5, (1.2 * MIN_MS) / elapsed))));
    }
    timed.push({
      name: `${name}: ${contender.runtime}`,
      run: async () => (1000 * (await milliseconds(times))) / times / LINKS,
    });
  }
  return timed;
}

/** Submits the program so many times in one pass, and waits for its end. */
export async function runProgram(device: Device, program: Program, step: ProgramStep, times: number): Promise<void> {
  const encoder = device.gpu.createCommandEncoder();
  const pass = encoder.beginComputePass();
  for (let i = 0; i < times; i++) program.encode(pass, step);
  pass.end();
  device.gpu.queue.submit([encoder.finish()]);
  await device.wait(device.gpu.queue.onSubmittedWorkDone());
}
