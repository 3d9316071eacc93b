import { describe, expect, test } from 'vitest';
import { SplitkvError } from '../../base/errors.js';
import { arrangedPlan } from './arranged_plan.js';
import type { ArrangementFile } from '../../arrangement/index.js';
import { CopyOwners } from '../sequences/copies.js';
import { checkPlan } from '../check/check_plan.js';
import { type ModelShape, pipelineDepth, type Plan, type RankShare } from '../plan.js';
import { parsePlan } from '../plan/parse_plan.js';
import { parsePlanFile } from '../plan/parse_plan.js';
import { makePlan } from './make_plan.js';
import { randomArrangement } from '../testing/arrangements.js';
import { gqaShape, mlaShape } from '../testing/shapes.js';

const file = (placement: ArrangementFile['placement'], ranks: number): ArrangementFile => ({
  version: 1,
  policy: 'arranged',
  model: 'm',
  ranks,
  mode: 'wrap',
  placement,
});
const on = (rank: number) => [{ rank, share: 1 }];

function refusal(run: () => unknown): string {
  try {
    run();
  } catch (error) {
    expect(error).toBeInstanceOf(SplitkvError);
    expect((error as SplitkvError).code).toBe('usage');
    return (error as Error).message;
  }
  return 'nothing refused';
}

describe('the plan of an arrangement', () => {
  const shape = gqaShape(4, { numLayers: 3, vocabSize: 320 });

  test('every rank holds its heads, copies included; equal layers are one stage', () => {
    const crossed = [
      on(1),
      on(0),
      [
        { rank: 0, share: 0.25 },
        { rank: 1, share: 0.75 },
      ],
      on(0),
    ];
    const plan = arrangedPlan(file([crossed, crossed, [on(1), on(1), on(1), on(1)]], 2), shape, 'sequences');
    checkPlan(plan, shape);
    const all = [0, 1, 2, 3, 4, 5, 6, 7];
    const held = { experts: [], lanes: all };
    expect(plan).toEqual({
      version: 1,
      policy: 'arranged',
      worldSize: 2,
      sharing: 'sequences',
      stages: [
        {
          layers: [0, 2],
          kind: 'arranged',
          shares: [
            {
              rank: 0,
              heads: [1, 2, 3],
              kvHeads: [1, 2, 3],
              copies: [{ head: 2, share: 0.25 }],
              mlp: all.slice(0, 4),
              ...held,
            },
            { rank: 1, heads: [0, 2], kvHeads: [0, 2], copies: [{ head: 2, share: 0.75 }], mlp: all.slice(4), ...held },
          ],
        },
        {
          layers: [2, 3],
          kind: 'arranged',
          shares: [
            { rank: 0, heads: [], kvHeads: [], mlp: all.slice(0, 4), ...held },
            { rank: 1, heads: [0, 1, 2, 3], kvHeads: [0, 1, 2, 3], mlp: all.slice(4), ...held },
          ],
        },
      ],
      embedding: makePlan('tp', 2, shape).embedding,
      head: makePlan('tp', 2, shape).head,
    });
    expect(parsePlan(JSON.stringify(plan))).toEqual(plan);
    // Both ranks work on every layer: there is no pipeline to fill.
    expect(pipelineDepth(plan)).toBe(1);
    expect(plan.stages.every(({ kind }) => kind === 'arranged')).toBe(true);
  });

  test('random arrangements on 1 to 12 ranks are legal, or leave a rank idle', () => {
    let legal = 0;
    for (let seed = 0; seed < 60; seed++) {
      const ranks = 1 + (seed % 12);
      const model = gqaShape(1 + (seed % 9), { numLayers: 4, columns: 16 + 48 * (seed % 11) });
      const wanted = randomArrangement(model, ranks, { seed, copies: seed % 4 });
      let plan: Plan;
      try {
        plan = arrangedPlan(wanted, model, 'lanes');
      } catch (error) {
        expect((error as Error).message).toContain('has no head in any layer');
        continue;
      }
      checkPlan(plan, model);
      legal++;
      for (const [layer, heads] of wanted.placement.entries()) {
        const { shares } = plan.stages.find(({ layers: [first, end] }) => first <= layer && layer < end)!;
        for (const [head, copies] of heads.entries()) {
          const holders = shares.filter((share) => share.heads.includes(head)).map(({ rank }) => rank);
          expect(holders).toEqual(copies.map(({ rank }) => rank));
        }
      }
    }
    expect(legal).toBeGreaterThan(40);
  });

  test.each<[string, ArrangementFile, ModelShape]>([
    ['a latent has no kv heads to arrange', file([[on(0)]], 1), mlaShape(8)],
    ['1 layers of 4 kv heads; this model has 3 of 4', file([[on(0), on(0), on(0), on(0)]], 1), shape],
    [
      'rank 8 of 9 has no head in any layer',
      file(
        Array.from({ length: 3 }, () => [on(0), on(0), on(1), on(0)]),
        9,
      ),
      shape,
    ],
  ])('refuses: %s', (message, wrong, model) => {
    expect(refusal(() => arrangedPlan(wrong, model, 'lanes'))).toContain(message);
  });

  test('a file is read as what it is', () => {
    const arrangement = file([[on(0)]], 1);
    expect(parsePlanFile(JSON.stringify(arrangement))).toEqual(arrangement);
    const plan = makePlan('tp', 2, shape);
    expect(parsePlanFile(plan)).toEqual(plan);
    expect(refusal(() => parsePlanFile({ version: 1, policy: 'arranged' }, 'p.json'))).toContain(
      'p.json.model is missing',
    );
    expect(refusal(() => parsePlanFile({ version: 1, policy: 'tp' }, 'p.json'))).toContain(
      'p.json.worldSize is missing',
    );
    expect(refusal(() => makePlan('arranged', 2, shape))).toContain('splitkv arrange --out');
  });
});

