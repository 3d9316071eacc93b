import { alignUp } from '../../../src/base/math.js';
import type { KernelCase, KernelSuite } from '../../../src/gpu/testing/kernel_case.js';
import { type SamplingCase, samplingInputs } from '../case_inputs.js';
import { CONTROL_BYTES, controlBytes, type ControlValues, ENDS_TEXT } from '../controls.js';
import { ARGMAX_TILE, NO_TOKEN, seenWords, type SliceProblem } from '../params.js';
import { adjustLogits } from './index.js';
import { adjustedReference } from './reference.js';

/** A slot: its controls, none where they are off, and the position of its step. */
interface Slot {
  readonly controls?: ControlValues;
  readonly position: number;
}

type AdjustCase = SamplingCase & SliceProblem & { readonly rows: readonly Slot[] };

function adjustCase(
  name: string,
  vocab: number,
  rows: readonly Slot[],
  logits: SamplingCase['logits'] = 'normal',
  more: Partial<KernelCase<AdjustCase>> = {},
  slice?: SliceProblem['slice'],
): KernelCase<AdjustCase> {
  const slots = rows.length;
  const problem = { slots, vocab, stride: alignUp(vocab, 32), ring: 4, settings: rows.map(() => ({})), logits, rows };
  return {
    name,
    problem: { ...problem, ...(slice && { slice }) },
    seed: 83,
    step: { rows: slots, chunks: 1 },
    tolerance: { absolute: 1e-6, relative: 1e-6 },
    flops: slots * vocab * 4,
    bytes: slots * vocab * 16,
    ...more,
  };
}

const penalties = { repetitionPenalty: 1.3, frequencyPenalty: 0.6, presencePenalty: -0.4 };
const mixed: readonly Slot[] = [
  { controls: { begin: 10, first: 10, ...penalties }, position: 15 },
  { position: 20 },
  // The step that samples from the prompt: nothing is fed, and nothing was generated.
  { controls: { begin: 7, first: 7, minTokens: 1, frequencyPenalty: 2 }, position: 7 },
  { controls: { begin: 7, first: 7, minTokens: 1, presencePenalty: 2 }, position: 8 },
  // The same, on a rank that isn't told.
  { controls: { begin: 9, first: 9, minTokens: 1, repetitionPenalty: 0.5 }, position: NO_TOKEN },
  // Not all tokens are allowed.
  { controls: { begin: 3, first: 3, minTokens: 1, someAllowed: true, ...penalties }, position: 3 },
  { controls: { begin: 3, someAllowed: true }, position: 9 },
  // Goes on: five were generated before its cache was computed again.
  { controls: { begin: 15, minTokens: 6, ...penalties }, position: 20 },
];

export const suite: KernelSuite<typeof adjustLogits.bindings, typeof adjustLogits.params, AdjustCase> = {
  kernel: adjustLogits,
  cases: [
    adjustCase('control', 70, mixed, 'normal', { races: true }),
    adjustCase('one token', 1, mixed),
    adjustCase('uneven tail', ARGMAX_TILE + 3, mixed, 'ties'),
    adjustCase('NaN and infinities', 5000, mixed, 'wild'),
    adjustCase('first slice of 9000', 9000, mixed, 'normal', {}, [0, 4544]),
    adjustCase('last slice of 9000', 9000, mixed, 'normal', {}, [7040, 9000]),
    adjustCase('vocabulary 151936', 151936, mixed.slice(0, 1)),
    adjustCase('vocabulary 262144', 262144, mixed.slice(0, 1)),
  ],
  inputs: (problem, random) => {
    const { slots, vocab, stride, rows } = problem;
    const { logits, seen } = samplingInputs(problem, random);
    const controls = new Uint8Array(slots * CONTROL_BYTES);
    rows.forEach((row, slot) => {
      if (row.controls) controls.set(new Uint8Array(controlBytes(row.controls).buffer), slot * CONTROL_BYTES);
    });
    const [from, end] = problem.slice ?? [0, vocab];
    return {
      logits: logits!,
      seen: Uint32Array.from([
        ...(seen as Uint32Array),
        ...Array.from({ length: slots * seenWords(vocab) }, () => random.integer(2 ** 32)),
      ]),
      controls: new Uint32Array(controls.buffer),
      biases: Float32Array.from({ length: slots * stride }, () => (random.integer(3) === 0 ? random.normal() * 5 : 0)),
      // Of every second slot outside of the slice, where there is one.
      tokens: Uint32Array.from({ length: slots }, (_, slot) =>
        slot % 2 === 0 ? from + random.integer(end - from) : vocab - 1 - random.integer(Math.min(vocab, 3)),
      ),
      row_info: Uint32Array.from({ length: slots * 2 }, (_, i) => (i % 2 === 1 ? i >>> 1 : rows[i / 2]!.position)),
      counts: Uint32Array.from(
        { length: slots * stride },
        () => [0, 1, 5, ENDS_TEXT, ENDS_TEXT + 2][random.integer(5)]!,
      ),
    };
  },
  outputs: ({ slots, stride }) => ({ adjusted: { type: 'f32', length: slots * stride } }),
  reference: adjustedReference,
};
