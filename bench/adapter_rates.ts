import { COPY_PIECE } from '../shaders/probe/copy_rate/index.js';
import { fmaRate, FMAS_A_STEP } from '../shaders/probe/fma_rate/index.js';
import { SplitkvError } from '../src/base/errors.js';
import { copyRate } from '../src/engine/measure/basics.js';
import { type Device, Recorder } from '../src/gpu/index.js';

/** What an adapter can do at most, as measured: what kernels are held against. */
export interface AdapterRates {
  readonly adapter: string;
  /** GB read and written a second by a copy (twice its payload). */
  readonly copy_gbps: number;
  /** f32 operations a second in chains of fused multiply-adds; each counts as two. */
  readonly fma_gflops: number;
}

/** Larger than any cache that would make a copy look fast. */
const COPY_BYTES = 512 * 2 ** 20;
const SOFTWARE_COPY_BYTES = 32 * 2 ** 20;
const ROUNDS = 7;

/** Measures an adapter's peaks: the best of some rounds each, as whatever else goes on only takes from them. */
export async function measureRates(device: Device): Promise<AdapterRates> {
  const most = device.bindingLimit - (device.bindingLimit % COPY_PIECE);
  const bytes = Math.min(device.adapter.software ? SOFTWARE_COPY_BYTES : COPY_BYTES, most);
  return {
    adapter: device.name,
    copy_gbps: (2 * (await copyRate(device, bytes))) / 1e9,
    fma_gflops: await fmaGflops(device),
  };
}

async function fmaGflops(device: Device): Promise<number> {
  const invocations = device.adapter.software ? 2 ** 10 : 2 ** 18;
  const start = device.createBuffer('bench fma start', 4 * invocations);
  const out = device.createBuffer('bench fma out', 4 * invocations);
  const programOf = (steps: number) =>
    device.checked('preparing to measure', () => {
      const recorder = new Recorder(device, 'fma_rate');
      recorder.dispatch(fmaRate, { invocations, steps, factor: 0.5, addend: 1 }, { start, out });
      return recorder.finish();
    });
  try {
    let steps = 256;
    let gflops = 0;
    for (let round = 0; round < ROUNDS + 2; round++) {
      const program = await programOf(steps);
      const seconds = await submitTimed(device, (encoder) => {
        const pass = encoder.beginComputePass();
        program.encode(pass, { rows: [1], chunks: 1 });
        pass.end();
      });
      program.dispose();
      if (round === 0) continue; // compiled
      gflops = Math.max(gflops, (2 * FMAS_A_STEP * invocations * steps) / seconds / 1e9);
      // Longer and longer, until submitting doesn't count.
      if (seconds < 0.02) steps = Math.min(2 ** 16, steps * 4);
    }
    checkFma(device, new Float32Array(await device.read(out)));
    return gflops;
  } finally {
    start.dispose();
    out.dispose();
  }
}

/** From zeros x -> x / 2 + 1 ends at 2, in every one of 32 lanes. */
function checkFma(device: Device, sums: Float32Array): void {
  if (sums.every((sum) => Math.abs(sum - 64) < 1e-3)) return;
  throw new SplitkvError(
    'internal',
    `${device.name} multiplies and adds wrongly, so nothing is timed; update the GPU driver`,
  );
}

async function submitTimed(device: Device, encode: (encoder: GPUCommandEncoder) => void): Promise<number> {
  const encoder = device.gpu.createCommandEncoder();
  encode(encoder);
  const commands = encoder.finish();
  const started = performance.now();
  device.gpu.queue.submit([commands]);
  await device.wait(device.gpu.queue.onSubmittedWorkDone());
  return (performance.now() - started) / 1000;
}
