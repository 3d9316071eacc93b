import { describe, expect, test } from 'vitest';
import type { Device, DeviceTraits } from '../../src/gpu/device.js';
import { adaptersInTurn, decisions, testAdapters } from '../../src/gpu/testing/adapters.js';
import { drawn } from '../../src/gpu/testing/draw.js';
import type { HostArray, HostArrays } from '../../src/gpu/testing/kernel_case.js';
import { firstLane, heldChunks } from '../../src/base/kv_units.js';
import { HEAD_TABLE_TAIL, headTable, laneWord } from '../cache/head_tables.js';
import { MERGE_LANES } from '../cache/kv_cache.js';
import { type MergeCase, suite as mergeSuite } from './attention_merge/cases.js';
import type { HeadTables } from './attention_merge/index.js';
import { type LaneContributor, laneSources } from './attention_merge/lane_sources.js';
import { bits, runOn } from './fixture.js';
import { localChunks, localLanes } from './share.js';
import { copiesByLane, localIndex, type Sharing, slotsOf } from './share_fixture.js';
import {
  chunksOf,
  CONTEXTS,
  joinsOwn,
  lanesOf,
  mlaPrefillPath,
  mlaSplitPath,
  type Path,
  prefillPath,
  splitPath,
} from './testing/share_paths.js';

const RANKS = [1, 2, 3, 4, 5, 6, 7, 8, 11, 16];
/** chunk_offsets of the slots: the same for all, one for each. */
const OFFSETS = [CONTEXTS.map(() => 3), [5, 0, 7, 1, 2, 6, 4]];

test('ranks own every chunk once, in whole lanes', () => {
  for (const ranks of RANKS) {
    for (const offset of [0, 1, 6, 0xffffffff]) {
      const owners = Array.from({ length: ranks }, (_, index) => ({ share: { ranks, index }, offsets: [offset] }));
      for (let chunk = 0; chunk < 20; chunk++) {
        const own = owners.filter((sharing) => localIndex(sharing, 0, chunk) !== undefined);
        expect(own).toHaveLength(1);
        const { share } = own[0]!;
        const local = localIndex(own[0]!, 0, chunk)!;
        const lane = chunk % MERGE_LANES;
        expect(localIndex(own[0]!, 0, lane)).toBe(Math.floor(lane / ranks));
        expect(local).toBe(heldChunks(chunk, ranks, firstLane(ranks, share.index, offset)));
        expect(local).toBeLessThan(localChunks(chunk + 1, { ranks }));
        expect(Math.floor(lane / ranks)).toBeLessThan(localLanes(chunk + 1, { ranks }));
      }
    }
  }
});

function concatenated(arrays: readonly HostArray[]): Float32Array<ArrayBuffer> {
  const all = new Float32Array(arrays.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const array of arrays) {
    all.set(array, at);
    at += array.length;
  }
  return all;
}

/** Ranks that hold lanes of every sequence, and how things lie between them. */
interface Shared {
  readonly members: readonly Sharing[];
  readonly offsets: readonly number[];
  readonly bundleHeads: number;
  readonly queryPieces?: readonly number[];
}

/** The lane slots of a bundle that a rank holds. */
const slotsHere = (
  { share, masks }: Sharing,
  { heads, perHead, bundleHeads }: Path & Shared,
  bundle: number,
): number[] =>
  masks ? slotsOf(masks[Math.floor((bundle * bundleHeads) / (heads / perHead!.kvHeads))]!) : [share!.index];

/** The output of a path's rows: on one rank that shares nothing, or by way of ranks that each hold lanes of every sequence. */
async function output(
  device: Device,
  traits: DeviceTraits,
  path: Path,
  shared: Shared | 'whole',
): Promise<Uint32Array> {
  const { rowInfo, heads, dim, perHead, ofLanes, maxChunks } = path;
  const rows = rowInfo.length;
  const outStride = heads * dim;
  const positions = rowInfo.map((info) => info?.[0]);
  const problem = { rows, heads, headDim: dim, outStride, positions, partials: 1, ...(perHead && { perHead }) };
  const step = { rows, chunks: 11 };
  const merge = async (rest: Partial<MergeCase>, inputs: HostArrays) => {
    const tensors = ['partial_o', 'partial_ml', 'row_info', 'chunk_offsets', ...(perHead ? ['block_table'] : [])];
    const names = [...tensors, 'sources'].filter((name) => name in inputs);
    const given = Object.fromEntries(names.map((name) => [name, inputs[name]!]));
    return await runOn(device, mergeSuite, { ...problem, ...rest }, given, step, traits);
  };
  if (shared === 'whole') {
    const whole = await path.attend(device, traits, 'whole');
    const { out } = await merge({ partials: ofLanes ? lanesOf(maxChunks, {}) : maxChunks }, whole);
    return bits(out!, 0, out!.length);
  }
  const { members, offsets, bundleHeads, queryPieces } = shared;
  const travelled: { o: HostArray; ml: HostArray }[] = [];
  const contributors: LaneContributor[][] = Array.from({ length: heads / bundleHeads }, () => []);
  let home: HostArrays = {};
  let base = 0;
  for (const member of members) {
    const joins = joinsOwn(member);
    const lanes = joins ? 1 : lanesOf(maxChunks, member);
    const own = await path.attend(device, traits, {
      ...member,
      offsets,
      bundleHeads,
      ...(queryPieces && { queryPieces }),
    });
    if (ofLanes && !joins) travelled.push({ o: own['partial_o']!, ml: own['partial_ml']! });
    else {
      const partials = ofLanes ? lanesOf(maxChunks, member) : chunksOf(maxChunks, member);
      const local = { partials, ...(member.share && { share: member.share }) };
      const { out, out_ml: ml } = await merge({ mode: 'lanes', bundleHeads, lanes, ...local }, own);
      travelled.push({ o: out!, ml: ml! });
    }
    for (const [bundle, list] of contributors.entries()) {
      const slots = slotsHere(member, { ...path, ...shared }, bundle);
      list.push({ slots, lanes, base: base + bundle * lanes * rows * bundleHeads });
    }
    base += lanes * rows * heads;
    home = own;
  }
  const sharers = members[0]!.share?.ranks;
  const of = sharers === undefined ? withLaneWords(path, shared, contributors, home) : { contributors, inputs: home };
  const gathered = {
    ...of.inputs,
    partial_o: concatenated(travelled.map(({ o }) => o)),
    partial_ml: concatenated(travelled.map(({ ml }) => ml)),
    sources: laneSources(of.contributors, { rows, bundleHeads, ...(sharers !== undefined && { slots: sharers }) }),
  };
  const how = sharers === undefined ? { perHead: withTail(perHead!) } : { sharers };
  const { out } = await merge({ mode: 'home', bundleHeads, ...how }, gathered);
  return bits(out!, 0, out!.length);
}

