import { SplitkvError, throwIfAborted, unsupportedError } from '../../src/base/errors.js';
import { median } from '../../src/base/stats.js';
import { alignedTable } from '../../src/base/aligned_table.js';
import { openModel } from '../../src/engine/faces/load.js';
import { LoadedModel } from '../../src/engine/faces/model.js';
import { openModelFiles } from '../../src/engine/files/model_files.js';
import { cutPicture, cutSettings } from '../../src/images/cuts.js';
import { noise, pngOf } from '../../src/images/testing/noise.js';
import { openSource, readJson } from '../../src/loader/index.js';
import type { ModelConfig } from '../../src/model/config/model_config.js';
import type { VisionConfig } from '../../src/model/config/vision_config.js';
import { tilePatches } from '../../src/model/vision/patch_rows.js';
import type { WeightType } from '../../shaders/linear/pack.js';
import { benchAdapter, type Measurement, type SuiteHooks, type SuiteOutcome } from '../document.js';
import { type Contender, interleave } from '../interleave.js';
import type { LeftOut } from '../peers/peer_model.js';
import type { PeerPackages } from '../peers/page_peers.js';
import { Ort } from '../peers/ort.js';
import { openTransformersVision, type VisionPeer } from '../peers/transformers_vision.js';
import { randomPrompt } from '../prompt.js';
import { type Estimate, largestError, pairedRatio } from '../statistics.js';
import { decimals, ratio } from '../table.js';
import type { PlainLoadOptions } from './answers.js';

export interface VisionRequest {
  readonly suite: 'vision';
  readonly model: string;
  readonly load: PlainLoadOptions;
  readonly weights: WeightType;
  readonly runs: number;
  /** Where a page finds the other runtimes' packages; undefined where there are none. */
  readonly packages?: PeerPackages;
}

/**
 * encoder: from normalised pixels to rows. new: from a picture that wasn't seen before to the first token. again: the same prompt, whose
 * picture was asked about before. text: as many tokens without a picture.
 */
type Task = 'encoder' | 'new' | 'again' | 'text';

export interface VisionResult {
  readonly task: Task;
  readonly runtime: string;
  /** Of the picture; of the prompt, all in all. */
  readonly rows: number;
  readonly prompt_tokens?: number;
  /** Median of the samples. */
  readonly ms: number;
  /** Its time over ours, run by run: above 1 ours is faster. Of `again` and `text`: over that of `new`. */
  readonly speed_ratio: Estimate;
  /** Of the encoder's rows: the largest difference from ours, over the largest number. */
  readonly error?: number;
  readonly samples: readonly number[];
}

export interface VisionOutcome extends SuiteOutcome<VisionResult> {
  readonly leftOut: readonly LeftOut[];
}

/** Of the largest number. */
const TOLERANCE = { f32: 1e-3, f16: 0.02 };
/** Tokens of text before and behind a picture. */
const TEXT_TOKENS = 8;
/** Pixels of a picture's side, where the encoder takes any size. */
const SIDE = 448;
/** Tokens that runtimes must agree on before they are timed. */
const SAME_TOKENS = 4;

/** A picture, and what is asked about it. */
interface Question {
  readonly png: Uint8Array<ArrayBuffer>;
  /** f32 [3][side][side], of the only tile. */
  readonly pixels: Float32Array;
  /** f32 [patches][3 * patch * patch] */
  readonly patches: Float32Array;
  readonly grid: readonly [number, number];
  readonly ids: readonly number[];
  readonly rows: number;
}

