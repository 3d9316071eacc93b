import { describe, expect, test } from 'vitest';
import { Random } from '../../src/base/random.js';
import type { Device, DeviceTraits } from '../../src/gpu/device.js';
import { testAdapters } from '../../src/gpu/testing/adapters.js';
import type { HostArray, HostArrays } from '../../src/gpu/testing/kernel_case.js';
import { MERGE_LANES } from '../cache/kv_cache.js';
import { type MergeCase, suite as mergeSuite } from './attention_merge/cases.js';
import { PREFILL_TILE_ROWS } from './attention_prefill/index.js';
import { type PrefillCase, prefillProblem, suite as prefillSuite } from './attention_prefill/cases.js';
import { suite as splitSuite } from './attention_split/cases.js';
import {
  attentionCase,
  attentionInputs,
  bits,
  caseStep,
  decisions,
  ownAttentionInputs,
  type RowInfo,
  runOn,
} from './fixture.js';
import { localChunks, localLanes, ownBase, type Share, WHOLE } from './share.js';
import { localIndex, type Sharing } from './share_fixture.js';

const CONTEXTS = [1, 255, 256, 257, 700, 2100, 2600];
const RANKS = [1, 2, 4, 8];
/** chunk_offsets of the slots: none, the same for all, one for each. */
const OFFSETS = [[], CONTEXTS.map(() => 3), [5, 0, 7, 1, 2, 6, 4]];

/** The last token of each context, a slot each: generated rows. */
const generatedRows: RowInfo[] = [
  ...CONTEXTS.slice(0, 3).map((length, slot): RowInfo => [length - 1, slot]),
  undefined,
  ...CONTEXTS.slice(3).map((length, i): RowInfo => [length - 1, i + 3]),
];

/** The last two tokens of each context, a tile each: prompt rows. */
const promptRows: RowInfo[] = CONTEXTS.flatMap((length, slot): RowInfo[] =>
  Array.from({ length: PREFILL_TILE_ROWS }, (_, i) =>
    i < Math.min(2, length) ? [length - Math.min(2, length) + i, slot] : undefined,
  ),
);

test('ranks own every chunk once, in whole lanes', () => {
  for (const ranks of RANKS) {
    for (const offset of [0, 1, 6, 0xffffffff]) {
      const owners = Array.from({ length: ranks }, (_, index) => ({ share: { ranks, index }, offsets: [offset] }));
      for (let chunk = 0; chunk < 20; chunk++) {
        const own = owners.filter((sharing) => localIndex(sharing, 0, chunk) !== undefined);
        expect(own).toHaveLength(1);
        const base = ownBase(own[0]!.share, offset);
        expect([base, (chunk - base) % ranks]).toEqual([(chunk % MERGE_LANES) % ranks, 0]);
        expect((chunk - base) / ranks).toBe(localIndex(own[0]!, 0, chunk));
        expect((chunk - base) / ranks).toBeLessThan(localChunks(chunk + 1, { ranks }));
        expect(((chunk % MERGE_LANES) - base) / ranks).toBeLessThan(localLanes(chunk + 1, { ranks }));
      }
    }
  }
});

/** One of the attention kernels, over rows that it was made for. */
interface Path {
  readonly name: string;
  readonly rowInfo: readonly RowInfo[];
  readonly heads: number;
  /** Elements of a head's output. */
  readonly dim: number;
  /** Partials of a (row, head): of chunks, or of merge lanes. */
  readonly partials: (share: Share) => number;
  readonly ofLanes: boolean;
  /** partial_o and partial_ml, and the row_info and chunk_offsets of their merge. Whole: as one rank that shares nothing. */
  readonly attend: (device: Device, traits: DeviceTraits, sharing: Required<Sharing> | 'whole') => Promise<HostArrays>;
}

const shape = { heads: 4, kvHeads: 2, headDim: 32, kvType: 'f16', block: 64 } as const;

function splitPath(): Path {
  const problem = attentionCase(shape, generatedRows);
  const inputs = attentionInputs(problem, new Random(51));
  const partials = (share: Share) => localChunks(problem.maxChunks, share);
  return {
    name: 'attention_split',
    rowInfo: generatedRows,
    heads: shape.heads,
    dim: shape.headDim,
    partials,
    ofLanes: false,
    async attend(device, traits, sharing) {
      const part = sharing === 'whole' ? problem : { ...problem, ...sharing, maxChunks: partials(sharing.share) };
      const own = sharing === 'whole' ? inputs : ownAttentionInputs(part, inputs);
      return { ...own, ...(await runOn(device, splitSuite, part, own, caseStep(problem), traits)) };
    },
  };
}