const withTail = (tables: HeadTables): HeadTables => ({
  ...tables,
  tableStride: tables.tableStride + HEAD_TABLE_TAIL,
});

/** Copies of heads by their numbers, and tables that say who has which lane. */
function withLaneWords(
  { heads, perHead }: Path,
  { offsets, bundleHeads }: Shared,
  contributors: readonly (readonly LaneContributor[])[],
  inputs: HostArrays,
) {
  const { kvHeads, tableStride } = perHead!;
  const table = inputs['block_table'] as Uint32Array;
  const tailed = withTail(perHead!);
  const words = new Uint32Array((table.length / tableStride) * tailed.tableStride);
  for (let slot = 0; slot * kvHeads * tableStride < table.length; slot++) {
    for (let head = 0; head < kvHeads; head++) {
      const [from, to] = [perHead!, tailed].map((of) => headTable({ ...of, perHead: true }, slot, head));
      words.set(table.subarray(from, from! + tableStride), to);
      const copies = contributors[Math.floor((head * heads) / kvHeads / bundleHeads)]!;
      words[to! + tableStride] = laneWord(copiesByLane(copies, offsets[slot]));
    }
  }
  return {
    contributors: contributors.map((copies) => copies.map((copy, number) => ({ ...copy, slots: [number] }))),
    inputs: { ...inputs, block_table: words },
  };
}

/** Ranks that share sequences by residues; where heads have tables of their own, also by uneven lanes of each head. */
function sharings({ heads, bundleHeads, pieces, perHead }: Path): Shared[] {
  const residues = RANKS.flatMap((ranks) =>
    (ranks === 1 ? OFFSETS.slice(1) : OFFSETS).map((offsets): Shared => {
      const members = Array.from({ length: ranks }, (_, index) => ({ share: { ranks, index } }));
      const queryPieces = ranks === 2 ? pieces[0] : ranks > 6 ? pieces[1] : undefined;
      return { members, offsets, bundleHeads: ranks > 2 ? bundleHeads : heads, ...(queryPieces && { queryPieces }) };
    }),
  );
  const uneven = [
    [
      [0b10010010, 0b00000001],
      [0b01101101, 0b11111110],
    ],
    [
      [0b11111111, 0b00000010],
      [0b00000000, 0b11111100],
      [0b00000000, 0b00000001],
    ],
  ].flatMap((ranks) =>
    OFFSETS.map((offsets): Shared => ({ members: ranks.map((masks) => ({ masks })), offsets, bundleHeads })),
  );
  return perHead ? [...residues, ...uneven] : residues;
}

const quickest = (await testAdapters()).at(-1)!.name;
/** Ways to share, of each path. */
const DRAWN = 1;
for (const adapter of await adaptersInTurn('shared sequences')) {
  describe(`ranks that share sequences give the bits of one rank on ${adapter.name}`, () => {
    test.each([splitPath(), splitPath(true), prefillPath(), prefillPath(true), mlaSplitPath(), mlaPrefillPath()])(
      '$name',
      { timeout: 300_000 },
      async (path) => {
        const device = await adapter.open();
        // What a GPU would decide takes software adapters long: on one of them only.
        for (const traits of adapter.name === quickest ? decisions(device) : [device.traits]) {
          const expected = await output(device, traits, path, 'whole');
          const written = path.rowInfo.filter(Boolean).length * path.heads * path.dim;
          expect(new Float32Array(expected.buffer).filter((x) => !Number.isNaN(x))).toHaveLength(written);
          for (const shared of drawn(sharings(path), DRAWN, `${path.name} ${adapter.name} ${traits.software}`)) {
            const got = await output(device, traits, path, shared);
            const same = got.length === expected.length && got.every((word, i) => word === expected[i]);
            expect(same, `${JSON.stringify(shared)}, software ${traits.software}`).toBe(true);
          }
        }
        device.dispose();
      },
    );
  });
}
