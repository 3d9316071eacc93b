import { drawn } from '../../../gpu/testing/draw.js';
import { describe, expect, test } from 'vitest';
import { testAdapters } from '../../../gpu/testing/adapters.js';
import { compressionOptions } from '../../../model/compression/options.js';
import { modelSizes } from '../../../model/model_sizes.js';
import { modelShape } from '../../../model/shape.js';
import { arrangedPlan, planMemory, type Plan } from '../../../placement/index.js';
import { randomArrangement } from '../../../placement/testing/arrangements.js';
import { laneHolders } from '../../../placement/sequences/copies.js';
import { busiest } from '../../ranks/stats.js';
import { memoryOnPaper } from '../../ranks/rank_memory.js';
import { contractModels } from './cases.js';
import { openRunner } from '../open_runner.js';
import { firstDifference, runAlone, runBatched, somePrompt } from '../run_bits.js';
import { randomFiles } from '../random_source.js';

/** Heads as wholes, or copies that share something. */
const comeAndGo = drawn(['whole', 'lanes', 'sequences'] as const, 1, 'come and go');

const models = { llama: contractModels.biased, qwen3: contractModels.qwen3_tied };

function arranged(model: keyof typeof models, ranks: number, options: Parameters<typeof randomArrangement>[2]): Plan {
  const shape = modelShape(randomFiles(models[model]).model.config);
  return arrangedPlan(randomArrangement(shape, ranks, options), shape, options.sharing ?? 'lanes');
}

describe('heads anywhere: the bits of one rank', async () => {
  const adapter = (await testAdapters()).at(-1)!.name;

  test(
    'more ranks than MLP segments: the last hold heads only, in some layers nothing',
    { timeout: 300_000 },
    async () => {
      const options = { adapter, model: models.qwen3, weights: 'f32', kv: 'f32' } as const;
      const on = (rank: number) => [{ rank, share: 1 }];
      const shape = modelShape(randomFiles(models.qwen3).model.config);
      const placement = [[8, 3, 9, 8, 0, 1, 9, 2].map(on), [7, 3, 9, 5, 0, 1, 6, 2].map(on)];
      const file = { version: 1, policy: 'arranged', model: 'm', ranks: 10, mode: 'greedy', placement } as const;
      const plan = arrangedPlan(file, shape, 'lanes');
      expect(plan.stages.map(({ shares }) => shares.length)).toEqual([10, 9]);
      const one = await runAlone([300], options);
      expect(firstDifference(await runAlone([300], { ...options, plan, virtual: true }), one)).toBe(-1);
    },
  );

  test.runIf(comeAndGo.includes('whole'))('sequences that come and go in a batch', { timeout: 300_000 }, async () => {
    const options = { adapter, model: models.llama, weights: 'f16', kv: 'f32' } as const;
    const lengths = [300, 5, 257, 40, 16];
    const one = await runBatched(lengths, 3, options);
    const many = await runBatched(lengths, 3, { ...options, plan: arranged('llama', 3, { seed: 5 }), virtual: true });
    expect(firstDifference(many, one)).toBe(-1);
  });
});

