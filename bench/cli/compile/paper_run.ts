import type { WeightType } from '../../../shaders/linear/pack.js';
import { KV_BLOCK } from '../../../src/base/kv_units.js';
import { count, range } from '../../../src/base/lists.js';
import { blankWeights } from '../../../src/engine/measure/synthetic_weights.js';
import { RankRunner } from '../../../src/engine/ranks/rank_runner.js';
import type { StartOptions } from '../../../src/engine/contracts/rank.js';
import { openPaperDevice } from '../../../src/gpu/index.js';
import type { Access } from '../../../src/gpu/kernel.js';
import type { ModelConfig } from '../../../src/model/config/model_config.js';
import { loadWeights } from '../../../src/model/device_model.js';
import type { KvType } from '../../../src/model/layers/attention/cache.js';
import { World } from '../../../src/model/layers/world.js';
import { modelShape, rankSlice } from '../../../src/model/shape.js';
import { defaultPromptChunk, makePlan } from '../../../src/placement/index.js';
import type { LabAdapter } from './driver.js';

/** Tokens of the prompt and of the cache that a step attends to. */
export const PAPER_TOKENS = 4096;
/** Sequences of the batch. */
export const PAPER_BATCH = 16;

export interface PaperDispatch {
  readonly kernel: string;
  /** The first step that has it, and the first of its weights, if it has some, without the layer's number. */
  readonly what: string;
  readonly code: string;
  readonly bindings: readonly Access[];
  readonly workgroups: number;
}

interface PaperPipeline {
  readonly label: string;
  readonly code: string;
  readonly entries: readonly GPUBindGroupLayoutEntry[];
}

/** Requests of one sequence, each run for a token. */
const SAMPLING: Readonly<Record<string, StartOptions>> = {
  token: { seed: 0 },
  'token, top-k': { seed: 0, temperature: 1, topK: 40 },
  'token, top-p': { seed: 0, temperature: 1, topP: 0.9 },
};

/**
 * Every dispatch of a model's steps on one rank, on a device that only writes them down: a chunk of its prompt, a token of a lone
 * sequence by each kind of sampling, and one of a batch. Those of alike layers come once.
 */
export async function paperRun(
  config: ModelConfig,
  weights: WeightType,
  kv: KvType,
  like: LabAdapter,
): Promise<PaperDispatch[]> {
  const found = new Map<string, PaperDispatch>();
  let step = '';
  const weightNames = new Set<string>();
  const record: OnDispatch = ({ label: kernel, code, entries }, bound, workgroups) => {
    const weight = bound.find((name) => weightNames.has(name));
    const key = JSON.stringify([kernel, code, workgroups, weight]);
    if (found.has(key)) return;
    let what = weight === undefined ? step : `${step}, ${weight}`;
    // Those without weights are told apart by their size.
    if ([...found.values()].some((other) => other.kernel === kernel && other.what === what)) {
      what += `, ${count(workgroups, 'workgroup')}`;
    }
    const bindings = entries.slice(0, -1).map(({ buffer }) => (buffer!.type === 'storage' ? 'read_write' : 'read'));
    found.set(key, { kernel, what, code, bindings, workgroups });
  };
  const runner = await paperRunner(config, { weights, kv, slots: PAPER_BATCH, like }, record, weightNames);
  step = 'prompt';
  await runPrompt(runner);
  for (const [name, sampling] of Object.entries(SAMPLING)) {
    await runner.start(0, sampling, new Uint32Array(1));
    step = name;
    await runner.step(0, true, PAPER_TOKENS, 1);
  }
  step = `batch of ${PAPER_BATCH}`;
  await runner.start(0, SAMPLING['token']!, new Uint32Array(1));
  await runner.step(0, true, PAPER_TOKENS);
  return [...found.values()];
}

/** Dispatches of a model's steps on one GPU, where each token is the likeliest. */
export interface StepDispatches {
  /** A token of one sequence, with so many tokens in its cache. */
  readonly dispatches_512: number;
  readonly dispatches_4096: number;
  /** A chunk of 512 rows of a prompt. */
  readonly dispatches_prompt: number;
  /** A token of each of 2, or 8, sequences of 512. */
  readonly dispatches_2_rows: number;
  readonly dispatches_8_rows: number;
}