describe('arranged stages that are refused', () => {
  const shape = gqaShape(4, { numLayers: 1, vocabSize: 320 });
  type Shares = { -readonly [K in keyof RankShare]: RankShare[K] }[];
  const change = (edit: (shares: Shares, plan: { sharing?: string }) => void, of: ModelShape = shape): string => {
    const both = [
      { rank: 0, share: 0.5 },
      { rank: 1, share: 0.5 },
    ];
    const plan = structuredClone(arrangedPlan(file([[on(0), on(1), both, on(0)]], 2), shape, 'lanes'));
    checkPlan(plan, shape);
    edit(plan.stages[0]!.shares as Shares, plan as { sharing?: string });
    return refusal(() => checkPlan(plan, of));
  };

  test.each<[string, Parameters<typeof change>[0]]>([
    ['attention segment 1 is held by no rank', (s) => (s[1]!.heads = s[1]!.kvHeads = [2])],
    ['kv head 1 is held by ranks 0 and 1: list it', (s) => (s[0]!.heads = s[0]!.kvHeads = [0, 1, 2, 3])],
    ['add up to 1.25; expected 1', (s) => (s[0]!.copies = [{ head: 2, share: 0.75 }])],
    ["a copy's share is 1;", (s) => (s[0]!.copies = [{ head: 2, share: 1 }])],
    ['list it in the copies of each', (s) => delete s[0]!.copies],
    [
      'which no other rank holds',
      (s) =>
        (s[0]!.copies = [
          { head: 0, share: 0.5 },
          { head: 2, share: 0.5 },
        ]),
    ],
    [
      "which isn't among its heads",
      (s) =>
        (s[0]!.copies = [
          { head: 1, share: 0.5 },
          { head: 2, share: 0.5 },
        ]),
    ],
    [
      'has 0 after 2; list each once',
      (s) =>
        (s[0]!.copies = [
          { head: 2, share: 0.5 },
          { head: 0, share: 0.5 },
        ]),
    ],
    ['write kvHeads 0, 2-3', (s) => (s[0]!.kvHeads = [0, 1, 2, 3])],
    ['a rank has all 8', (s) => (s[0]!.lanes = [0, 2, 4, 6])],
    ['MLP segment 0 is held by no rank', (s) => (s[0]!.mlp = [1, 2, 3])],
    ['MLP segment 3 is held by ranks 0 and 1', (s) => (s[1]!.mlp = [3, 4, 5, 6, 7])],
    ['mlp 0, 2-3 have a gap', (s) => (s[0]!.mlp = [0, 2, 3])],
    ['"sharing": "sequences" or "lanes"', (_, plan) => delete plan.sharing],
    ['expected 0 to 3', (s) => (s[1]!.heads = s[1]!.kvHeads = [1, 2, 4])],
  ])('%s', (message, edit) => {
    expect(change(edit)).toContain(message);
  });

  test('more copies than lanes can share sequences only', () => {
    const all = Array.from({ length: 9 }, (_, rank) => ({ rank, share: 1 / 9 }));
    const made = (sharing: 'lanes' | 'sequences') =>
      arrangedPlan(file([[all, on(0), on(0), on(0)]], 9), shape, sharing);
    expect(refusal(() => checkPlan(made('lanes'), shape))).toContain('has more copies than the 8 merge lanes');
    checkPlan(made('sequences'), shape);
    const owners = new CopyOwners(made('sequences'), 9);
    for (let slot = 0; slot < 9; slot++) owners.admit(slot, 100, 0);
    expect(new Set([...Array(9).keys()].map((slot) => owners.home(0, 0, slot))).size).toBe(9);
  });

  test("a rank that holds nothing of a layer isn't listed there", () => {
    expect(
      change((shares) => shares.push({ ...shares[0]!, rank: 1, heads: [], kvHeads: [], mlp: [], copies: undefined })),
    ).toContain('is listed twice');
  });
});