describe('copied heads', async () => {
  const adapter = (await testAdapters()).at(-1)!.name;

  test.each(['lanes', 'sequences'] as const)('%s: the cache is shared out, as planned', async (sharing) => {
    const [slots, contextLength] = [4, 1500];
    const plan = arranged('llama', 3, { seed: 7, copies: 3, sharing });
    const { config } = randomFiles(models.llama).model;
    const options = { adapter, model: models.llama, plan, virtual: true, slots, contextLength };
    const { group, runner } = await openRunner(options);
    const held = group.ranks.map(({ facts }) => facts.kvBytes);
    try {
      for (const slot of [0, 2]) await runner.prefill(somePrompt(300 + slot), 20, { seed: 0 }, undefined, slot);
      const read = await runner.kvTokens();
      // Every head's entries, those of the next token included, lie on one rank.
      for (const layer of [0, 1, 2]) {
        expect(read.reduce((sum, layers) => sum + layers[layer]!, 0)).toBe(5 * (301 + 303));
      }
      const { utilisation, busiest_kv_tokens_per_step: most } = busiest(read);
      expect(most).toBe([0, 1, 2].reduce((sum, layer) => sum + Math.max(...read.map((layers) => layers[layer]!)), 0));
      expect(utilisation).toBeCloseTo((3 * 5 * 604) / (3 * most), 12);
    } finally {
      group.dispose();
    }
    const sizes = modelSizes(config, 'f32', 'f32');
    const planned = planMemory(plan, sizes, { contextLength, slots, block: 64 }).map(({ kvBytes }) => kvBytes);
    for (const [rank, bytes] of held.entries()) {
      // Blocks of whole chunks, where the context ends within one.
      expect(bytes).toBeGreaterThanOrEqual(planned[rank]!);
      expect(bytes).toBeLessThan(planned[rank]! * 1.1);
    }
    const one = 15 * slots * contextLength * sizes.layers[0]!.kvToken;
    const copies = plan.stages.flatMap(({ shares }) => shares.flatMap((share) => share.copies ?? [])).length;
    expect(copies).toBeGreaterThan(8);
    // Copies round up to sequences, or to the lanes of 6 chunks: less than if every copy had room for all.
    expect(held.reduce((sum, bytes) => sum + bytes)).toBeLessThan(one * 1.4);
  });

  test.each(['lanes', 'sequences'] as const)(
    '%s, prompts compressed: every copy has room for all sequences, as planned',
    async (sharing) => {
      const [slots, contextLength] = [4, 1536];
      const plan = arranged('llama', 3, { seed: 7, copies: 3, sharing });
      const { config } = randomFiles(models.llama).model;
      const compression = compressionOptions({ policy: 'ada', budget: 0.3 }, { numLayers: 3, numKvHeads: 5 });
      const runner = { slots, contextLength, prefillChunk: 64, kvType: 'f32', compression } as const;
      const held = await memoryOnPaper(plan, { config, type: 'f32' }, runner);
      const sizes = modelSizes(config, 'f32', 'f32');
      const planned = planMemory(plan, sizes, { contextLength, slots, block: 64, compressed: true });
      expect(held.map(({ kvBytes }) => kvBytes)).toEqual(planned.map(({ kvBytes }) => kvBytes));
      const heads = plan.stages.flatMap(({ shares }) => shares.map(({ kvHeads }) => kvHeads.length));
      const all = heads.reduce((a, b) => a + b) * slots * contextLength * sizes.layers[0]!.kvToken;
      expect(planned.reduce((sum, { kvBytes }) => sum + kvBytes, 0)).toBe(all);
    },
  );

  test.each(comeAndGo.filter((sharing) => sharing !== 'whole'))(
    '%s: sequences that come and go',
    { timeout: 300_000 },
    async (sharing) => {
      const options = { adapter, model: models.llama, weights: 'f16', kv: 'f32' } as const;
      // More chunks than lanes, too.
      const lengths = sharing === 'lanes' ? [2100, 5, 600, 40, 300] : [300, 5, 600, 257, 40, 16, 520];
      const one = await runBatched(lengths, 4, options);
      const plan = arranged('llama', 3, { seed: 7, copies: 3, sharing });
      const many = await runBatched(lengths, 4, { ...options, plan, virtual: true });
      expect(firstDifference(many, one)).toBe(-1);
    },
  );

  test.each(drawn([undefined, 'ada'] as const, 1, 'sequences that end'))(
    'sequences that end: those left are shared out again, and go on as before (compressed: %s)',
    { timeout: 300_000 },
    async (policy) => {
      const shape = modelShape(randomFiles(models.llama).model.config);
      const halves = [0, 1].map((rank) => ({ rank, share: 0.5 }));
      // In the second layer the ranks hold all heads, in the others one each for itself.
      const placement = [0, 1, 2].map((layer) =>
        [0, 1, 2, 3, 4].map((head) => (layer === 1 || head % 2 === 0 ? halves : [{ rank: head >> 1, share: 1 }])),
      );
      const file = { version: 1, policy: 'arranged', model: 'm', ranks: 2, mode: 'wrap', placement } as const;
      const compression =
        policy &&
        compressionOptions(
          { policy, budget: 0.3, window: 16, poolWidth: 5 },
          { numLayers: shape.numLayers, numKvHeads: shape.kvHeads },
        );
      const options = {
        adapter,
        model: models.llama,
        slots: 4,
        contextLength: 500,
        ...(compression && { compression }),
      } as const;
      const run = async (plan: Plan | undefined) => {
        const { group, runner } = await openRunner({ ...options, ...(plan && { plan }) });
        try {
          const rows: Buffer[] = [];
          const steps = async (count: number, slots: readonly number[]) => {
            for (let step = 0; step < count; step++) {
              await (step === 0 && rows.length === 0 ? runner.sampleFirst() : runner.step());
              for (const slot of slots) rows.push(Buffer.from((await runner.slotLogits(slot)).slice().buffer));
            }
          };
          for (const slot of [0, 1, 2, 3]) {
            await runner.prefill(somePrompt(306 + slot, slot), 150, { seed: 0 }, undefined, slot);
          }
          await steps(2, [0, 1, 2, 3]);
          const before = runner.copyMoves;
          // By turns: one of the ranks is left with both of a head that was shared out evenly.
          await runner.release(1);
          await runner.release(3);
          const lopsided = busiest(await runner.kvTokens());
          await steps(3, [0, 2]);
          const shared = busiest(await runner.kvTokens());
          // Another takes their place, and some move again.
          await runner.prefill(somePrompt(400), 60, { seed: 0 }, undefined, 1);
          await runner.sampleFirst();
          await runner.release(0);
          await steps(12, [1, 2]);
          return { rows, moves: [before, runner.copyMoves], lopsided, shared };
        } finally {
          group.dispose();
        }
      };
      const one = await run(undefined);
      const two = await run(arrangedPlan(file, shape, 'sequences'));
      expect(firstDifference(two.rows, one.rows)).toBe(-1);
      expect(one.moves).toEqual([0, 0]);
      expect(two.moves[0]).toBe(0);
      expect(two.moves[1]).toBeGreaterThan(1);
      expect(two.shared.utilisation).toBeGreaterThan(two.lopsided.utilisation);
    },
  );

  const compressed = [
    ['ada', 'sequences'],
    ['static', 'sequences'],
    ['ada', 'lanes'],
  ] as const;
  test.each(drawn(compressed, 1, 'compressed'))(
    'prompts that are compressed (%s), copies that share %s, as on one rank',
    { timeout: 300_000 },
    async (policy, sharing) => {
      const loads = [
        [40, 60, 110, 30, 90],
        [90, 10, 40, 140, 20],
        [20, 30, 200, 10, 60],
      ];
      const counts = { numLayers: 3, numKvHeads: 5 };
      const compression = compressionOptions(
        { policy, budget: sharing === 'lanes' ? 0.5 : 0.3, window: 16, poolWidth: 5, loads },
        counts,
      );
      const options = { adapter, model: models.llama, weights: 'f16', kv: 'f16', compression } as const;
      // Of 1200 tokens, some heads keep several chunks.
      const lengths = sharing === 'lanes' ? [1200, 5, 300] : [300, 5, 400, 257, 40, 300];
      const one = await runBatched(lengths, 3, options);
      const plan = arranged('llama', 3, { seed: 7, copies: 3, sharing });
      const many = await runBatched(lengths, 3, { ...options, plan, virtual: true });
      expect(firstDifference(many, one)).toBe(-1);
    },
  );

  test(
    'lanes are shared anew by what each prompt kept: the busiest rank reads less than by the plan, with the bits of one rank',
    { timeout: 300_000 },
    async () => {
      const shape = modelShape(randomFiles(models.llama).model.config);
      const all = [0, 1, 2].map((rank) => ({ rank, share: 1 / 3 }));
      // As even as can be, if all heads kept as much.
      const placement = [0, 1, 2].map(() => [all, all, ...[0, 1, 2].map((rank) => [{ rank, share: 1 }])]);
      const file = { version: 1, policy: 'arranged', model: 'm', ranks: 3, mode: 'wrap', placement } as const;
      const plan = arrangedPlan(file, shape, 'lanes');
      const loads = [
        [140, 60, 20, 130, 60],
        [60, 90, 150, 20, 90],
        [50, 200, 60, 10, 130],
      ];
      const counts = { numLayers: 3, numKvHeads: 5 };
      const options = {
        adapter,
        model: models.llama,
        weights: 'f16',
        kv: 'f32',
        compression: compressionOptions({ policy: 'static', budget: 0.7, window: 16, loads }, counts),
        slots: 2,
        contextLength: 1700,
      } as const;
      const run = async (ranks: Plan | undefined) => {
        const { group, runner } = await openRunner({ ...options, ...(ranks && { plan: ranks, virtual: true }) });
        try {
          const rows: Buffer[] = [];
          const kept: number[][][] = [];
          for (const slot of [0, 1]) {
            await runner.prefill(somePrompt(1600 - 700 * slot, slot), 60, { seed: 0 }, undefined, slot);
            const own: number[][] = [[], [], []];
            for (const { layer, head, entries } of (await runner.cacheUse(slot)).flatMap((use) => use.kept)) {
              own[layer]![head] = entries;
            }
            kept.push(own);
          }
          const read = await runner.kvTokens();
          // Chunks end meanwhile, and tokens go on in other lanes.
          for (let step = 0; step < 40; step++) {
            await (step === 0 ? runner.sampleFirst() : runner.step());
            for (const slot of [0, 1]) rows.push(Buffer.from((await runner.slotLogits(slot)).slice().buffer));
          }
          return { rows, kept, read };
        } finally {
          group.dispose();
        }
      };
      const [one, many] = [await run(undefined), await run(plan)];
      expect(many.kept).toEqual(one.kept);
      expect(firstDifference(many.rows, one.rows)).toBe(-1);
      expect(many.kept.flat(2).some((entries) => entries % 256 > 216)).toBe(true);
      const planned = [0, 1, 2].map((layer) => {
        const tokens = [0, 0, 0];
        for (const [slot, own] of many.kept.entries()) {
          for (const [head, entries] of own[layer]!.entries()) {
            // With the token that is fed next.
            for (let entry = 0; entry <= entries; entry++) {
              const rank = head < 2 ? laneHolders(all)[(Math.floor(entry / 256) + slot) % 8]! : head - 2;
              tokens[rank]!++;
            }
          }
        }
        return tokens;
      });
      expect(many.read.flat().reduce((a, b) => a + b)).toBe(planned.flat().reduce((a, b) => a + b));
      const before = planned.map((tokens) => Math.max(...tokens)).reduce((a, b) => a + b);
      const { utilisation, busiest_kv_tokens_per_step: after } = busiest(many.read);
      expect(after).toBeLessThan(0.9 * before);
      expect(utilisation).toBeGreaterThan(0.9);
    },
  );
});
