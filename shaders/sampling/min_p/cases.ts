import { alignUp } from '../../../src/base/math.js';
import type { KernelCase, KernelSuite } from '../../../src/gpu/testing/kernel_case.js';
import { partialsReference } from '../argmax_partial/reference.js';
import { type SamplingCase, samplingInputs } from '../case_inputs.js';
import { CONTROL_BYTES, controlBytes } from '../controls.js';
import { ARGMAX_TILE, partialsPerSlot, type SamplingValues } from '../params.js';
import { minP } from './index.js';
import { minPReference } from './reference.js';

type MinPCase = SamplingCase & { readonly least: readonly (number | undefined)[] };

/** `least`: each slot's min_p; undefined: a slot without controls. */
function minPCase(
  name: string,
  vocab: number,
  slots: readonly (SamplingValues & { readonly minP?: number })[],
  logits: SamplingCase['logits'] = 'normal',
  more: Partial<KernelCase<MinPCase>> = {},
): KernelCase<MinPCase> {
  const settings = slots.map(({ minP: _, ...values }) => values);
  const problem = { slots: slots.length, vocab, stride: alignUp(vocab, 32), ring: 4, settings, logits };
  return {
    name,
    problem: { ...problem, least: slots.map((slot) => slot.minP) },
    seed: 89,
    step: { rows: slots.length, chunks: 1 },
    tolerance: { absolute: 0, relative: 0 },
    flops: slots.length * vocab * 2,
    bytes: slots.length * vocab * 8,
    ...more,
  };
}

const mixed = [
  { temperature: 1, minP: 0.1 },
  { temperature: 1 },
  { temperature: 0, minP: 0.5 },
  { temperature: 0.6, minP: 0.01 },
  { temperature: 1, minP: 0.3, active: false },
  { temperature: 2, minP: 0 },
  { temperature: 1, minP: 1 },
];

export const suite: KernelSuite<typeof minP.bindings, typeof minP.params, MinPCase> = {
  kernel: minP,
  cases: [
    minPCase('control', 70, mixed, 'normal', { races: true }),
    minPCase('one token', 1, mixed),
    minPCase('uneven tail', ARGMAX_TILE + 3, mixed, 'ties'),
    minPCase('all equal', 5000, mixed, 'equal'),
    minPCase('NaN and infinities', 5000, mixed, 'wild'),
    minPCase('vocabulary 151936', 151936, mixed.slice(0, 1)),
    minPCase('vocabulary 262144', 262144, mixed.slice(3, 4), 'flat'),
  ],
  inputs: (problem, random) => {
    const { logits, seen, sampling } = samplingInputs(problem, random);
    const controls = new Uint8Array(problem.slots * CONTROL_BYTES);
    problem.least.forEach((least, slot) => {
      if (least === undefined) return;
      controls.set(new Uint8Array(controlBytes({ begin: 0, minP: least }).buffer), slot * CONTROL_BYTES);
    });
    const before = new Array<number>(problem.slots * partialsPerSlot(problem.vocab) * 2).fill(0);
    return {
      partials: Uint32Array.from(
        partialsReference(problem, { logits: logits!, seen: seen!, sampling: sampling! }, before),
      ),
      sampling: sampling!,
      controls: new Uint32Array(controls.buffer),
      adjusted: logits!,
    };
  },
  outputs: () => ({}),
  reference: minPReference,
};
