import { joinsLanes } from '../../../src/base/kv_units.js';
import { Random } from '../../../src/base/random.js';
import type { Device, DeviceTraits } from '../../../src/gpu/device.js';
import type { HostArrays } from '../../../src/gpu/testing/kernel_case.js';
import { type PrefillCase, prefillProblem, suite as prefillSuite } from '../attention_prefill/cases.js';
import type { HeadTables } from '../attention_merge/index.js';
import { PREFILL_TILE_ROWS } from '../attention_prefill/index.js';
import { suite as splitSuite } from '../attention_split/cases.js';
import {
  attentionCase,
  type AttentionCase,
  attentionInputs,
  caseStep,
  inPieces,
  ownAttentionInputs,
  type RowInfo,
  runOn,
} from '../fixture.js';
import { latentWidth } from '../../cache/latent_cache.js';
import { mlaCase, mlaInputs, mlaStep, ownMlaInputs } from '../mla_fixture.js';
import { suite as mlaPrefillSuite } from '../mla_prefill/cases.js';
import { suite as mlaSplitSuite } from '../mla_split/cases.js';
import { localChunks, localLanes, WHOLE } from '../share.js';
import { mostLanesOf, slotsOf, type Sharing } from '../share_fixture.js';

/** Tokens of each slot's sequence. */
export const CONTEXTS = [1, 255, 256, 257, 700, 2100, 2600];

/** The last token of each context: generated rows. */
const generated: RowInfo[] = [
  ...CONTEXTS.slice(0, 3).map((length, slot): RowInfo => [length - 1, slot]),
  undefined,
  ...CONTEXTS.slice(3).map((length, i): RowInfo => [length - 1, i + 3]),
];

/** The last two tokens of each context, in a tile each: prompt rows. */
const prompt: RowInfo[] = CONTEXTS.flatMap((length, slot) => {
  const last: RowInfo[] = length > 1 ? [[length - 2, slot]] : [];
  last.push([length - 1, slot]);
  return [...last, ...Array.from({ length: PREFILL_TILE_ROWS - last.length }, () => undefined)];
});

/** What a rank does of a path: which lanes it holds, and how things lie. */
interface Part extends Sharing {
  /** Of the lanes that it writes. */
  readonly bundleHeads: number;
  readonly queryPieces?: readonly number[];
}

/** One of the attention kernels, over rows that it was made for. */
export interface Path {
  readonly name: string;
  readonly rowInfo: readonly RowInfo[];
  readonly heads: number;
  /** Elements of a head's output. */
  readonly dim: number;
  /** The heads' tables, where they have their own. */
  readonly perHead?: HeadTables;
  /** Partials of prompt rows are of merge lanes, those of generated rows of chunks. */
  readonly ofLanes: boolean;
  /** Chunks that the longest sequence may have. */
  readonly maxChunks: number;
  /** Heads of a small bundle, and of pieces in which queries may come. */
  readonly bundleHeads: number;
  readonly pieces: readonly (readonly number[])[];
  /** The rank's inputs (row_info, chunk_offsets ...) with partial_o and partial_ml. 'whole': of one rank that shares nothing. */
  readonly attend: (device: Device, traits: DeviceTraits, part: Part | 'whole') => Promise<HostArrays>;
}

/** Whether a rank's lanes come to one state. */
export const joinsOwn = ({ share }: Sharing): boolean => joinsLanes(share?.ranks ?? 1);

/** Lanes of a head that a rank makes room for. */
export const lanesOf = (maxChunks: number, { share, masks }: Sharing): number =>
  masks
    ? Math.max(1, ...masks.map((mask) => mostLanesOf(slotsOf(mask), maxChunks)))
    : localLanes(maxChunks, share ?? WHOLE);

/** Chunks of a head that a rank makes room for. */
export const chunksOf = (maxChunks: number, { share }: Sharing): number => localChunks(maxChunks, share ?? WHOLE);

const shape = { heads: 4, kvHeads: 2, headDim: 32, kvType: 'f16', block: 64 } as const;
const latentShape = { heads: 5, kvLoraRank: 32, qkRopeHeadDim: 8, kvType: 'f16', block: 64 } as const;

