import { describe, expect, test } from 'vitest';
import { Random } from '../../src/base/random.js';
import type { Device, DeviceTraits } from '../../src/gpu/device.js';
import { adaptersInTurn, decisions } from '../../src/gpu/testing/adapters.js';
import type { HostArrays } from '../../src/gpu/testing/kernel_case.js';
import { HEAD_TABLE_LEAD } from '../cache/head_tables.js';
import { suite as mergeSuite } from './attention_merge/cases.js';
import { prefillProblem, promptRows, suite as prefillSuite } from './attention_prefill/cases.js';
import { suite as splitSuite } from './attention_split/cases.js';
import {
  attentionCase,
  type AttentionCase,
  attentionInputs,
  bits,
  caseStep,
  ownTables,
  type RowInfo,
  runOn,
} from './fixture.js';

const shape = { heads: 4, kvHeads: 2, headDim: 16, kvType: 'f16', block: 64 } as const;
const generated: RowInfo[] = [[2600, 0], undefined, [255, 1], [256, 2]];
const prompt = promptRows([
  { slot: 0, from: 2598, count: 3 },
  { slot: 1, from: 250, count: 6 },
]);

interface Path {
  readonly name: string;
  readonly problem: AttentionCase & { readonly lanes: number };
  readonly partials: number;
  readonly attend: typeof splitSuite | typeof prefillSuite;
}

const split = attentionCase(shape, generated);
const prefill = prefillProblem(shape, prompt);
const paths: Path[] = [
  { name: 'attention_split', problem: { ...split, lanes: 0 }, partials: split.maxChunks, attend: splitSuite },
  { name: 'attention_prefill', problem: prefill, partials: prefill.lanes, attend: prefillSuite },
];

/** Merged rows of a problem, as bits: [row][head][dim]. */
async function output(device: Device, traits: DeviceTraits, path: Path, problem: Path['problem'], inputs: HostArrays) {
  const { rows, heads, kvHeads, headDim, tableStride, block, perHead } = problem;
  const suite = path.attend as typeof prefillSuite;
  const step = caseStep(path.problem);
  const partials = await runOn(device, suite, problem, inputs, step, traits);
  const given = {
    ...partials,
    row_info: inputs['row_info']!,
    ...(perHead ? { block_table: inputs['block_table']! } : {}),
  };
  const merge = {
    rows,
    heads,
    headDim,
    partials: path.partials,
    outStride: heads * headDim,
    positions: problem.rowInfo.map((info) => info?.[0]),
    ...(perHead ? { perHead: { kvHeads, tableStride, block } } : {}),
  };
  const { out } = await runOn(device, mergeSuite, merge, given, step, traits);
  return bits(out!, 0, out!.length);
}

/** The same cache with a table for each head, of which nothing, or the given entries, was evicted. */
function withHeadTables(path: Path, inputs: HostArrays, evicted: AttentionCase['evicted']) {
  const problem = {
    ...path.problem,
    perHead: true,
    tableStride: path.problem.tableStride + HEAD_TABLE_LEAD,
    ...(evicted && { evicted }),
  };
  const lengths: number[] = [];
  for (const info of problem.rowInfo) if (info) lengths[info[1]] = Math.max(lengths[info[1]] ?? 0, info[0] + 1);
  return {
    problem,
    inputs: { ...inputs, block_table: ownTables(problem, inputs['block_table'] as Uint32Array, lengths) },
  };
}

for (const adapter of await adaptersInTurn('head tables')) {
  describe(`block tables of heads on ${adapter.name}`, () => {
    test.each(paths)('$name: where nothing is evicted, the bits of one table', { timeout: 240_000 }, async (path) => {
      const device = await adapter.open();
      const inputs = attentionInputs(path.problem, new Random(61));
      const own = withHeadTables(path, inputs, undefined);
      for (const traits of decisions(device)) {
        const expected = await output(device, traits, path, path.problem, inputs);
        expect(await output(device, traits, path, own.problem, own.inputs)).toEqual(expected);
      }
      device.dispose();
    });

    test.each(paths)(
      '$name: a head has the bits of a cache as short as its own',
      { timeout: 240_000 },
      async (path) => {
        const device = await adapter.open();
        const inputs = attentionInputs(path.problem, new Random(62));
        const evicted = [
          [2000, 7],
          [0, 200],
        ];
        const own = withHeadTables(path, inputs, evicted);
        const { rows, heads, headDim } = path.problem;
        const got = await output(device, device.traits, path, own.problem, own.inputs);
        for (let head = 0; head < heads; head++) {
          const gone = (slot: number): number => evicted[slot]?.[Math.floor(head / 2)] ?? 0;
          const rowInfo = path.problem.rowInfo.map((info): RowInfo => info && [info[0] - gone(info[1]), info[1]]);
          const shorter = { ...path.problem, rowInfo };
          const shorterInputs = {
            ...inputs,
            row_info: Uint32Array.from(inputs['row_info']!, (word, i) =>
              i % 2 ? word : (rowInfo[i / 2]?.[0] ?? word),
            ),
          };
          const expected = await output(device, device.traits, path, shorter, shorterInputs);
          for (let row = 0; row < rows; row++) {
            const at = (row * heads + head) * headDim;
            expect(got.slice(at, at + headDim), `row ${row}, head ${head}`).toEqual(expected.slice(at, at + headDim));
          }
        }
        device.dispose();
      },
    );
  });
}
