import { expect, test } from 'vitest';
import { describePlan } from './describe_plan.js';
import { makePlan } from '../make/make_plan.js';
import { gqaShape, mlaShape } from '../testing/shapes.js';

test('heads, columns, cache and rows of each rank', () => {
  const shape = gqaShape(4, { group: 7, vocabSize: 2000, columns: 4864 });
  expect(describePlan(makePlan('pp x tp', 4, shape, { layerCosts: [1, 1, 1, 1] }), shape)).toEqual([
    'plan pp x tp on 4 ranks',
    'layers 0-1:',
    '  rank 0: query heads 14 of 28 (kv heads 0-1), MLP columns 2,432 of 4,864, cache of kv heads 0-1',
    '  rank 1: query heads 14 of 28 (kv heads 2-3), MLP columns 2,432 of 4,864, cache of kv heads 2-3',
    'layers 2-3:',
    '  rank 2: query heads 14 of 28 (kv heads 0-1), MLP columns 2,432 of 4,864, cache of kv heads 0-1',
    '  rank 3: query heads 14 of 28 (kv heads 2-3), MLP columns 2,432 of 4,864, cache of kv heads 2-3',
    'embedding: rank 0 rows 0-1023, rank 1 rows 1024-1999',
    'head: rank 2 rows 0-1023, rank 3 rows 1024-1999',
  ]);
});

test('the latent, its lanes and experts', () => {
  const shape = { ...mlaShape(16), numExperts: 8, numLayers: 1 };
  expect(describePlan(makePlan('tp+sp', 2, shape), shape).slice(1, 4)).toEqual([
    'layer 0:',
    '  rank 0: query heads 8 of 16, MLP columns 256 of 512, experts 0-3, cache of the latent in lanes 0 2 4 6',
    '  rank 1: query heads 8 of 16, MLP columns 256 of 512, experts 4-7, cache of the latent in lanes 1 3 5 7',
  ]);
  expect(describePlan(makePlan('sp', 2, shape), shape).slice(2)).toEqual([
    '  rank 0: query heads all 16, MLP columns all 512, all experts, cache of the latent in lanes 0 2 4 6',
    '  rank 1: query heads all 16, MLP columns all 512, all experts, cache of the latent in lanes 1 3 5 7',
    'embedding: all 1,000 rows on ranks 0-1',
    'head: all 1,000 rows on rank 0',
  ]);
});
