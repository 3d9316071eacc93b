import { expect, test } from 'vitest';
import { SplitkvError } from '../../base/errors.js';
import { makePlan } from '../make/make_plan.js';
import { parsePlan } from './parse_plan.js';
import { gqaShape } from '../testing/shapes.js';

// oxlint-disable-next-line typescript/no-explicit-any -- tests write anything into it
const plan = (): any => structuredClone(makePlan('tp', 2, gqaShape(2)));

test('reads text and objects', () => {
  expect(parsePlan(plan())).toEqual(plan());
  expect(parsePlan(`\uFEFF${JSON.stringify(plan())}`)).toEqual(plan());
});

// oxlint-disable-next-line typescript/no-explicit-any
const faults: readonly (readonly [message: string, (plan: any) => void])[] = [
  ['plan.version is 2; write 1, the version this splitkv reads', (p) => (p.version = 2)],
  ['plan.version is missing; write 1', (p) => delete p.version],
  ['plan.policy is missing; write the policy', (p) => delete p.policy],
  ['plan.worldSize is 0; write the number of ranks, at least 1', (p) => (p.worldSize = 0)],
  ['plan.worldSize is "2"; write the number of ranks', (p) => (p.worldSize = '2')],
  ['plan.stages is {}; write a list', (p) => (p.stages = {})],
  ['plan.stages[0].layers is [0]; write two whole numbers', (p) => (p.stages[0].layers = [0])],
  ['plan.stages[0].layers[1] is 1.5; write a whole number', (p) => (p.stages[0].layers = [0, 1.5])],
  ['plan.stages[0].shares[1].lanes[7] is null; write a whole number', (p) => (p.stages[0].shares[1].lanes[7] = null)],
  ['plan.stages[0].shares[0].heads[0] is -1; write a whole number', (p) => (p.stages[0].shares[0].heads[0] = -1)],
  ['plan.head[1].rows is missing; write two whole numbers', (p) => delete p.head[1].rows],
  ['plan.embedding[0] is 3; write an object such as {"rank": 0,', (p) => (p.embedding[0] = 3)],
  ["plan: unknown key 'stagez'. Did you mean 'stages'?", (p) => (p.stagez = [])],
  ["plan.stages[0]: unknown key 'layer'. Did you mean 'layers'?", (p) => (p.stages[0].layer = 1)],
  [
    "plan.stages[0].shares[1]: unknown key 'head'. Did you mean 'heads'?",
    (p) => {
      p.stages[0].shares[1].head = p.stages[0].shares[1].heads;
      delete p.stages[0].shares[1].heads;
    },
  ],
  ["plan.head[0]: unknown key 'zzzzzz'. Its keys are rank, rows.", (p) => (p.head[0].zzzzzz = 0)],
];

test.each(faults)('%s', (message, change) => {
  const wrong = plan();
  change(wrong);
  expect(() => parsePlan(wrong)).toThrow(message);
  expect(() => parsePlan(wrong)).toThrow(SplitkvError);
});

test.each([null, [], 3, undefined])('%j is no plan', (value) => {
  expect(() => parsePlan(value)).toThrow('write a plan: an object with version, policy');
});

test('names the file', () => {
  expect(() => parsePlan('{', 'my_plan.json')).toThrow('my_plan.json: not valid JSON');
  expect(() => parsePlan('{}', 'my_plan.json')).toThrow('my_plan.json.version is missing');
});
