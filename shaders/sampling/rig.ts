import type { Device } from '../../src/gpu/device.js';
import { Recorder } from '../../src/gpu/recorder.js';
import type { HostArrays } from '../../src/gpu/testing/kernel_case.js';
import { argmaxPartial } from './argmax_partial/index.js';
import {
  partialsPerSlot,
  SAMPLING_PARAMS_BYTES,
  type SamplingProblem,
  type SamplingValues,
  seenWords,
  writeSamplingParams,
} from './params.js';
import { sample } from './sample/index.js';

export interface RigState {
  readonly ids: Uint32Array;
  readonly tokens: Uint32Array;
  readonly row_info: Uint32Array;
  readonly sampling: Uint32Array;
  readonly seen: Uint32Array;
}

/** Both sampling kernels as a model runs them, `steps` times over logits that stay; for tests. */
export async function sampleSteps(
  device: Device,
  problem: SamplingProblem,
  settings: readonly SamplingValues[],
  logits: Float32Array,
  steps: number,
): Promise<RigState> {
  const { slots, vocab, stride, ring } = problem;
  const sampling = new DataView(new ArrayBuffer(slots * SAMPLING_PARAMS_BYTES));
  settings.forEach((values, slot) => writeSamplingParams(sampling, slot * SAMPLING_PARAMS_BYTES, values));
  const arrays: HostArrays = {
    logits,
    partials: new Uint32Array(slots * partialsPerSlot(vocab) * 2),
    sampling: new Uint32Array(sampling.buffer),
    seen: new Uint32Array(slots * seenWords(vocab)),
    tokens: new Uint32Array(slots).fill(77),
    row_info: Uint32Array.from({ length: slots * 2 }, (_, i) => (i % 2 === 0 ? 10 * i : i >>> 1)),
    ids: new Uint32Array(ring * slots),
    step_counter: new Uint32Array(1),
  };
  if (logits.length !== slots * stride) throw new Error(`expected ${slots} x ${stride} logits, got ${logits.length}`);
  const buffers = Object.fromEntries(
    Object.entries(arrays).map(([name, array]) => {
      const buffer = device.createBuffer(name, array.byteLength);
      device.write(buffer, 0, array);
      return [name, buffer];
    }),
  );
  const { logits: l, partials, sampling: s, seen, tokens, row_info, ids, step_counter } = buffers;
  const recorder = new Recorder(device, 'sampling');
  recorder.dispatch(argmaxPartial, problem, { logits: l, sampling: s, seen, partials, step_counter });
  recorder.dispatch(sample, problem, { logits: l, partials, sampling: s, seen, tokens, row_info, ids, step_counter });
  const program = recorder.finish();
  await device.checked('sampling', () => {
    const encoder = device.gpu.createCommandEncoder();
    const pass = encoder.beginComputePass();
    for (let step = 0; step < steps; step++) program.encode(pass, { rows: slots, chunks: 1 });
    pass.end();
    device.gpu.queue.submit([encoder.finish()]);
  });
  const read = async (name: string): Promise<Uint32Array> => new Uint32Array(await device.read(buffers[name]!));
  const state = {
    ids: await read('ids'),
    tokens: await read('tokens'),
    row_info: await read('row_info'),
    sampling: await read('sampling'),
    seen: await read('seen'),
  };
  program.dispose();
  for (const buffer of Object.values(buffers)) buffer.dispose();
  return state;
}