function prefillPath(): Path {
  const problem = prefillProblem(shape, promptRows);
  const inputs = attentionInputs(problem, new Random(52));
  const partials = (share: Share) => localLanes(problem.maxChunks, share);
  return {
    name: 'attention_prefill',
    rowInfo: promptRows,
    heads: shape.heads,
    dim: shape.headDim,
    partials,
    ofLanes: true,
    async attend(device, traits, sharing) {
      const part: PrefillCase =
        sharing === 'whole'
          ? problem
          : { ...problem, ...sharing, lanes: partials(sharing.share), partialLayout: 'lane' };
      const own = sharing === 'whole' ? inputs : ownAttentionInputs(part, inputs);
      return { ...own, ...(await runOn(device, prefillSuite, part, own, caseStep(problem), traits)) };
    },
  };
}

const concatenated = (arrays: readonly HostArray[]): Float32Array<ArrayBuffer> =>
  Float32Array.from(arrays.flatMap((array) => [...array]));

/** The output of a path's rows: on one rank that shares nothing, or by way of `ranks` that share every sequence. */
async function output(
  device: Device,
  traits: DeviceTraits,
  path: Path,
  shared: { readonly ranks: number; readonly offsets: readonly number[] } | 'whole',
): Promise<Uint32Array> {
  const { rowInfo, heads, dim } = path;
  const rows = rowInfo.length;
  const outStride = heads * dim;
  const problem = { rows, heads, headDim: dim, outStride, positions: rowInfo.map((info) => info?.[0]) };
  const step = { rows, chunks: 11 };
  const merge = async (rest: Pick<MergeCase, 'mode' | 'share' | 'partials'>, inputs: HostArrays) => {
    const names = ['partial_o', 'partial_ml', 'row_info', 'chunk_offsets'].filter((name) => name in inputs);
    const given = Object.fromEntries(names.map((name) => [name, inputs[name]!]));
    return await runOn(device, mergeSuite, { ...problem, ...rest }, given, step, traits);
  };
  if (shared === 'whole') {
    const partials = await path.attend(device, traits, 'whole');
    const { out } = await merge({ partials: path.partials(WHOLE) }, partials);
    return bits(out!, 0, out!.length);
  }
  const travelled: { o: HostArray; ml: HostArray }[] = [];
  let home: HostArrays = {};
  const { ranks, offsets } = shared;
  for (let index = 0; index < ranks; index++) {
    const share = { ranks, index };
    const own = await path.attend(device, traits, { share, offsets });
    if (path.ofLanes) travelled.push({ o: own['partial_o']!, ml: own['partial_ml']! });
    else {
      const { out, out_ml: ml } = await merge({ mode: 'lanes', share, partials: path.partials(share) }, own);
      travelled.push({ o: out!, ml: ml! });
    }
    home = own;
  }
  const gathered = {
    ...home,
    partial_o: concatenated(travelled.map(({ o }) => o)),
    partial_ml: concatenated(travelled.map(({ ml }) => ml)),
  };
  const share = { ranks, index: 0 };
  const lanes = path.ofLanes ? path.partials(share) : MERGE_LANES / ranks;
  const { out } = await merge({ mode: 'home', share, partials: lanes }, gathered);
  return bits(out!, 0, out!.length);
}

for (const adapter of await testAdapters()) {
  describe(`ranks that share sequences give the bits of one rank on ${adapter.name}`, () => {
    test.each([splitPath(), prefillPath()])('$name', { timeout: 300_000 }, async (path) => {
      const device = await adapter.open();
      for (const traits of decisions(device)) {
        const expected = await output(device, traits, path, 'whole');
        const written = path.rowInfo.filter(Boolean).length * path.heads * path.dim;
        expect(new Float32Array(expected.buffer).filter((x) => !Number.isNaN(x))).toHaveLength(written);
        for (const ranks of RANKS) {
          for (const offsets of ranks === 1 ? OFFSETS.slice(2) : OFFSETS) {
            const got = await output(device, traits, path, { ranks, offsets });
            const same = got.length === expected.length && got.every((word, i) => word === expected[i]);
            expect(same, `${ranks} ranks, offsets ${offsets.join()}, software ${traits.software}`).toBe(true);
          }
        }
      }
      device.dispose();
    });
  });
}
