/**
 * Room: which of a GPU's plans of equal bits is quickest on this adapter, by running them when a rank is ready. stopwatch.ts
 * times passes; what there is to choose from is in gpu/choices.ts.
 */

import { throwIfAborted } from '../../base/errors.js';
import { nth, sum } from '../../base/lists.js';
import type { Region } from '../../distributed/communicator.js';
import type { TuningStats } from '../contracts/api.js';
import type { Choice, Device, PipelineSource, Tensor } from '../../gpu/index.js';
import { type Encode, openStopwatch, type Stopwatch } from './stopwatch.js';
import { submitPass } from '../measure/timing.js';
import { defaultStore, isMeasured, measured, type MeasureStore } from '../measure/stores/store.js';

export interface TuneOptions {
  /** Default: this machine's. */
  readonly store?: MeasureStore;
  /** Nothing is begun after so long; default half a second. */
  readonly budgetMs?: number;
  readonly signal?: AbortSignal | undefined;
  /** For tests. */
  readonly now?: () => number;
  readonly openStopwatch?: (device: Device, most: number) => Stopwatch;
}

const BUDGET_MS = 500;
const ROUNDS = 3;
const MOST_REPEATS = 512;
/** Grids are for the rows that were recorded, at most. */
const MOST_ROWS = 2 ** 20;
/** 256-token chunks of the sequences, or as many as there may be. */
const CHUNKS = 8;
/** A candidate that much slower than the best so far isn't tried again. */
const HOPELESS = 1.2;
/** What is less faster than the plan isn't chosen over it. */
const FASTER = 0.97;

/**
 * Chooses, for each kernel and shape that the device's programs were recorded with, the quickest of its plans of equal bits: what was
 * found before on this adapter, or by running them, those that a lone token waits for first. What they write to is zero afterwards.
 */
export async function tune(device: Device, options: TuneOptions): Promise<TuningStats> {
  const { store = await defaultStore(), budgetMs = BUDGET_MS, signal, now = () => performance.now() } = options;
  const started = now();
  const isLate = (): boolean => now() - started >= budgetMs;
  const counts = { known: 0, measured: 0, left: 0 };
  const choices = device.choices.all;
  let stopwatch: Stopwatch | undefined;
  try {
    for (const choice of inOrder(choices)) {
      throwIfAborted(signal, 'tuning');
      const { candidates } = choice;
      if (choice.made) {
        counts.known++; // by another rank on the device
        continue;
      }
      let isNew = false;
      const best = await measured(
        store,
        'tuning',
        subjectOf(device, choice),
        false,
        async () => {
          if (isLate()) return undefined;
          const most = Math.max(...choices.map((each) => each.candidates.length));
          stopwatch ??= (options.openStopwatch ?? openStopwatch)(device, most);
          isNew = true;
          return quickest(device, choice, stopwatch, isLate);
        },
        (stored) => Number.isInteger(stored) && Number(stored) >= 0 && Number(stored) < candidates.length,
      );
      if (best === undefined) {
        counts.left++;
        continue;
      }
      counts[isNew ? 'measured' : 'known']++;
      device.choices.make(device, choice, best);
    }
  } finally {
    stopwatch?.dispose();
  }
  const chosen: Record<string, number> = {};
  for (const { kernel, candidates, chosen: index } of choices) {
    const { tuning } = nth(candidates, index);
    if (tuning !== undefined) chosen[`${kernel} ${tuning}`] = (chosen[`${kernel} ${tuning}`] ?? 0) + 1;
  }
  return { state: 'on', choices: choices.length, ...counts, chosen, ms: now() - started };
}

/** Pipelines that `tune` will want on the device, of what was recorded on paper. */
export async function tuningSources(device: Device, paper: Device): Promise<readonly PipelineSource[]> {
  const store = await defaultStore();
  const sources: PipelineSource[] = [];
  for (const choice of inOrder(paper.choices.all)) {
    if (await isMeasured(store, 'tuning', subjectOf(device, choice))) continue;
    sources.push(...choice.candidates.map(({ source }) => source));
  }
  return sources;
}

/** What a choice holds for: the adapter with its driver, the kernel's plans, the problem. */
const subjectOf = ({ adapter }: Device, { kernel, problem, candidates }: Choice): unknown => [
  adapter,
  kernel,
  problem,
  candidates.map(({ source }) => source.code),
];

/** A token of one sequence first, then what takes longest: the most weights, as often as it is dispatched. */
function inOrder(choices: readonly Choice[]): Choice[] {
  const rowsOf = ({ problem }: Choice): number => (problem as { readonly rows?: number }).rows ?? 1;
  const bytesOf = ({ uses }: Choice): number => uses.length * sum(uses[0]?.tensors.map(({ size }) => size) ?? []);
  return choices.toSorted((a, b) => rowsOf(a) - rowsOf(b) || bytesOf(b) - bytesOf(a));
}

