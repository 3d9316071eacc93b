import type { Buffer, Device } from '../../../src/gpu/device.js';
import { type Program, Recorder } from '../../../src/gpu/recorder.js';
import type { HostArrays } from '../../../src/gpu/testing/kernel_case.js';
import { argmaxPartial } from '../argmax_partial/index.js';
import { binWeights } from '../bin_weights/index.js';
import { candidates } from '../candidates/index.js';
import { listBins } from '../list_bins/index.js';
import { markSeen } from '../mark_seen/index.js';
import { mergeCandidates } from '../merge_candidates/index.js';
import {
  binnedBytes,
  CANDIDATES,
  candidateTiles,
  partialsPerSlot,
  SAMPLING_PARAMS_BYTES,
  type SamplingProblem,
  type SamplingValues,
  seenWords,
  type VocabSlice,
  writeSamplingParams,
} from '../params.js';
import { sample } from '../sample/index.js';

export interface RigState {
  readonly ids: Uint32Array;
  readonly tokens: Uint32Array;
  readonly row_info: Uint32Array;
  readonly sampling: Uint32Array;
  readonly seen: Uint32Array;
}

type Buffers = Readonly<Record<string, Buffer>>;

function buffersOf(device: Device, arrays: HostArrays): Buffers {
  return Object.fromEntries(
    Object.entries(arrays).map(([name, array]) => {
      const buffer = device.createBuffer(name, array.byteLength);
      device.write(buffer, 0, array);
      return [name, buffer];
    }),
  );
}

/** What every rank that holds logits has. */
function rankArrays(
  { slots, vocab, stride }: SamplingProblem,
  settings: readonly SamplingValues[],
  logits: Float32Array,
) {
  if (logits.length !== slots * stride) throw new Error(`expected ${slots} x ${stride} logits, got ${logits.length}`);
  const sampling = new DataView(new ArrayBuffer(slots * SAMPLING_PARAMS_BYTES));
  settings.forEach((values, slot) => writeSamplingParams(sampling, slot * SAMPLING_PARAMS_BYTES, values));
  return {
    logits,
    sampling: new Uint32Array(sampling.buffer),
    seen: new Uint32Array(slots * seenWords(vocab)),
    step_counter: new Uint32Array(1),
  };
}

/** What the rank that samples has besides. */
const rootArrays = ({ slots, ring }: SamplingProblem) => ({
  tokens: new Uint32Array(slots).fill(77),
  row_info: Uint32Array.from({ length: slots * 2 }, (_, i) => (i % 2 === 0 ? 10 * i : i >>> 1)),
  ids: new Uint32Array(ring * slots),
});

function record(device: Device, body: (recorder: Recorder) => void): Program {
  const recorder = new Recorder(device, 'sampling');
  body(recorder);
  return recorder.finish();
}

async function readState(device: Device, buffers: Buffers): Promise<RigState> {
  const read = async (name: string): Promise<Uint32Array> => new Uint32Array(await device.read(buffers[name]!));
  return {
    ids: await read('ids'),
    tokens: await read('tokens'),
    row_info: await read('row_info'),
    sampling: await read('sampling'),
    seen: await read('seen'),
  };
}

/**
 * Sampling as a model on one rank runs it, `steps` times over logits that stay; for tests. `binned`: as on a GPU, where many workgroups
 * sum up and list what the last one searches.
 */
export async function sampleSteps(
  device: Device,
  problem: SamplingProblem,
  settings: readonly SamplingValues[],
  logits: Float32Array,
  steps: number,
  binned = false,
): Promise<RigState> {
  const { slots, vocab } = problem;
  const pairs = partialsPerSlot(vocab);
  const buffers = buffersOf(device, {
    ...rankArrays(problem, settings, logits),
    ...rootArrays(problem),
    // What a step left behind there must not show in the next.
    partials: new Uint32Array((binned ? binnedBytes(problem) : slots * pairs * 8) / 4).fill(5),
  });
  const { logits: l, partials, sampling: s, seen, tokens, row_info, ids, step_counter } = buffers;
  const program = record(device, (recorder) => {
    const inputs = { logits: l, sampling: s, seen, partials };
    recorder.dispatch(argmaxPartial, { ...problem, clearsBins: binned }, { ...inputs, step_counter });
    if (binned) for (const kernel of [binWeights, listBins]) recorder.dispatch(kernel, problem, inputs);
    const given = { ...problem, partials: { parts: 1, pairs, hold: binned ? 'bins' : 'best' } as const };
    recorder.dispatch(sample, given, { logits: l, partials, sampling: s, seen, tokens, row_info, ids, step_counter });
  });
  await device.checked('sampling', () => {
    const encoder = device.gpu.createCommandEncoder();
    const pass = encoder.beginComputePass();
    for (let step = 0; step < steps; step++) program.encode(pass, { rows: [slots], chunks: 1 });
    pass.end();
    device.gpu.queue.submit([encoder.finish()]);
  });
  const state = await readState(device, buffers);
  program.dispose();
  for (const buffer of Object.values(buffers)) buffer.dispose();
  return state;
}

