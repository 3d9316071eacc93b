import { alignUp } from '../../../src/base/math.js';
import type { HostArrays, KernelCase, KernelSuite } from '../../../src/gpu/testing/kernel_case.js';
import { partialsReference } from '../argmax_partial/reference.js';
import { type SamplingCase, samplingInputs } from '../case_inputs.js';
import { candidatesReference } from '../candidates/reference.js';
import { listedPartials } from '../list_bins/reference.js';
import { binnedBytes, CANDIDATES, partialsPerSlot, type SamplingValues, type VocabSlice } from '../params.js';
import { sample, type SampleProblem } from './index.js';
import { sampleReference } from './reference.js';

interface SampleCase extends SamplingCase, SampleProblem {
  /** Of the ranks that hold logits. */
  readonly slices?: readonly VocabSlice[];
}

function sampleCase(
  name: string,
  vocab: number,
  settings: readonly SamplingValues[],
  logits: SamplingCase['logits'] = 'normal',
  more: Partial<KernelCase<SampleCase>> = {},
): KernelCase<SampleCase> {
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

/** A case as it is where the vocabulary is cut at `cuts`: each rank lists some of its tokens. What is sampled stays the same. */
function onRanks(whole: KernelCase<SampleCase>, cuts: readonly number[], drawn: boolean): KernelCase<SampleCase> {
  const edges = [0, ...cuts, whole.problem.vocab];
  const slices = cuts.map((_, i): VocabSlice => [edges[i]!, edges[i + 1]!]).concat([[cuts.at(-1)!, edges.at(-1)!]]);
  const pairs = drawn ? CANDIDATES : Math.max(...slices.map(([first, end]) => partialsPerSlot(end - first)));
  return {
    ...whole,
    name: `${whole.name}, on ${slices.length} ranks`,
    problem: {
      ...whole.problem,
      slices,
      draws: drawn,
      partials: { parts: slices.length, pairs, hold: drawn ? 'candidates' : 'best' },
    },
    bytes: whole.problem.slots * slices.length * pairs * 8,
  };
}

/** A case as it is where many workgroups sum up and list tokens first. What is sampled stays the same. */
function binned(whole: KernelCase<SampleCase>): KernelCase<SampleCase> {
  const pairs = partialsPerSlot(whole.problem.vocab);
  return {
    ...whole,
    name: `${whole.name}, in bins`,
    problem: { ...whole.problem, partials: { parts: 1, pairs, hold: 'bins' } },
    bytes: binnedBytes(whole.problem),
  };
}

/** Every rank's part of `partials`. */
function partialsOf(problem: SampleCase, inputs: HostArrays): Uint32Array {
  if (problem.partials?.hold === 'bins') return listedPartials(problem, inputs);
  const { slots, vocab, slices = [[0, vocab]], partials } = problem;
  const pairs = partials?.pairs ?? partialsPerSlot(vocab);
  const before = new Array(slots * pairs * 2).fill(0xffffffff);
  const part = (slice: VocabSlice): number[] =>
    partials?.hold === 'candidates'
      ? candidatesReference({ ...problem, slice }, inputs, before, vocab)
      : partialsReference({ ...problem, slice, tiles: pairs }, inputs, before);
  return Uint32Array.from(slices.flatMap(part));
}

const seed = 0x1234_5678_9abc_def0n;
const mixed: readonly SamplingValues[] = [
  { temperature: 0.8, topK: 40, topP: 0.9, repetitionPenalty: 1.3, seed, counter: 5 },
  { temperature: 0, repetitionPenalty: 1.1 },
  { temperature: 1.5, seed: 2 ** 40 + 1, counter: 1000 },
];
const topK: readonly SamplingValues[] = [
  mixed[0]!,
  { temperature: 1, topK: CANDIDATES, seed, counter: 3 },
  { temperature: 1.2, topK: 1, seed },
  { temperature: 1e-7, topK: 20, repetitionPenalty: 0.5 },
  { temperature: 1, topK: 20, topP: 0.5, repetitionPenalty: 2, seed: 17 },
];
const all = (values: SamplingValues): readonly SamplingValues[] => [{ temperature: 1, seed, counter: 9, ...values }];

export const suite: KernelSuite<typeof sample.bindings, typeof sample.params, SampleCase> = {
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
    binned(sampleCase('control', 200, [mixed[0]!], 'normal', { races: true })),
    binned(sampleCase('inactive slots', 300, [mixed[0]!, { active: false }, ...mixed.slice(1)])),
    binned(sampleCase('ties', 1000, [...all({ topK: 30 }), ...all({ topK: 1 }), ...all({ topP: 0.4 })], 'ties')),
    binned(sampleCase('all equal, more than are listed', 5000, [...all({}), ...all({ topP: 0.3 })], 'equal')),
    binned(sampleCase('flat 50257', 50257, all({ topK: 20000, topP: 0.8 }), 'flat')),
    binned(sampleCase('NaN and infinities', 3000, [...all({}), ...all({ temperature: 0 })], 'wild')),
    binned(sampleCase('temperature 151936', 151936, all({ temperature: 0.7 }))),
    binned(sampleCase('top-p 262144', 262144, all({ topP: 0.97, seed: 4 }))),
    onRanks(sampleCase('control', 200, [topK[0]!], 'normal', { races: true }), [64, 128], true),
    onRanks(sampleCase('inactive slots', 300, [...topK, { active: false }, mixed[1]!]), [128], true),
    onRanks(sampleCase('ties', 1000, topK, 'ties'), [128, 192, 960], true),
    onRanks(sampleCase('all equal', 4000, topK, 'equal'), [1024], true),
    onRanks(sampleCase('NaN and infinities', 3000, topK, 'wild'), [64, 2944], true),
    onRanks(sampleCase('fewer tokens than top-k', 65, topK), [64], true),
    onRanks(sampleCase('hot, cold', 2000, [...topK, ...all({ topK: 9, temperature: 1e38 })], 'ties'), [512], true),
    onRanks(sampleCase('top-k and top-p 151936', 151936, topK.slice(0, 1)), [75968], true),
    onRanks(sampleCase('greedy', 9000, [mixed[1]!, { active: false }, mixed[1]!], 'ties'), [64, 4544], false),
    onRanks(sampleCase('greedy 151936', 151936, [{}]), [75968], false),
  ],
  inputs: (problem, random) => {
    const { slots, ring } = problem;
    const inputs = samplingInputs(problem, random);
    return {
      ...inputs,
      partials: partialsOf(problem, inputs),
      tokens: new Uint32Array(slots).fill(3),
      row_info: Uint32Array.from({ length: slots * 2 }, (_, i) => (i % 2 === 0 ? 100 + i : i >>> 1)),
      ids: new Uint32Array(ring * slots).fill(11),
      step_counter: Uint32Array.of(13),
    };
  },
  outputs: () => ({}),
  reference: sampleReference,
};