/** Entries evicted of each slot's heads: from none to nearly all. */
const EVICTED = [[0, 0], [250, 1], [0, 100], [256, 2], [0, 600], [2000, 1100], []];
/** The same, as far as the last two rows have entries. */
const PROMPT_EVICTED = EVICTED.map((heads, slot) =>
  heads.map((count) => Math.min(count, Math.max(0, CONTEXTS[slot]! - 2))),
);

/** A part's problem: its lanes, and the layout of what it reads and writes. */
const partOf = <Problem extends { readonly maxChunks: number }>(
  problem: Problem,
  { bundleHeads, ...part }: Part,
  ofLanes: boolean,
) => ({
  ...problem,
  ...part,
  ...(ofLanes
    ? { lanes: lanesOf(problem.maxChunks, part), ...(!joinsOwn(part) && { partialLayout: { bundleHeads } }) }
    : { maxChunks: chunksOf(problem.maxChunks, part) }),
});

const headPath = (name: string, problem: AttentionCase | PrefillCase, seed: number): Path => {
  const inputs = attentionInputs(problem, new Random(seed));
  const ofLanes = 'lanes' in problem;
  const { kvHeads, tableStride, block, perHead = false, headDim, maxChunks } = problem;
  return {
    name: perHead ? `${name}, heads of different lengths` : name,
    ...(perHead && { perHead: { kvHeads, tableStride, block } }),
    rowInfo: problem.rowInfo,
    heads: shape.heads,
    dim: headDim,
    ofLanes,
    maxChunks,
    bundleHeads: 2,
    pieces: [
      [2, 2],
      [0, 2, 0, 2, 0],
    ],
    async attend(device, traits, part) {
      const own = part === 'whole' ? problem : partOf(problem, part, ofLanes);
      const q = own.queryPieces ? inPieces(inputs['q']!, problem, headDim, own.queryPieces) : inputs['q']!;
      const given = part === 'whole' ? inputs : ownAttentionInputs(own, { ...inputs, q });
      const suite = (ofLanes ? prefillSuite : splitSuite) as typeof splitSuite;
      return { ...given, ...(await runOn(device, suite, own, given, caseStep(problem), traits)) };
    },
  };
};

export const splitPath = (perHead = false): Path =>
  headPath(
    'attention_split',
    attentionCase({ ...shape, ...(perHead && { perHead, evicted: EVICTED }) }, generated),
    51,
  );

export const prefillPath = (perHead = false): Path =>
  headPath(
    'attention_prefill',
    prefillProblem({ ...shape, ...(perHead && { perHead, evicted: PROMPT_EVICTED }) }, prompt),
    52,
  );

const latentPath = (suite: typeof mlaSplitSuite, rowInfo: readonly RowInfo[], seed: number): Path => {
  const problem = mlaCase(latentShape, rowInfo);
  const inputs = mlaInputs(problem, new Random(seed));
  const ofLanes = suite === mlaPrefillSuite;
  return {
    name: suite.kernel.name,
    rowInfo,
    heads: problem.heads,
    dim: problem.kvLoraRank,
    ofLanes,
    maxChunks: problem.maxChunks,
    bundleHeads: 1,
    pieces: [
      [3, 0, 2],
      [1, 1, 1, 0, 1, 1],
    ],
    async attend(device, traits, part) {
      const own = part === 'whole' ? problem : partOf(problem, part, ofLanes);
      const q = inputs['q_abs']!;
      const pieces = own.queryPieces ? inPieces(q, problem, latentWidth(problem), own.queryPieces) : q;
      const given = part === 'whole' ? inputs : ownMlaInputs(own, { ...inputs, q_abs: pieces });
      return {
        ...given,
        ...(await runOn(device, suite, own, given, mlaStep(problem), traits)),
      };
    },
  };
};

export const mlaSplitPath = (): Path => latentPath(mlaSplitSuite, generated, 53);

export const mlaPrefillPath = (): Path => latentPath(mlaPrefillSuite, prompt, 54);
