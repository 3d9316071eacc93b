import { beforeAll, expect, test } from 'vitest';
import { testAdapters } from '../../../gpu/testing/adapters.js';
import { modelShape } from '../../../model/shape.js';
import { checkPlan, makePlan, type Plan } from '../../../placement/index.js';
import { randomFiles } from '../random_source.js';
import { firstDifference, runAlone, runBatched } from '../run_bits.js';

/** Stages of a plan may be of different kinds: each does with its layers what its kind says, and the bits are those of one rank. */
const adapter = (await testAdapters()).at(-1)!.name;
const model = { seed: 61 };
const shape = modelShape(randomFiles(model).model.config);
const given = { adapter, model, prefillChunk: 208, virtual: true };
const lengths = [1, 300];
const batch = [40, 270, 20];

let alone: Buffer[];
let batched: Buffer[];
beforeAll(async () => {
  alone = await runAlone(lengths, given);
  batched = await runBatched(batch, 2, given);
});

/** The first layers as `first` has them, the others as `then`, on ranks of their own. */
function joined(first: Plan, then: Plan): Plan {
  const by = first.worldSize;
  const cut = Math.ceil(shape.numLayers / 2);
  const [a, b] = [first.stages[0]!, then.stages[0]!];
  return {
    version: 1,
    policy: `${first.policy}, then ${then.policy}`,
    worldSize: by + then.worldSize,
    stages: [
      { ...a, layers: [0, cut] },
      {
        ...b,
        layers: [cut, shape.numLayers],
        shares: b.shares.map((share) => ({ ...share, rank: share.rank + by })),
      },
    ],
    embedding: first.embedding,
    head: then.head.map((rows) => ({ ...rows, rank: rows.rank + by })),
  };
}

test.each([
  ['tp', 'token'],
  ['token', 'sp'],
])('%s, then %s', { timeout: 120_000 }, async (first, then) => {
  const plan = joined(makePlan(first, 2, shape), makePlan(then, 2, shape));
  checkPlan(plan, shape);
  expect(firstDifference(await runAlone(lengths, { ...given, plan }), alone)).toBe(-1);
  expect(firstDifference(await runBatched(batch, 2, { ...given, plan }), batched)).toBe(-1);
});
