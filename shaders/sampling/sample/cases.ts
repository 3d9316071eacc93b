import { alignUp } from '../../../src/base/math.js';
import type { KernelCase, KernelSuite } from '../../../src/gpu/testing/kernel_case.js';
import { partialsReference } from '../argmax_partial/reference.js';
import { type SamplingCase, samplingInputs } from '../case_inputs.js';
import { partialsPerSlot, type SamplingValues } from '../params.js';
import { sample } from './index.js';
import { sampleReference } from './reference.js';

function sampleCase(
  name: string,
  vocab: number,
  settings: readonly SamplingValues[],
  logits: SamplingCase['logits'] = 'normal',
  more: Partial<KernelCase<SamplingCase>> = {},
): KernelCase<SamplingCase> {
  const slots = settings.length;
  return {
    name,
    problem: { slots, vocab, stride: alignUp(vocab, 32), ring: 5, settings, logits },
    seed: 37,
    step: { rows: slots, chunks: 1 },
    tolerance: { absolute: 0, relative: 0 },
    flops: slots * vocab,
    bytes: slots * vocab * 4,
    ...more,
  };
}

const seed = 0x1234_5678_9abc_def0n;
const mixed: readonly SamplingValues[] = [
  { temperature: 0.8, topK: 40, topP: 0.9, repetitionPenalty: 1.3, seed, counter: 5 },
  { temperature: 0, repetitionPenalty: 1.1 },
  { temperature: 1.5, seed: 2 ** 40 + 1, counter: 1000 },
];
const all = (values: SamplingValues): readonly SamplingValues[] => [{ temperature: 1, seed, counter: 9, ...values }];

export const suite: KernelSuite<typeof sample.bindings, typeof sample.params, SamplingCase> = {
  kernel: sample,
  cases: [
    sampleCase('greedy', 70, [{ repetitionPenalty: 2 }], 'normal', { races: true }),
    sampleCase('control', 70, [mixed[0]!], 'normal', { races: true }),
    sampleCase('inactive slots between others', 300, [mixed[0]!, { active: false }, mixed[2]!]),
    sampleCase('one token', 1, all({})),
    sampleCase(
      'ties, top-k between them',
      1000,
      [...all({ topK: 30 }), ...all({ topK: 1 }), ...all({ topP: 0.4 })],
      'ties',
    ),
    sampleCase('all equal', 4000, [...all({}), ...all({ topK: 1500 }), ...all({ topP: 0.3 })], 'equal'),
    sampleCase('all equal 262144', 262144, all({ topP: 0.7 }), 'equal'),
    sampleCase('flat 50257', 50257, all({ topK: 20000, topP: 0.8 }), 'flat'),
    sampleCase('cold and hot', 2000, [
      ...all({ temperature: 1e-4 }),
      ...all({ temperature: 1e6 }),
      ...all({ temperature: 1e-7 }),
    ]),
    sampleCase(
      'NaN and infinities',
      3000,
      [...all({}), ...all({ temperature: 0 }), ...all({ topK: 5, topP: 0.5 })],
      'wild',
    ),
    sampleCase('greedy 151936', 151936, [{}]),
    sampleCase('temperature 151936', 151936, all({ temperature: 0.7 })),
    sampleCase('top-k and top-p 151936', 151936, all({ temperature: 0.7, topK: 50, topP: 0.95 })),
    sampleCase('three slots 151936', 151936, mixed),
    sampleCase('three slots 50257', 50257, mixed),
    sampleCase('top-p 262144', 262144, all({ topP: 0.97, seed: 4 })),
  ],
  inputs: (problem, random) => {
    const { slots, vocab, ring } = problem;
    const inputs = samplingInputs(problem, random);
    return {
      ...inputs,
      partials: Uint32Array.from(
        partialsReference(problem, inputs, new Array(slots * partialsPerSlot(vocab) * 2).fill(0xffffffff)),
      ),
      tokens: new Uint32Array(slots).fill(3),
      row_info: Uint32Array.from({ length: slots * 2 }, (_, i) => (i % 2 === 0 ? 100 + i : i >>> 1)),
      ids: new Uint32Array(ring * slots).fill(11),
      step_counter: Uint32Array.of(13),
    };
  },
  outputs: () => ({}),
  reference: sampleReference,
};
