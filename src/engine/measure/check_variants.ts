import { throwIfAborted } from '../../base/errors.js';
import type { Device } from '../../gpu/index.js';
import { modelSizes } from '../../model/model_sizes.js';
import { BATCH, Probe, type ProbeSubject } from './probe.js';
import { chooseLayers, layerKinds } from './probe_layers.js';
import { sampledTokens } from './probe_sampling.js';

/** One layer of a kind is enough. */
const MOST_BYTES = 64 * 2 ** 20;
const PROMPT_ROWS = 16;
/** Rows begin in the first chunk of 256 tokens and end in the second. */
const FIRST_ROW = 248;
/** Of the largest number: variants add up in another order, or round to f16 in between; broken ones are far off. */
const TOLERANCE = 0.02;

/**
 * Kernels whose variants for GPUs disagree here with their plain ones, by name: a layer of each kind that the model has, with random
 * weights, runs a few prompt rows, a generated one and, if `batched`, some at once by both, and tokens are sampled in each way. The device
 * is for this alone: nothing on it is freed.
 * @throws SplitkvError where not even the plain variants run
 */
export async function wrongVariants(device: Device, subject: ProbeSubject, signal?: AbortSignal): Promise<string[]> {
  const { config, type, kvType } = subject;
  const sizes = modelSizes(config, type, kvType);
  const wrong = new Set<string>();
  for (const kind of layerKinds(config)) {
    device.usePlain(() => true);
    const layers = chooseLayers(config, sizes, kind, 'whole', 1, MOST_BYTES);
    const probe = await Probe.open(device, subject, layers);
    const run = async (): Promise<Float32Array[]> => outputs(await probe.recordedAnew());
    for (const kernel of await disagreeing(device, run, isClose, signal)) wrong.add(kernel);
  }
  const tokens = (): Promise<number[]> => sampledTokens(device, config.vocabSize);
  const isSame = (got: number[], expected: number[]): boolean => String(got) === String(expected);
  for (const kernel of await disagreeing(device, tokens, isSame, signal)) wrong.add(kernel);
  return [...wrong];
}

/** Kernels whose variants for GPUs make `run`, which records and runs programs, give something else than the plain ones do. */
async function disagreeing<T>(
  device: Device,
  run: () => Promise<T>,
  isRight: (got: T, expected: T) => boolean,
  signal: AbortSignal | undefined,
): Promise<string[]> {
  device.usePlain(() => true);
  const expected = await run();
  const agrees = async (isPlain: (kernel: string) => boolean): Promise<boolean> => {
    throwIfAborted(signal, 'comparing kernels');
    device.usePlain(isPlain);
    try {
      return isRight(await run(), expected);
    } catch (error) {
      device.assertAlive();
      void error; // doesn't compile, or runs into a limit
      return false;
    }
  };
  if (await agrees(() => false)) return [];
  const kernels = Object.keys(device.planned);
  const found: string[] = [];
  for (const kernel of kernels) if (!(await agrees((other) => other !== kernel))) found.push(kernel);
  const mended = found.length > 0 && (await agrees((kernel) => found.includes(kernel)));
  return mended ? found : kernels;
}

/** The last layer's rows, of each kind of step. */
async function outputs(probe: Probe): Promise<Float32Array[]> {
  const first = Math.max(0, Math.min(FIRST_ROW, probe.contextLength - PROMPT_ROWS - BATCH));
  const rows = Math.min(PROMPT_ROWS, probe.promptRows);
  return [
    await probe.outputOf('prompt', rows, first),
    await probe.outputOf('generated', 1, first + rows),
    ...(probe.batched ? [await probe.outputOf('generated', BATCH, first)] : []),
  ];
}

const isClose = (got: readonly Float32Array[], expected: readonly Float32Array[]): boolean =>
  expected.every((want, step) => {
    const allowed = TOLERANCE * want.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
    return want.every((value, i) => Math.abs(got[step]![i]! - value) <= allowed);
  });
