import { Random } from '../../src/base/random.js';
import type { Device, DeviceTraits } from '../../src/gpu/device.js';
import type { HostArrays } from '../../src/gpu/testing/kernel_case.js';
import { prefillProblem, suite as prefillSuite } from './attention_prefill/cases.js';
import type { HeadTables } from './attention_merge/index.js';
import { PREFILL_TILE_ROWS } from './attention_prefill/index.js';
import { suite as splitSuite } from './attention_split/cases.js';
import { attentionCase, attentionInputs, caseStep, ownAttentionInputs, type RowInfo, runOn } from './fixture.js';
import { mlaCase, mlaInputs, mlaStep, ownMlaInputs } from './mla_fixture.js';
import { suite as mlaPrefillSuite } from './mla_prefill/cases.js';
import { suite as mlaSplitSuite } from './mla_split/cases.js';
import { localChunks, localLanes, type Share } from './share.js';
import type { Sharing } from './share_fixture.js';

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
  /** Partials of a (row, head) that a rank makes room for. */
  readonly partials: (share: Share) => number;
  /** The rank's inputs (row_info, chunk_offsets ...) with partial_o and partial_ml. 'whole': of one rank that shares nothing. */
  readonly attend: (device: Device, traits: DeviceTraits, sharing: Required<Sharing> | 'whole') => Promise<HostArrays>;
}

const shape = { heads: 4, kvHeads: 2, headDim: 32, kvType: 'f16', block: 64 } as const;
const latentShape = { heads: 5, kvLoraRank: 32, qkRopeHeadDim: 8, kvType: 'f16', block: 64 } as const;

/** Entries evicted of each slot's heads: from none to nearly all. */
const EVICTED = [[0, 0], [250, 1], [0, 100], [256, 2], [0, 600], [2000, 1100], []];

export function splitPath(perHead = false): Path {
  const problem = attentionCase({ ...shape, ...(perHead && { perHead, evicted: EVICTED }) }, generated);
  const { kvHeads, tableStride } = problem;
  const inputs = attentionInputs(problem, new Random(51));
  const partials = (share: Share) => localChunks(problem.maxChunks, share);
  return {
    name: perHead ? 'attention_split, heads of different lengths' : 'attention_split',
    ...(perHead && { perHead: { kvHeads, tableStride } }),
    rowInfo: generated,
    heads: shape.heads,
    dim: shape.headDim,
    ofLanes: false,
    partials,
    async attend(device, traits, sharing) {
      const part = sharing === 'whole' ? problem : { ...problem, ...sharing, maxChunks: partials(sharing.share) };
      const own = sharing === 'whole' ? inputs : ownAttentionInputs(part, inputs);
      return { ...own, ...(await runOn(device, splitSuite, part, own, caseStep(problem), traits)) };
    },
  };
}

export function prefillPath(): Path {
  const problem = prefillProblem(shape, prompt);
  const inputs = attentionInputs(problem, new Random(52));
  const partials = (share: Share) => localLanes(problem.maxChunks, share);
  return {
    name: 'attention_prefill',
    rowInfo: prompt,
    heads: shape.heads,
    dim: shape.headDim,
    ofLanes: true,
    partials,
    async attend(device, traits, sharing) {
      const runs = { partialLayout: 'lane' } as const;
      const part = sharing === 'whole' ? problem : { ...problem, ...sharing, ...runs, lanes: partials(sharing.share) };
      const own = sharing === 'whole' ? inputs : ownAttentionInputs(part, inputs);
      return { ...own, ...(await runOn(device, prefillSuite, part, own, caseStep(problem), traits)) };
    },
  };
}

export function mlaSplitPath(): Path {
  const problem = mlaCase(latentShape, generated);
  const inputs = mlaInputs(problem, new Random(53));
  const { heads, kvLoraRank: dim } = latentShape;
  const partials = (share: Share) => localChunks(problem.maxChunks, share);
  return {
    name: 'mla_split',
    rowInfo: generated,
    heads,
    dim,
    ofLanes: false,
    partials,
    async attend(device, traits, sharing) {
      const part = sharing === 'whole' ? problem : { ...problem, ...sharing, maxChunks: partials(sharing.share) };
      const own = sharing === 'whole' ? inputs : ownMlaInputs(part, inputs);
      return { ...own, ...(await runOn(device, mlaSplitSuite, part, own, mlaStep(problem), traits)) };
    },
  };
}

export function mlaPrefillPath(): Path {
  const problem = mlaCase(latentShape, prompt);
  const inputs = mlaInputs(problem, new Random(54));
  const { heads, kvLoraRank: dim } = latentShape;
  const partials = (share: Share) => localLanes(problem.maxChunks, share);
  return {
    name: 'mla_prefill',
    rowInfo: prompt,
    heads,
    dim,
    ofLanes: true,
    partials,
    async attend(device, traits, sharing) {
      const runs = { partialLayout: 'lane' } as const;
      const part = sharing === 'whole' ? problem : { ...problem, ...sharing, ...runs, lanes: partials(sharing.share) };
      const own = sharing === 'whole' ? inputs : ownMlaInputs(part, inputs);
      return { ...own, ...(await runOn(device, mlaPrefillSuite, part, own, mlaStep(problem), traits)) };
    },
  };
}
