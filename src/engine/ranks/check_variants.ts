import { nth } from '../../base/lists.js';
import { throwIfAborted } from '../../base/errors.js';
import { alignUp } from '../../base/math.js';
import { Random } from '../../base/random.js';
import { type Device, Recorder, type Replacement } from '../../gpu/index.js';
import type { RankStep } from '../../model/layers/world.js';
import { modelSizes } from '../../model/model_sizes.js';
import { BATCH, Probe, type ProbeSubject } from '../measure/probe.js';
import { submitPass } from '../measure/timing.js';
import { chooseLayers, layerKinds } from '../measure/probe_layers.js';
import { Sampler, samplingMode } from './sampling/sampling.js';
import { hasControls } from './sampling/sampling_options.js';

/** One layer of a kind is enough. */
const MOST_BYTES = 64 * 2 ** 20;
const PROMPT_ROWS = 16;
/** Rows begin in the first chunk of 256 tokens and end in the second. */
const FIRST_ROW = 248;
/** Of the largest number: variants add up in another order, or round to f16 in between; broken ones are far off. */
const TOLERANCE = 0.02;
/** Where prompts are rounded to 8 bits, of which each layer's matrices are some 1% off. */
const BYTES_TOLERANCE = 0.06;

/** Several tiles of every kernel, the last one short. */
const MOST_TOKENS = 9000;
const STEPS = 3;

/** One of each way in which tokens are sampled. */
const REQUESTS = [
  { seed: 1, repetitionPenalty: 1.2 },
  { seed: 2, temperature: 1, topK: 40, topP: 0.9 },
  { seed: 3, temperature: 1, topP: 0.95, repetitionPenalty: 1.2 },
  { seed: 4, temperature: 0.8, minP: 0.01, frequencyPenalty: 0.5, presencePenalty: 0.2 },
] as const;

/** Kernels by name, and what must take their place. */
export type Replacements = Readonly<Record<string, Replacement>>;

/**
 * Kernels whose variants for GPUs disagree here with their plain ones: a layer of each kind that the model has, with random weights, runs
 * a few prompt rows, a generated one and, if `batched`, some at once by both, and tokens are sampled in each way. Of a kernel that is wrong
 * with precision 'fast' only, the exact variant is told. The device is for this alone: nothing on it is freed.
 * @throws SplitkvError where not even the plain variants run
 */
export async function wrongVariants(
  device: Device,
  subject: ProbeSubject,
  signal?: AbortSignal,
): Promise<Replacements> {
  const { config, type, kvType } = subject;
  const sizes = modelSizes(config, type, kvType);
  const wrong = new Map<string, Replacement>();
  const note = (found: ReadonlyMap<string, Replacement>): void => {
    for (const [kernel, replacement] of found) if (wrong.get(kernel) !== 'plain') wrong.set(kernel, replacement);
  };
  for (const kind of layerKinds(config)) {
    device.replace(() => 'plain');
    const layers = chooseLayers(config, sizes, kind, 'whole', 1, MOST_BYTES);
    const probe = await Probe.open(device, subject, layers);
    const run = async (): Promise<Float32Array[]> => outputs(await probe.recordedAnew());
    const isRight = (got: readonly Float32Array[], expected: readonly Float32Array[]): boolean =>
      isClose(got, expected, probe.forward.hiddenStride, Object.values(device.planned), kind === 'expert');
    note(await disagreeing(device, run, isRight, signal));
  }
  const tokens = (): Promise<number[]> => sampledTokens(device, config.vocabSize);
  const isSame = (got: number[], expected: number[]): boolean => String(got) === String(expected);
  note(await disagreeing(device, tokens, isSame, signal));
  return Object.fromEntries(wrong);
}