/**
 * As `sampleSteps`, where every slice of the vocabulary is on another rank (all of them on one device): each lists its best tokens,
 * the first samples. `draws`: of CANDIDATES tokens per rank, otherwise greedily.
 */
export async function sampleStepsOnRanks(
  device: Device,
  problem: SamplingProblem,
  settings: readonly SamplingValues[],
  logits: Float32Array,
  steps: number,
  slices: readonly VocabSlice[],
  draws: boolean,
): Promise<RigState> {
  const { slots, stride } = problem;
  const lengths = slices.map(([first, end]) => end - first);
  const pairs = draws ? CANDIDATES : partialsPerSlot(Math.max(...lengths));
  const partBytes = slots * pairs * 8;
  const ranks = slices.map(([first, end], rank) => {
    // Elsewhere larger than any logit, so that reading there shows.
    const own = logits.map((logit, i) => (i % stride >= first && i % stride < end ? logit : 1e9));
    return buffersOf(device, {
      ...rankArrays(problem, settings, own),
      part: new Uint32Array(partBytes / 4),
      found: new Uint32Array(slots * candidateTiles(lengths[rank]!) * CANDIDATES * 2),
    });
  });
  const root = { ...ranks[0]!, ...buffersOf(device, rootArrays(problem)) } as Buffers;
  const partials = device.createBuffer('partials', slices.length * partBytes);
  const marks = record(device, (recorder) => {
    for (const { seen } of ranks.slice(1)) {
      recorder.dispatch(markSeen, problem, { tokens: root['tokens'], row_info: root['row_info'], seen });
    }
  });
  const lists = record(device, (recorder) => {
    for (const [rank, { logits: own, sampling, seen, part, found, step_counter }] of ranks.entries()) {
      const slice = { ...problem, slice: slices[rank]! };
      const tiles = candidateTiles(lengths[rank]!);
      const inputs = { logits: own, sampling, seen, step_counter };
      if (!draws) {
        recorder.dispatch(argmaxPartial, { ...slice, tiles: pairs }, { ...inputs, partials: part });
        continue;
      }
      recorder.dispatch(candidates, slice, { ...inputs, candidates: tiles > 1 ? found : part });
      if (tiles > 1) recorder.dispatch(mergeCandidates, slice, { found, sampling, candidates: part });
    }
  });
  const { sampling, seen, tokens, row_info, ids, step_counter } = root;
  const samples = record(device, (recorder) => {
    const parts = { parts: slices.length, pairs, hold: draws ? 'candidates' : 'best' } as const;
    recorder.dispatch(
      sample,
      { ...problem, draws, partials: parts },
      { logits: root['logits'], partials, sampling, seen, tokens, row_info, ids, step_counter },
    );
  });
  await device.checked('sampling on ranks', async () => {
    let encoder = device.gpu.createCommandEncoder();
    const shape = { rows: [slots], chunks: 1 };
    for (let step = 0; step < steps; step++) {
      if (step > 0) encoder = await marks.run(encoder, shape);
      encoder = await lists.run(encoder, shape);
      for (const [rank, { part }] of ranks.entries()) {
        encoder.copyBufferToBuffer(part!.gpu, 0, partials.gpu, rank * partBytes, partBytes);
      }
      encoder = await samples.run(encoder, shape);
    }
    device.gpu.queue.submit([encoder.finish()]);
  });
  const state = await readState(device, root);
  for (const program of [marks, lists, samples]) program.dispose();
  for (const buffer of [partials, ...ranks.flatMap((rank) => Object.values(rank)), ...Object.values(root)]) {
    buffer.dispose();
  }
  return state;
}
