import { SplitkvError, throwIfAborted } from '../../base/errors.js';
import { median } from '../../base/stats.js';
import type { SuiteHooks } from '../document.js';
import { interleave } from '../interleave.js';
import { pairedRatio } from '../statistics.js';
import { countCalls, type GpuCalls } from './count_calls.js';
import type { PeerAnswer, PeerModel } from './peer_model.js';
import type { PeerResult } from './peer_result.js';

/** Of the largest logit. f32 sums in another order; some runtimes round activations too where weights are quantised. */
const TOLERANCE = { f32: 2e-3, q4: 0.1 } as const;
/** A runtime that gives no logits must agree on so many greedy tokens. */
const SAME_TOKENS = 8;

export interface RaceOptions {
  readonly weights: 'f32' | 'q4';
  readonly maxTokens: number;
  readonly runs: number;
}

/**
 * Greedy answers to one prompt, in turns; the first model is ours. One that computes another thing isn't timed: why is added to `leftOut`.
 */
export async function raceModels(
  all: readonly PeerModel[],
  prompt: readonly number[],
  options: RaceOptions,
  leftOut: string[],
  hooks: SuiteHooks,
): Promise<PeerResult[]> {
  const { maxTokens, runs } = options;
  const [ours] = all;
  const expected = await ours!.answer(prompt, maxTokens);
  const logits = await ours!.logits!(prompt);
  const checks: Checked[] = [];
  const models: PeerModel[] = [];
  for (const model of all) {
    hooks.onProgress(`checking ${model.name}, prompt of ${prompt.length} tokens`);
    throwIfAborted(hooks.signal, 'bench');
    try {
      checks.push(await check(model, prompt, expected, logits, TOLERANCE[options.weights]));
      models.push(model);
    } catch (error) {
      if (model === ours) throw error;
      leftOut.push(
        `${model.name} at ${prompt.length} tokens: ${error instanceof Error ? error.message : String(error)}`,
      );
    }
  }
  const contenders = models.map((model) => ({
    name: `${model.name}, prompt of ${prompt.length} tokens`,
    run: () => model.answer(prompt, maxTokens),
  }));
  const samples = await interleave(contenders, runs, hooks);
  const steps = samples.map((answers) => answers.map(({ tokenMs }) => tokenMs));
  const firsts = samples.map((answers) => answers.map(({ ttftMs }) => ttftMs));
  return models.map(({ name, device }, index): PeerResult => {
    const speeds = steps[index]!.map((ms) => 1000 / ms);
    return {
      task: 'decode',
      tokens: prompt.length,
      runtime: name,
      device,
      unit: 'tokens/s',
      value: median(speeds),
      speed_ratio: pairedRatio(steps[index]!, steps[0]!),
      ttft_ms: median(firsts[index]!),
      ttft_ratio: pairedRatio(firsts[index]!, firsts[0]!),
      ...checks[index]!,
      samples: speeds,
      ttft_samples: firsts[index]!,
    };
  });
}

type Checked = Pick<PeerResult, 'same_tokens' | 'error' | 'calls'>;

async function check(
  model: PeerModel,
  prompt: readonly number[],
  expected: PeerAnswer,
  logits: Float32Array,
  tolerance: number,
): Promise<Checked> {
  const wrong = (what: string): SplitkvError =>
    new SplitkvError('internal', `it ${what}, so it isn't timed; please report it with the adapter`);
  const { answer, calls } = await counted(model, prompt, expected.ids.length);
  const differs = expected.ids.findIndex((id, at) => answer.ids[at] !== id);
  const same = differs < 0 ? expected.ids.length : differs;
  const checked = { same_tokens: same, ...(calls && { calls }) };
  if (answer.ids.length !== expected.ids.length)
    throw wrong(`gave ${answer.ids.length} tokens instead of ${expected.ids.length}`);
  if (!model.logits) {
    if (same < Math.min(expected.ids.length, SAME_TOKENS)) throw wrong(`chose another token than ours at ${same}`);
    return checked;
  }
  const own = await model.logits(prompt);
  const largest = logits.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
  const error = logits.reduce((most, value, id) => Math.max(most, Math.abs(value - own[id]!)), 0) / largest;
  if (!(error < tolerance)) throw wrong(`differs from ours by ${error.toPrecision(2)} of the largest logit`);
  // Close logits, yet another first token: only a near tie allows that.
  const [first] = answer.ids;
  const margin = (logits[expected.ids[0]!]! - logits[first!]!) / largest;
  if (!(margin <= 2 * error)) throw wrong(`begins with token ${first} instead of ${expected.ids[0]}`);
  return { ...checked, error };
}

/** An answer, and the WebGPU calls of a token in it; undefined where none are seen (Node, workers, the CPU). */
async function counted(
  model: PeerModel,
  prompt: readonly number[],
  maxTokens: number,
): Promise<{ readonly answer: PeerAnswer; readonly calls: GpuCalls | undefined }> {
  if (typeof GPUComputePassEncoder === 'undefined')
    return { answer: await model.answer(prompt, maxTokens), calls: undefined };
  // Two lengths, so that what the prompt takes cancels.
  const few = await countCalls(() => model.answer(prompt, 2));
  let answer: PeerAnswer | undefined;
  const many = await countCalls(async () => (answer = await model.answer(prompt, maxTokens)));
  const perToken = (name: keyof GpuCalls): number => (many[name] - few[name]) / (maxTokens - 2);
  const calls = {
    dispatches: perToken('dispatches'),
    passes: perToken('passes'),
    submits: perToken('submits'),
    maps: perToken('maps'),
  };
  return { answer: answer!, calls: many.dispatches > 0 ? calls : undefined };
}
