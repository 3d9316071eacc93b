import { describe, expect, test } from 'vitest';
import { Random } from '../../../src/base/random.js';
import { decisions, describeOnAdapters } from '../../../src/gpu/testing/adapters.js';
import { BASELINE_TRAITS, testKernel } from '../../../src/gpu/testing/test_kernel.js';
import { attentionCase, attentionInputs, bits, caseStep, type RowInfo, runOn } from '../fixture.js';
import { suite as mergeSuite } from '../attention_merge/cases.js';
import { suite } from './cases.js';
import { attentionSplit } from './index.js';

await testKernel(suite);

describe('attention_split', () => {
  const problem = attentionCase({ heads: 8, kvHeads: 4, headDim: 32, kvType: 'f16', block: 16 }, [
    [299, 0],
    undefined,
    [40, 1],
  ]);

  test('refuses shapes it has no layout for', () => {
    expect(() => attentionSplit.plan({ ...problem, headDim: 36 }, BASELINE_TRAITS)).toThrow(
      /attention_split: head_dim 36/,
    );
    expect(() => attentionSplit.plan({ ...problem, heads: 6 }, BASELINE_TRAITS)).toThrow(/6 query heads/);
    expect(() => attentionSplit.plan({ ...problem, block: 48 }, BASELINE_TRAITS)).toThrow(/block of 48/);
    expect(() => attentionSplit.plan({ ...problem, qStride: 128 }, BASELINE_TRAITS)).toThrow(/qStride 128/);
    expect(() => attentionSplit.plan({ ...problem, finishes: true }, BASELINE_TRAITS)).toThrow(
      /finishes with maxChunks/,
    );
    expect(() => attentionSplit.plan({ ...problem, share: { ranks: 1.5, index: 0 } }, BASELINE_TRAITS)).toThrow(
      /attention_split: 1.5 ranks .* an integer of at least 1/,
    );
    expect(() => attentionSplit.plan({ ...problem, share: { ranks: 2, index: 2 } }, BASELINE_TRAITS)).toThrow(
      /index 2 of 2 ranks/,
    );
    for (const queryPieces of [[3, 5], [2, 2], [4, -2, 6], [], [2, 2, 2, 2, 0, 0, 0, 0, 0]]) {
      expect(() => attentionSplit.plan({ ...problem, queryPieces }, BASELINE_TRAITS), `${queryPieces.join()}`).toThrow(
        /queryPieces \[.*\]; expected 1 to 8 numbers of heads that add up to 8, each a multiple of the 2 that share/,
      );
    }
    // Rows have room for the widest piece alone.
    const narrow = { ...problem, qStride: 192 };
    expect(() => attentionSplit.plan({ ...narrow, queryPieces: [6, 2] }, BASELINE_TRAITS)).not.toThrow();
    expect(() => attentionSplit.plan({ ...narrow, queryPieces: [8, 0] }, BASELINE_TRAITS)).toThrow(/qStride 192/);
    expect(() => attentionSplit.plan({ ...problem, cacheKvHeads: 4, firstKvHead: 1 }, BASELINE_TRAITS)).toThrow(
      /kv heads 1 to 4 of a cache of 4/,
    );
  });
});