/** Index of the candidate that is quickest on the dispatches' own buffers; undefined where time ran out, or nothing could be told. */
async function quickest(
  device: Device,
  choice: Choice,
  stopwatch: Stopwatch,
  isLate: () => boolean,
): Promise<number | undefined> {
  const { candidates, uses } = choice;
  const sources = candidates.map(({ source }) => source);
  await device.compile(sources, undefined, () => {});
  const compiled = sources.flatMap((source, index) => (device.isCompiled(source) ? index : []));
  if (compiled.length < 2 || isLate()) return undefined;
  /** A candidate, `repeats` times, over the layers in turn. */
  const runs =
    (index: number, repeats: number): Encode =>
    (pass) => {
      const { source, grid } = nth(candidates, index);
      const [x, y, z] = typeof grid === 'function' ? grid({ rows: MOST_ROWS, chunks: CHUNKS }) : grid;
      pass.setPipeline(device.pipelineOf(source).pipeline!);
      for (let i = 0; i < repeats; i++) {
        pass.setBindGroup(0, uses[i % uses.length]!.bindGroup);
        pass.dispatchWorkgroups(x, y, z);
      }
    };
  const race = async (): Promise<number | undefined> => {
    let left = compiled;
    const best = candidates.map(() => Infinity);
    const once = compiled.map((index) => runs(index, 1));
    await stopwatch.seconds(once); // drivers compile at the first use, too
    const single = await stopwatch.seconds(once);
    const repeats = Math.min(MOST_REPEATS, Math.max(1, Math.ceil(stopwatch.enough / Math.min(...single))));
    for (let round = 0; round < ROUNDS; round++) {
      if (isLate()) return undefined;
      const seconds = await stopwatch.seconds(left.map((index) => runs(index, repeats)));
      for (const [at, index] of left.entries()) best[index] = Math.min(nth(best, index), nth(seconds, at));
      const least = Math.min(...best);
      left = left.filter((index) => nth(best, index) <= HOPELESS * least);
    }
    const winner = best.indexOf(Math.min(...best));
    if (winner === 0 || nth(best, winner) >= FASTER * nth(best, 0)) return 0;
    const expected = await outputsOf(device, choice, runs(0, 1));
    const got = await outputsOf(device, choice, runs(winner, 1));
    return got.every((bits, output) => bits.every((word, i) => word === expected[output]?.[i])) ? winner : 0;
  };
  try {
    return await device.checked(`tuning ${choice.kernel}`, () => withContents(device, choice, race));
  } catch {
    device.assertAlive();
    return undefined;
  }
}

const rangeOf = (tensor: Tensor): Region =>
  'buffer' in tensor ? tensor : { buffer: tensor, offset: 0, size: tensor.size };

function outputRanges({ candidates }: Choice, uses: Choice['uses']): Region[] {
  const { bindings } = candidates[0].source;
  const all = uses.flatMap(({ tensors }) => tensors.filter((_, binding) => bindings[binding] === 'read_write'));
  const ranges = all.map(rangeOf);
  return ranges.filter((range, index) => ranges.findIndex((other) => isSame(range, other)) === index); // layers share them
}

const isSame = (a: Region, b: Region): boolean => a.buffer === b.buffer && a.offset === b.offset;

/** Zeros: kernels may add to their outputs. */
function clear(device: Device, ranges: readonly Region[]): void {
  for (const { buffer, offset, size } of ranges) device.write(buffer, offset, new Uint32Array(size / 4));
}

/** What a run of the first dispatch writes. A driver that compiles a plan wrongly shall not win by it. */
async function outputsOf(device: Device, choice: Choice, run: Encode): Promise<Uint32Array[]> {
  const ranges = outputRanges(choice, choice.uses.slice(0, 1));
  clear(device, ranges);
  submitPass(device, run);
  const outputs: Uint32Array[] = [];
  for (const { buffer, offset, size } of ranges) outputs.push(new Uint32Array(await device.read(buffer, offset, size)));
  return outputs;
}

/** Runs `body` with contents in the dispatches' bindings that are there else only in a step. Outputs are zero after it. */
async function withContents<T>(device: Device, choice: Choice, body: () => Promise<T>): Promise<T> {
  const contents = choice.contents();
  const before: (Region & { readonly bytes: ArrayBuffer })[] = [];
  try {
    for (const { tensors } of choice.uses) {
      for (const [binding, data] of contents) {
        const range = rangeOf(nth(tensors, binding));
        if (before.some((known) => isSame(known, range))) continue;
        const { buffer, offset, size } = range;
        const bytes = Math.min(size, data.byteLength);
        before.push({ ...range, bytes: await device.read(buffer, offset, bytes) });
        device.write(buffer, offset, new Uint8Array(data.buffer, data.byteOffset, bytes));
      }
    }
    return await body();
  } finally {
    clear(device, outputRanges(choice, choice.uses));
    for (const { buffer, offset, bytes } of before) device.write(buffer, offset, new Uint8Array(bytes));
  }
}