/** @param like the GPU; default: one with the limits of current ones */
export async function countDispatches(
  config: ModelConfig,
  weights: WeightType,
  kv: KvType,
  like?: LabAdapter,
): Promise<StepDispatches> {
  let dispatches = 0;
  const runnerOf = (slots: number) => paperRunner(config, { weights, kv, slots, like }, () => dispatches++);
  const runner = await runnerOf(8);
  const pair = await runnerOf(2);
  const counted = async (step: Promise<unknown>): Promise<number> => {
    const before = dispatches;
    await step;
    return dispatches - before;
  };
  const prompt = await counted(runPrompt(runner));
  for (const each of [runner, pair]) await each.start(0, SAMPLING['token']!, new Uint32Array(1));
  return {
    dispatches_512: await counted(runner.step(0, true, 512, 1)),
    dispatches_4096: await counted(runner.step(0, true, PAPER_TOKENS, 1)),
    dispatches_prompt: prompt,
    dispatches_2_rows: await counted(pair.step(0, true, 512)),
    dispatches_8_rows: await counted(runner.step(0, true, 512)),
  };
}

interface PaperOptions {
  readonly weights: WeightType;
  readonly kv: KvType;
  readonly slots: number;
  readonly like: LabAdapter | undefined;
}

/** The model on one rank, whose slot 0 has blocks for `PAPER_TOKENS` and one more. `weightNames`: takes the names of its weights' buffers. */
async function paperRunner(
  config: ModelConfig,
  { weights, kv, slots, like }: PaperOptions,
  record: OnDispatch,
  weightNames = new Set<string>(),
): Promise<RankRunner> {
  const device = await openPaperDevice(like);
  Object.assign(
    device.gpu,
    recording(record, (name) => weightNames.add(name)),
  );
  const plan = makePlan('single', 1, modelShape(config));
  const world = new World(plan, 0);
  const model = await loadWeights(device, config, blankWeights(config, rankSlice(plan, 0, config)), weights, world);
  Object.assign(
    device.gpu,
    recording(record, () => {}),
  );
  const contextLength = PAPER_TOKENS + KV_BLOCK;
  const kvBlocks = contextLength / KV_BLOCK;
  const options = { slots, contextLength, prefillChunk: defaultPromptChunk(plan), kvType: kv, kvBlocks };
  const runner = await RankRunner.create(device, world, config, model, options);
  await runner.setBlocks(0, range(0, kvBlocks), 0);
  return runner;
}

/** The last chunk of a prompt of `PAPER_TOKENS`. */
function runPrompt(runner: RankRunner): Promise<unknown> {
  const tokens = new Uint32Array(runner.options.prefillChunk);
  return runner.prefill({ slot: 0, tokens, start: PAPER_TOKENS - tokens.length, last: true });
}

const paperPipeline = ({ label, layout, compute }: GPUComputePipelineDescriptor): unknown => ({
  label,
  ...(layout as unknown as Pick<PaperPipeline, 'entries'>),
  ...(compute.module as unknown as Pick<PaperPipeline, 'code'>),
});

type OnDispatch = (pipeline: PaperPipeline, bound: readonly string[], workgroups: number) => void;

/** What paper_device.ts leaves out, so that a step can run: encoders that tell of each dispatch, and results that are zero. */
function recording(
  onDispatch: OnDispatch,
  onBuffer: (name: string) => void,
): Partial<Record<keyof GPUDevice, unknown>> {
  if (!('GPUMapMode' in globalThis)) Object.assign(globalThis, { GPUMapMode: { READ: 1 } });
  const pass = (): unknown => {
    let pipeline: PaperPipeline | undefined;
    let bound: readonly string[] = [];
    return {
      setPipeline: (next: PaperPipeline) => (pipeline = next),
      setBindGroup: (_index: number, group: { readonly bound: readonly string[] }) => (bound = group.bound),
      dispatchWorkgroups: (x: number, y: number, z: number) => onDispatch(pipeline!, bound, x * y * z),
      end: () => {},
    };
  };
  return {
    createBuffer: ({ label, size }: GPUBufferDescriptor) => {
      const name = withoutLayer(label!);
      onBuffer(name);
      return {
        name,
        destroy: () => {},
        mapAsync: () => Promise.resolve(),
        getMappedRange: () => new ArrayBuffer(size),
        unmap: () => {},
      };
    },
    createBindGroupLayout: ({ entries }: GPUBindGroupLayoutDescriptor) => ({ entries }),
    createPipelineLayout: ({ bindGroupLayouts: [layout] }: { bindGroupLayouts: unknown[] }) => layout,
    createShaderModule: ({ code }: GPUShaderModuleDescriptor) => ({ code }),
    createComputePipeline: paperPipeline,
    createComputePipelineAsync: (descriptor: GPUComputePipelineDescriptor) =>
      Promise.resolve(paperPipeline(descriptor)),
    createBindGroup: ({ entries }: { readonly entries: readonly { resource: { buffer: { name: string } } }[] }) => ({
      bound: entries.map(({ resource }) => resource.buffer.name),
    }),
    createCommandEncoder: () => ({
      beginComputePass: pass,
      copyBufferToBuffer: () => {},
      clearBuffer: () => {},
      finish: () => ({}),
    }),
  };
}

const withoutLayer = (label: string): string => label.replace(/\blayers\.\d+\./, '');
