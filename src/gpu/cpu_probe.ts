import type { Device } from './device.js';
import { defineKernel } from './kernel.js';
import { Recorder } from './recorder.js';
import source from './cpu_probe.wgsl?raw';

export const NARROW = 32;
export const WIDE = 256;
/** What a CPU takes longer for WIDE than for NARROW is 8, as it runs vectors of at most 16 lanes in turn; a GPU's is 1 to 3. */
const LEAST_RATIO = 5;
const ROUNDS = 3;
/** The narrow one takes so long at least, beside what submitting takes. */
const LEAST_SECONDS = 2e-3;
const MOST_STEPS = 2 ** 18;

interface CpuProbeProblem {
  readonly threads: number;
  readonly steps: number;
}

export const cpuProbe = defineKernel({
  name: 'cpu_probe',
  bindings: { out: 'read_write' },
  params: { steps: 'u32' },
  plan: ({ threads, steps }: CpuProbeProblem) => ({
    wgsl: [source],
    constants: { THREADS: threads },
    params: { steps },
    grid: [1, 1, 1],
  }),
});

/** Seconds that one workgroup of so many invocations takes for so many steps, with all that submitting takes. */
export type TimeWorkgroup = (threads: number, steps: number) => Promise<number>;

/** Whether an adapter that doesn't say what it is runs on the CPU, by measuring: some 50 ms. */
export async function measuresAsCpu(device: Device): Promise<boolean> {
  const out = device.createBuffer('cpu probe', WIDE * 4);
  try {
    return await looksLikeCpu(async (threads, steps) => {
      const recorder = new Recorder(device, 'cpu probe');
      recorder.dispatch(cpuProbe, { threads, steps }, { out });
      const program = recorder.finish();
      const encoder = device.gpu.createCommandEncoder();
      const pass = encoder.beginComputePass();
      program.encode(pass, { rows: [1], chunks: 1 });
      pass.end();
      const commands = encoder.finish();
      await device.wait(device.gpu.queue.onSubmittedWorkDone());
      const started = performance.now();
      device.gpu.queue.submit([commands]);
      await device.wait(device.gpu.queue.onSubmittedWorkDone());
      const seconds = (performance.now() - started) / 1000;
      program.dispose();
      return seconds;
    });
  } finally {
    out.dispose();
  }
}

/** Whether many invocations take many times as long as few. Where waits are too coarse to tell, it is a GPU. */
export async function looksLikeCpu(time: TimeWorkgroup): Promise<boolean> {
  const least = async (threads: number, steps: number): Promise<number> => {
    let best = Infinity;
    for (let round = 0; round < ROUNDS; round++) best = Math.min(best, await time(threads, steps));
    return best;
  };
  await time(NARROW, 1); // compiles
  await time(WIDE, 1);
  const submitting = await least(NARROW, 1);
  for (let steps = 2 ** 10; steps <= MOST_STEPS; steps *= 4) {
    const narrow = (await least(NARROW, steps)) - submitting;
    if (narrow < Math.max(LEAST_SECONDS, submitting)) continue;
    return (await least(WIDE, steps)) - submitting > LEAST_RATIO * narrow;
  }
  return false;
}
