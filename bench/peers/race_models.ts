/**
 * Room: other runtimes on the same weights, in the same run: onnxruntime-web, transformers.js, wllama and llama.cpp, a
 * file each, behind one interface (peer_model.ts). Read that next; docs/peers.md has the results.
 */

import { SplitkvError, throwIfAborted } from '../../src/base/errors.js';
import { median } from '../../src/base/stats.js';
import type { SuiteHooks } from '../document.js';
import { interleave } from '../interleave.js';
import { largestError, largestOf, pairedRatio } from '../statistics.js';
import { countCalls, type GpuCalls } from './kernels/count_calls.js';
import type { Answering, FilledContext, LeftOut, PeerAnswer, PeerModel } from './peer_model.js';
import type { PeerResult } from './peer_result.js';
import type { PeerWeights } from './peer_weights.js';

/** Of the largest logit. f32 sums in another order; f16 is rounded at other places, and some runtimes round activations where weights are quantised. */
const TOLERANCE: Readonly<Record<PeerWeights, number>> = {
  f32: 2e-3,
  f16: 0.02,
  q8: 0.03,
  q4: 0.1,
  q4_k_m: 0.1,
};
/** A runtime that gives no logits must agree on so many greedy tokens. */
const SAME_TOKENS = 8;

export interface RaceOptions {
  readonly weights: PeerWeights;
  readonly maxTokens: number;
  readonly runs: number;
}

/** Where answers begin: after a prompt that each computes anew, or after one whose keys and values are there. */
export type Beginning = { readonly prompt: readonly number[] } | FilledContext;

interface Contestant {
  readonly model: PeerModel;
  readonly subject: Answering;
  readonly checked: Checked;
}

/**
 * Greedy answers, in turns; the first model is ours. One that computes another thing, or fails, isn't timed: why is added to `leftOut`.
 * @throws as ours
 */
export async function raceModels(
  all: readonly PeerModel[],
  beginning: Beginning,
  options: RaceOptions,
  leftOut: LeftOut[],
  hooks: SuiteHooks,
): Promise<PeerResult[]> {
  const { maxTokens, runs, weights } = options;
  const tokens = beginning.prompt.length;
  const filled = 'present' in beginning;
  const begin = (model: PeerModel): Promise<Answering> | Answering =>
    'present' in beginning ? model.filled(beginning) : model.prompted(beginning.prompt);
  let expected: Expected | undefined;
  const contestants: Contestant[] = [];
  for (const model of all) {
    hooks.onProgress(`checking ${model.name} at ${tokens} tokens`);
    throwIfAborted(hooks.signal, 'bench');
    try {
      const subject = await begin(model);
      expected ??= { answer: await subject.answer(maxTokens), logits: await subject.logits!() };
      contestants.push({ model, subject, checked: await check(subject, expected, TOLERANCE[weights]) });
    } catch (error) {
      if (contestants.length === 0) throw error;
      leftOut.push({ runtime: model.name, tokens, why: error instanceof Error ? error.message : String(error) });
    }
  }
  const contenders = contestants.map(({ model, subject }) => ({
    name: `${model.name}, ${filled ? 'cache' : 'prompt'} of ${tokens} tokens`,
    run: () => subject.answer(maxTokens),
  }));
  const samples = await interleave(contenders, runs, hooks);
  const steps = samples.map((answers) => answers.map(({ tokenMs }) => tokenMs));
  const firsts = samples.map((answers) => answers.map(({ ttftMs }) => ttftMs));
  return contestants.map(({ model, checked }, index): PeerResult => {
    const speeds = steps[index]!.map((ms) => 1000 / ms);
    return {
      task: 'decode',
      tokens,
      runtime: model.name,
      device: model.device,
      unit: 'tokens/s',
      value: median(speeds),
      speed_ratio: pairedRatio(steps[index]!, steps[0]!),
      // A cache that is there tells nothing of the time that its prompt takes.
      ...(!filled && {
        ttft_ms: median(firsts[index]!),
        ttft_ratio: pairedRatio(firsts[index]!, firsts[0]!),
        ttft_samples: firsts[index]!,
      }),
      ...checked,
      samples: speeds,
    };
  });
}

interface Expected {
  readonly answer: PeerAnswer;
  readonly logits: Float32Array;
}

type Checked = Pick<PeerResult, 'same_tokens' | 'error' | 'calls'>;

/** @throws SplitkvError `internal` where it isn't what ours gave */
async function check(subject: Answering, { answer: ours, logits }: Expected, tolerance: number): Promise<Checked> {
  const wrong = (what: string): SplitkvError =>
    new SplitkvError('internal', `it ${what}, so it isn't timed; please report it with the adapter`);
  const { answer, calls } = await counted(subject, ours.ids.length);
  const differs = ours.ids.findIndex((id, at) => answer.ids[at] !== id);
  const same = differs < 0 ? ours.ids.length : differs;
  const checked = { same_tokens: same, ...(calls && { calls }) };
  if (answer.ids.length !== ours.ids.length)
    throw wrong(`gave ${answer.ids.length} tokens instead of ${ours.ids.length}`);
  if (!subject.logits) {
    if (same < Math.min(ours.ids.length, SAME_TOKENS)) throw wrong(`chose another token than ours at ${same}`);
    return checked;
  }
  const own = await subject.logits();
  const error = largestError(own, logits);
  if (!(error < tolerance)) throw wrong(`differs from ours by ${error.toPrecision(2)} of the largest logit`);
  // Close logits, yet another first token: only a near tie allows that.
  const [first] = answer.ids;
  const margin = (logits[ours.ids[0]!]! - logits[first!]!) / largestOf(logits);
  if (!(margin <= 2 * error)) throw wrong(`begins with token ${first} instead of ${ours.ids[0]}`);
  return { ...checked, error };
}

/** An answer, and the WebGPU calls of a token in it; undefined where none are seen (Node, workers, the CPU). */
async function counted(
  subject: Answering,
  maxTokens: number,
): Promise<{ readonly answer: PeerAnswer; readonly calls: GpuCalls | undefined }> {
  if (typeof GPUComputePassEncoder === 'undefined')
    return { answer: await subject.answer(maxTokens), calls: undefined };
  // Two lengths, so that what the prompt takes cancels.
  const few = await countCalls(() => subject.answer(2));
  let answer: PeerAnswer | undefined;
  const many = await countCalls(async () => (answer = await subject.answer(maxTokens)));
  const perToken = (name: keyof GpuCalls): number => (many[name] - few[name]) / (maxTokens - 2);
  const calls = {
    dispatches: perToken('dispatches'),
    passes: perToken('passes'),
    submits: perToken('submits'),
    maps: perToken('maps'),
  };
  return { answer: answer!, calls: many.dispatches > 0 ? calls : undefined };
}
