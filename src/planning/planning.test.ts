import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import * as library from '../index.js';
import { load } from '../engine/faces/load.js';
import * as planning from './index.js';

const { arrange, arrangedPlan, checkPlan, describePlan, makePlan, modelShape, SplitkvError } = planning;
const { toArrangementFile } = planning;

const gqa = await modelShape('models/tiny-gqa');

test('the examples of the guide run', async () => {
  const blocks = [...readFileSync('docs/planner.md', 'utf8').matchAll(/^```js\n([\s\S]*?)^```/gm)].map(
    ([, code]) => code!,
  );
  expect(blocks.length).toBeGreaterThan(1);
  const said: unknown[][] = [];
  for (const code of blocks) {
    const names = /^import \{ (.*) \} from 'splitkv\/planning';\n/.exec(code)!;
    const body = `const { ${names[1]} } = planning;\n${code.slice(names[0].length)}`;
    const run = new (Object.getPrototypeOf(async () => {}).constructor as FunctionConstructor)(
      'planning',
      'console',
      body,
    ) as (...given: unknown[]) => Promise<void>;
    await run(planning, { log: (...words: unknown[]) => said.push(words) });
  }
  expect(said).toHaveLength(2);
  expect(said[0]![0]).toMatch(/^plan tp x token on 4 ranks\nlayers 0-3:\n {2}rank 0: query heads 4 of 8/);
  expect(said[1]![0]).toBeGreaterThan(0.9);
});

test('what the runtime says of a loaded model is what is read without one, and it runs the plan and the arrangement', async () => {
  const tokens = [1, 300, 301, 302, 303];
  const logits = async (plan: planning.Plan | planning.ArrangementFile): Promise<Float32Array> => {
    const model = await load('models/tiny-gqa', { plan, virtualRanks: true, contextLength: 64 });
    expect(model.info.shape).toEqual(gqa);
    const { rows } = await model.logits(tokens);
    await model.dispose();
    return rows[0]!;
  };
  const found = arrange({ loads: [0, 1, 2, 3].map(() => [9, 1, 1, 1]), ranks: 2, copies: 0 });
  expect(found).toMatchObject({ mode: 'exact', optimal: true, makespan: 36 });
  const file = toArrangementFile('tiny-gqa', 2, found);
  const one = await logits(makePlan('single', 1, gqa));
  expect(await logits(file)).toEqual(one);
  expect(describePlan(arrangedPlan(file, gqa), gqa)[2]).toMatch(/rank 0: query heads 2 of 8 \(kv heads 0\)/);
});

describe('bad input', () => {
  const plan = makePlan('tp', 2, gqa);
  const cases: readonly (readonly [() => unknown, RegExp])[] = [
    [() => makePlan('tq', 2, gqa), /plan 'tq': use single, tp/],
    [() => makePlan(undefined as never, 2, gqa), /plan undefined: expected a policy's name/],
    [() => makePlan('tp', 3.5, gqa), /on 3\.5 ranks: give a whole number/],
    [() => makePlan('tp', 2, undefined as never), /shape is missing|shape/],
    [() => makePlan('tp', 2, { ...gqa, kvHeads: 0 }), /shape\.kvHeads is 0; write a whole number of at least 1/],
    [() => makePlan('tp', 2, { ...gqa, segmentHeads: [1.5] }), /shape\.segmentHeads\[0\] is 1\.5/],
    [() => makePlan('tp', 2, { ...gqa, layers: 3 } as never), /shape: unknown key 'layers'/],
    [() => makePlan('tp', 2, gqa, { tensors: 2 } as never), /unknown option 'tensors'/],
    [() => makePlan('tp', 2, gqa, 2 as never), /options 2: expected an object/],
    [() => checkPlan({ ...plan, worldSize: 3 }, gqa), /rank 2 holds nothing/],
    [() => checkPlan({ ...plan, stages: 1 } as never, gqa), /plan\.stages is 1; write a list/],
    [() => checkPlan(null as never, gqa), /plan is null; write a plan/],
    [() => arrange(undefined as never), /expected \{ loads, ranks \}/],
    [() => arrange({ loads: [[1, 2]], ranks: 0 }), /ranks 0: expected/],
    [() => arrange({ loads: [[1, -2]], ranks: 2 }), /head 1 is -2/],
    [() => arrange({ loads: [[1, 2]], ranks: 2, mode: 'best' as never }), /mode 'best': use static/],
    [() => arrange({ loads: [[1, 2]], ranks: 2 }, 0), /steps 0/],
    [() => arrangedPlan({} as never, gqa), /arrangement\./],
  ];
  test.each(cases.map(([run, message]) => [message.source, run, message] as const))('%s', (_name, run, message) => {
    expect(run).toThrow(SplitkvError);
    expect(run).toThrow(message);
  });

  test('of models', async () => {
    await expect(modelShape('models/none')).rejects.toThrow(/no such folder|config\.json|models\/none/);
    await expect(modelShape('models/tiny-gqa', { tokens: 1 } as never)).rejects.toThrow("unknown option 'tokens'");
  });
});

test("errors are of the library's own class", () => {
  expect(SplitkvError).toBe(library.SplitkvError);
});