await describeOnAdapters('attention_split', (device) => {
  const problem = attentionCase({ heads: 8, kvHeads: 4, headDim: 32, kvType: 'f16', block: 16 }, [
    [299, 0],
    undefined,
    [40, 1],
  ]);
  const inputs = attentionInputs(problem, new Random(5));
  const { heads, headDim, maxChunks } = problem;

  test('writes the partials of chunks with keys and no others', async () => {
    for (const traits of decisions(device())) {
      // One chunk more than any row has.
      const step = { rows: 3, chunks: maxChunks };
      const { partial_o: o, partial_ml: ml } = await runOn(device(), suite, problem, inputs, step, traits);
      for (const [row, info] of problem.rowInfo.entries()) {
        for (let at = 0; at < heads * maxChunks; at++) {
          const written = info !== undefined && (at % maxChunks) * 256 <= info[0];
          const index = row * heads * maxChunks + at;
          expect(Number.isNaN(ml![index * 2]), `row ${row}, partial ${at}`).toBe(!written);
          const units = o!.subarray(index * headDim, (index + 1) * headDim);
          expect([...units].filter(Number.isNaN).length, `row ${row}, partial ${at}`).toBe(written ? 0 : headDim);
        }
      }
    }
  });

  test("a row's bits don't depend on the batch", async () => {
    for (const traits of decisions(device())) {
      const batch = await runOn(device(), suite, problem, inputs, caseStep(problem), traits);
      for (const row of [0, 2]) {
        const alone = { ...problem, rows: 1, rowInfo: [problem.rowInfo[row]] };
        const ownInputs = {
          ...inputs,
          q: (inputs['q'] as Float32Array).slice(row * problem.qStride, (row + 1) * problem.qStride),
          row_info: (inputs['row_info'] as Uint32Array).slice(row * 2, row * 2 + 2),
        };
        const own = await runOn(device(), suite, alone, ownInputs, caseStep(alone), traits);
        for (const [name, width] of [
          ['partial_o', headDim],
          ['partial_ml', 2],
        ] as const) {
          const length = heads * maxChunks * width;
          // Unwritten elements hold the same NaN bits in both.
          expect(bits(own[name]!, 0, length), `${name} of row ${row}`).toEqual(
            bits(batch[name]!, row * length, length),
          );
        }
      }
    }
  });

  test("a head's bits don't depend on how many heads the rank holds", async () => {
    for (const traits of decisions(device())) {
      const whole = await runOn(device(), suite, problem, inputs, caseStep(problem), traits);
      // The second of two ranks: kv heads 2 and 3 with their queries.
      const rank = { ...problem, heads: 4, kvHeads: 2, qStride: 128 };
      const blockWords = inputs['k_cache']!.length / ((inputs['k_cache']!.length * 2) / (4 * headDim * problem.block));
      const half = (cache: Uint32Array) => cache.filter((_, i) => i % blockWords >= blockWords / 2);
      const rankInputs = {
        ...inputs,
        q: (inputs['q'] as Float32Array).filter((_, i) => i % 256 >= 128),
        k_cache: half(inputs['k_cache'] as Uint32Array),
        v_cache: half(inputs['v_cache'] as Uint32Array),
      };
      const part = await runOn(device(), suite, rank, rankInputs, caseStep(rank), traits);
      // The same heads on a rank that holds all kv heads' cache.
      const lent = { ...rank, cacheKvHeads: 4, firstKvHead: 2 };
      const lentInputs = { ...inputs, q: rankInputs.q };
      const other = await runOn(device(), suite, lent, lentInputs, caseStep(lent), traits);
      for (const [name, width] of [
        ['partial_o', headDim],
        ['partial_ml', 2],
      ] as const) {
        for (const row of [0, 2]) {
          const length = 4 * maxChunks * width;
          const expected = bits(whole[name]!, row * 2 * length + length, length);
          expect(bits(part[name]!, row * length, length), `${name} of row ${row}`).toEqual(expected);
          expect(bits(other[name]!, row * length, length), `${name} of row ${row}, all heads cached`).toEqual(expected);
        }
      }
    }
  });

  test('a step of one chunk that finishes gives the bits of its partials merged, on a software adapter', async () => {
    const traits = { ...device().traits, software: true };
    const rowInfo: readonly RowInfo[] = [[199, 0], undefined, [40, 1], [255, 2]];
    const shape = { headDim: 32, kvType: 'f16', block: 16 } as const;
    for (const one of [
      attentionCase({ ...shape, heads: 8, kvHeads: 4 }, rowInfo),
      // Tiles beyond the group, sinks, and a window that cuts.
      attentionCase({ ...shape, heads: 6, kvHeads: 1, sinks: true, slidingWindow: 100 }, rowInfo),
    ]) {
      const step = caseStep(one);
      expect(step.chunks).toBe(1);
      const given = attentionInputs(one, new Random(6));
      const { partial_o, partial_ml } = await runOn(device(), suite, one, given, step, traits);
      const { rows, heads, slidingWindow, maxChunks: partials } = one;
      const windowed = slidingWindow !== undefined && { slidingWindow };
      const merge = { rows, heads, headDim, partials, outStride: heads * headDim, positions: [], ...windowed };
      const states = { partial_o: partial_o!, partial_ml: partial_ml!, row_info: given['row_info']! };
      const { out } = await runOn(device(), mergeSuite, merge, states, step, traits);
      const finished = { ...one, maxChunks: 1, finishes: true };
      const { partial_o: own } = await runOn(device(), suite, finished, given, step, traits);
      for (const [row, info] of rowInfo.entries()) {
        const width = merge.outStride;
        const got = bits(own!, row * width, width);
        if (info) expect(got, `row ${row}`).toEqual(bits(out!, row * width, width));
        else expect(new Float32Array(got.buffer).every(Number.isNaN)).toBe(true);
      }
    }
  });
});