/** Kernels whose variants for GPUs make `run`, which records and runs programs, give something else than the plain ones do. */
async function disagreeing<T>(
  device: Device,
  run: () => Promise<T>,
  isRight: (got: T, expected: T) => boolean,
  signal: AbortSignal | undefined,
): Promise<ReadonlyMap<string, Replacement>> {
  device.replace(() => 'plain');
  const expected = await run();
  const agrees = async (replacementOf: (kernel: string) => Replacement | undefined): Promise<boolean> => {
    throwIfAborted(signal, 'comparing kernels');
    device.replace(replacementOf);
    try {
      return isRight(await run(), expected);
    } catch (error) {
      device.assertAlive();
      void error; // doesn't compile, or runs into a limit
      return false;
    }
  };
  const found = new Map<string, Replacement>();
  if (await agrees(() => undefined)) return found;
  const tried = new Set<string>();
  // Kernels that take the place of wrong ones may be wrong, too.
  for (let planned = device.planned, more = Object.keys(planned); more.length > 0;) {
    const before = found.size;
    for (const kernel of more) {
      tried.add(kernel);
      const alone = (own: Replacement | undefined): Promise<boolean> =>
        agrees((other) => (other === kernel ? own : 'plain'));
      if (await alone(undefined)) continue;
      found.set(kernel, planned[kernel]?.includes(',') && (await alone('exact')) ? 'exact' : 'plain');
    }
    if (found.size === before) break;
    if (await agrees((kernel) => found.get(kernel))) return found;
    ({ planned } = device);
    more = Object.keys(planned).filter((kernel) => !tried.has(kernel));
  }
  return new Map([...tried].map((kernel) => [kernel, 'plain']));
}

/** The last layer's rows, of each kind of step. */
async function outputs(probe: Probe): Promise<Float32Array[]> {
  // A state is what the rows before left of it: only a sequence's beginning is the same each time.
  const first =
    probe.forward.stateBytes > 0 ? 0 : Math.max(0, Math.min(FIRST_ROW, probe.contextLength - PROMPT_ROWS - BATCH));
  const rows = Math.min(PROMPT_ROWS, probe.promptRows);
  return [
    await probe.outputOf('prompt', rows, first),
    await probe.outputOf('generated', 1, first + rows),
    ...(probe.batched ? [await probe.outputOf('generated', BATCH, first)] : []),
  ];
}

/**
 * Whether each row is near the expected one. Where rows are routed to experts and rounded, some choose another expert by a hair: half of
 * them may.
 */
function isClose(
  got: readonly Float32Array[],
  expected: readonly Float32Array[],
  stride: number,
  variants: readonly string[],
  routed: boolean,
): boolean {
  const rounded = variants.some((variant) => variant.includes(','));
  const tolerance = variants.some((variant) => variant.includes('dot4')) ? BYTES_TOLERANCE : TOLERANCE;
  return expected.every((want, step) => {
    const allowed = tolerance * want.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
    const off = new Set<number>();
    for (const [i, value] of want.entries()) {
      if (!(Math.abs(nth(got, step)[i]! - value) <= allowed)) off.add(Math.floor(i / stride));
    }
    return off.size <= (rounded && routed ? want.length / stride / 2 : 0);
  });
}

/** Tokens that each kind of request samples from random logits, by one rank's own programs; equal wherever kernels compute rightly. */
async function sampledTokens(device: Device, vocabSize: number): Promise<number[]> {
  const vocab = Math.min(vocabSize, MOST_TOKENS);
  const stride = alignUp(vocab, 32);
  const tokens = device.createBuffer('tokens', 4);
  const rowInfo = device.createBuffer('row_info', 8);
  const sampled: number[] = [];
  for (const request of REQUESTS) {
    const shape = { slots: 1, vocab, stride, ring: STEPS, slices: [[0, vocab] as const], part: 0 };
    const sampler = new Sampler(device, { ...shape, tokens, rowInfo });
    const controlled = hasControls(request);
    if (controlled) await sampler.prepareControls();
    const program = await device.checked('comparing sampling', () => {
      const recorder = new Recorder<RankStep>(device, 'sampling');
      const mode = sampler.modeFor(samplingMode(request));
      const logits = controlled ? sampler.recordControls(recorder) : sampler.logits;
      sampler.recordCandidates(recorder, mode, logits);
      sampler.recordSample(recorder, mode, logits);
      return recorder.finish();
    });
    const prompt = Uint32Array.from({ length: 20 }, (_, i) => (i * 37) % vocab);
    sampler.start(0, request, prompt, prompt.length - 1, true);
    device.write(rowInfo, 0, Uint32Array.of(prompt.length - 1, 0));
    device.write(sampler.logits, 0, new Random(request.seed).normals(stride, 3));
    await device.checked('comparing sampling', () =>
      submitPass(device, (pass) => {
        for (let step = 0; step < STEPS; step++) program.encode(pass, { rows: [1], chunks: 1 } as RankStep);
      }),
    );
    sampled.push(...new Uint32Array(await device.read(sampler.nextIds().ids)));
  }
  return sampled;
}
