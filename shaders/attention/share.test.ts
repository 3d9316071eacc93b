import { describe, expect, test } from 'vitest';
import type { Device, DeviceTraits } from '../../src/gpu/device.js';
import { testAdapters } from '../../src/gpu/testing/adapters.js';
import type { HostArray, HostArrays } from '../../src/gpu/testing/kernel_case.js';
import { MERGE_LANES } from '../cache/kv_cache.js';
import { type MergeCase, suite as mergeSuite } from './attention_merge/cases.js';
import { bits, decisions, runOn } from './fixture.js';
import { localChunks, localLanes, ownBase, WHOLE } from './share.js';
import { localIndex } from './share_fixture.js';
import { CONTEXTS, mlaPrefillPath, mlaSplitPath, type Path, prefillPath, splitPath } from './share_paths.js';

const RANKS = [1, 2, 4, 8];
/** chunk_offsets of the slots: the same for all, one for each. */
const OFFSETS = [CONTEXTS.map(() => 3), [5, 0, 7, 1, 2, 6, 4]];

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

function concatenated(arrays: readonly HostArray[]): Float32Array<ArrayBuffer> {
  const all = new Float32Array(arrays.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const array of arrays) {
    all.set(array, at);
    at += array.length;
  }
  return all;
}

/** The output of a path's rows: on one rank that shares nothing, or by way of `ranks` that share every sequence. */
async function output(
  device: Device,
  traits: DeviceTraits,
  path: Path,
  shared: { readonly ranks: number; readonly offsets: readonly number[] } | 'whole',
): Promise<Uint32Array> {
  const { rowInfo, heads, dim, perHead } = path;
  const rows = rowInfo.length;
  const outStride = heads * dim;
  const positions = rowInfo.map((info) => info?.[0]);
  const problem = { rows, heads, headDim: dim, outStride, positions, ...(perHead && { perHead }) };
  const step = { rows, chunks: 11 };
  const merge = async (rest: Pick<MergeCase, 'mode' | 'share' | 'partials'>, inputs: HostArrays) => {
    const tensors = ['partial_o', 'partial_ml', 'row_info', 'chunk_offsets', ...(perHead ? ['block_table'] : [])];
    const names = tensors.filter((name) => name in inputs);
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

const adapters = await testAdapters();
for (const adapter of adapters) {
  describe(`ranks that share sequences give the bits of one rank on ${adapter.name}`, () => {
    test.each([splitPath(), splitPath(true), prefillPath(), mlaSplitPath(), mlaPrefillPath()])(
      '$name',
      { timeout: 300_000 },
      async (path) => {
        const device = await adapter.open();
        // What a GPU would decide takes software adapters long: on one of them only.
        for (const traits of adapter === adapters.at(-1) ? decisions(device) : [device.traits]) {
          const expected = await output(device, traits, path, 'whole');
          const written = path.rowInfo.filter(Boolean).length * path.heads * path.dim;
          expect(new Float32Array(expected.buffer).filter((x) => !Number.isNaN(x))).toHaveLength(written);
          for (const ranks of RANKS) {
            for (const offsets of ranks === 1 ? OFFSETS.slice(1) : OFFSETS) {
              const got = await output(device, traits, path, { ranks, offsets });
              const same = got.length === expected.length && got.every((word, i) => word === expected[i]);
              expect(same, `${ranks} ranks, offsets ${offsets.join()}, software ${traits.software}`).toBe(true);
            }
          }
        }
        device.dispose();
      },
    );
  });
}