/** How long a picture takes, and a prompt with it: seen for the first time, asked about again, and beside text alone. */
export async function runVision(request: VisionRequest, hooks: SuiteHooks): Promise<VisionOutcome> {
  const { signal, onProgress, onWarning } = hooks;
  const { model: where, weights, packages } = request;
  const source = await openSource(where, signal);
  const files = await openModelFiles(source, signal);
  const { vision } = files.config;
  if (!vision) throw unsupportedError(`--suite vision: ${where} takes no images; choose a model with an encoder`);
  onProgress(`loading ${where}`);
  const opened = await openModel(where, { ...request.load, weights, images: true, signal, onWarning }, () => ({
    slots: 1,
    batches: 1,
  }));
  const model = new LoadedModel(opened, { stepsInFlight: 'auto', prefixCaching: true });
  const leftOut: LeftOut[] = [];
  let ort: Ort | undefined;
  let peer: VisionPeer | undefined;
  try {
    const settings = cutSettings(await files.pictures(), vision, vision.file);
    const asking = (seed: number): Promise<Question> => question(files.config, vision, settings, seed);
    const first = await asking(0);
    const encode = (of: Question): Promise<Float32Array> => opened.group.runner.ranks[0]!.encode(of.patches, of.grid);
    const expected = await encode(first);
    const answer = async (of: Question, maxTokens: number, cachePrompt = true): Promise<readonly number[]> => {
      const prompt = { prompt: of.ids, images: [of.png] };
      const how = { maxTokens, ignoreEos: true, cachePrompt, speculate: 'off', signal } as const;
      const { tokens } = await model.generate(prompt, how).result;
      throwIfAborted(signal, 'bench');
      return tokens;
    };
    const tokens = await answer(first, SAME_TOKENS);
    same('an answer to a picture asked about again', await answer(first, SAME_TOKENS), tokens);
    const { transformers } = packages ?? {};
    let error: number | undefined;
    if (packages && transformers) {
      try {
        onProgress('loading the model in transformers.js');
        ort = await Ort.open(packages.onnxruntimeWeb, 'high-performance');
        peer = await openTransformersVision(transformers, {
          config: files.config,
          configJson: (await readJson(source, 'config.json', signal)) as Readonly<Record<string, unknown>>,
          reader: await files.reader(),
          weights,
          contextLength: model.info.contextLength,
          device: ort.device,
        });
        error = await checked(peer, first, expected, tokens, TOLERANCE[weights === 'f32' ? 'f32' : 'f16']);
      } catch (failure) {
        await peer?.dispose();
        peer = undefined;
        leftOut.push({ runtime: 'transformers.js', why: failure instanceof Error ? failure.message : String(failure) });
      }
    } else
      leftOut.push({ runtime: 'transformers.js', why: 'it runs in --host chrome, in a checkout with its package' });
    const results = await race(request, hooks, { model, peer, error, first, asking, encode, answer, tokens });
    return { adapters: [benchAdapter(model.info)], results, measurements: results.map(measurement), leftOut };
  } finally {
    await peer?.dispose();
    ort?.close();
    await model.dispose();
  }
}

interface Racing {
  readonly model: LoadedModel;
  readonly peer: VisionPeer | undefined;
  readonly error: number | undefined;
  readonly first: Question;
  readonly tokens: readonly number[];
  asking(seed: number): Promise<Question>;
  encode(of: Question): Promise<Float32Array>;
  answer(of: Question, maxTokens: number, cachePrompt?: boolean): Promise<readonly number[]>;
}

async function race(
  { runs }: VisionRequest,
  hooks: SuiteHooks,
  { model, peer, error, first, tokens, asking, encode, answer }: Racing,
): Promise<VisionResult[]> {
  let seed = 1;
  const text = randomPrompt(first.ids.length, model.info.vocabSize);
  const timed = async (body: () => Promise<unknown>): Promise<number> => {
    const started = performance.now();
    await body();
    return performance.now() - started;
  };
  const ours: readonly (Contender<number> & { readonly task: Task })[] = [
    { task: 'encoder', name: 'the encoder', run: () => timed(() => encode(first)) },
    {
      task: 'new',
      name: 'a new picture',
      async run() {
        const of = await asking(seed++);
        return timed(() => answer(of, 1));
      },
    },
    {
      task: 'again',
      name: 'a picture asked about again',
      run: () => timed(async () => same('an answer', await answer(first, 1), tokens.slice(0, 1))),
    },
    {
      task: 'text',
      name: 'text',
      run: () =>
        timed(
          () => model.generate(text, { maxTokens: 1, ignoreEos: true, cachePrompt: false, speculate: 'off' }).result,
        ),
    },
  ];
  const theirs: typeof ours = peer
    ? [
        { task: 'encoder', name: `${peer.name}: the encoder`, run: () => timed(() => peer.encode(first.pixels)) },
        {
          task: 'new',
          name: `${peer.name}: a new picture`,
          run: () => timed(() => peer.answer(first.ids, first.pixels, 1)), // it keeps nothing
        },
      ]
    : [];
  const all = [...ours, ...theirs];
  const samples = await interleave(all, runs, hooks);
  const samplesOf = (task: Task): readonly number[] => samples[all.findIndex((each) => each.task === task)]!;
  return all.map(({ task }, at) => ({
    task,
    runtime: at < ours.length ? 'splitkv' : peer!.name,
    rows: first.rows,
    ...(task !== 'encoder' && { prompt_tokens: first.ids.length }),
    ms: median(samples[at]!),
    speed_ratio: pairedRatio(samples[at]!, samplesOf(task === 'encoder' ? 'encoder' : 'new')),
    ...(at >= ours.length && task === 'encoder' && { error: error! }),
    samples: samples[at]!,
  }));
}

/** A picture of one tile, and a prompt of random ids with its rows among them. */
async function question(
  { vocabSize }: ModelConfig,
  vision: VisionConfig,
  settings: ReturnType<typeof cutSettings>,
  seed: number,
): Promise<Question> {
  const side = vision.places ? Math.min(vision.image, SIDE) : vision.image;
  const picture = noise(side, side, seed + 1);
  const { tiles, count } = cutPicture(picture, vision, settings);
  const { pixels: values, patches, grid } = tilePatches(tiles.at(-1)!, vision, settings);
  const pixels = new Float32Array(values.length);
  for (const [at, value] of values.entries()) pixels[(at % 3) * (values.length / 3) + Math.floor(at / 3)] = value;
  const around = randomPrompt(2 * TEXT_TOKENS, vocabSize).map((id) => (id === vision.imageToken ? 0 : id));
  return {
    png: await pngOf(picture),
    pixels,
    patches,
    grid,
    ids: [
      ...around.slice(0, TEXT_TOKENS),
      ...Array.from({ length: count }, () => vision.imageToken),
      ...around.slice(TEXT_TOKENS),
    ],
    rows: count,
  };
}

function same(what: string, found: readonly number[], expected: readonly number[]): void {
  if (found.join() === expected.join()) return;
  throw new SplitkvError(
    'internal',
    `${what} is ${found.join()} in place of ${expected.join()}, so no speed is told; please report it with the adapter`,
  );
}

/** The difference of its rows from ours. @throws SplitkvError `internal` where it computes another thing */
async function checked(
  peer: VisionPeer,
  { ids, pixels }: Question,
  expected: Float32Array,
  tokens: readonly number[],
  tolerance: number,
): Promise<number> {
  const rows = await peer.encode(pixels);
  const error = largestError(rows, expected);
  if (rows.length !== expected.length || !(error < tolerance))
    throw new SplitkvError('internal', `its rows differ from ours by ${error.toPrecision(2)}, so it isn't timed`);
  const answer = await peer.answer(ids, pixels, tokens.length);
  same(`${peer.name}'s answer`, answer, tokens);
  return error;
}

function measurement({ task, runtime, rows, samples }: VisionResult): Measurement {
  const metric = task === 'encoder' ? 'encoder' : 'time to first token';
  return { metric, unit: 'ms', better: 'lower', setting: { task, runtime, rows }, samples };
}

const NAMES: Readonly<Record<Task, string>> = {
  encoder: 'encoder',
  new: 'prompt, new picture',
  again: 'prompt, asked again',
  text: 'prompt of text',
};

export function visionTable(results: readonly VisionResult[], leftOut: readonly LeftOut[]): string {
  const { rows, samples } = results[0]!;
  const length = results.find(({ prompt_tokens }) => prompt_tokens !== undefined)?.prompt_tokens;
  const table = alignedTable(
    [
      ['task', 'runtime', 'ms', 'time / ours', 'error'],
      ...results.map(({ task, runtime, ms, speed_ratio, error }) => [
        NAMES[task],
        runtime,
        decimals(ms),
        ratio(speed_ratio),
        error === undefined ? '-' : error.toExponential(1),
      ]),
    ],
    2,
  );
  const left = leftOut.map(({ runtime, why }) => `not run: ${runtime}: ${why}\n`).join('');
  return (
    `${table}\nA picture of ${rows} rows, in a prompt of ${length} tokens; medians of ${samples.length} interleaved runs. time / ours: with 95% ` +
    `intervals; of our prompts, over that with a new picture. error: of the encoder's rows, the largest difference from ours, over the ` +
    `largest number. Our prompts are given a PNG file, others' normalised pixels.\n${left}`
  );
}
