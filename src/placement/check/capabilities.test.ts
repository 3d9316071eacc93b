import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { SplitkvError } from '../../base/errors.js';
import { checkTogether, EXCLUSIONS, type Feature, FEATURES, misfit } from './capabilities.js';
import { makePlan } from '../make/make_plan.js';
import { parsePolicy, POLICIES } from '../make/policy.js';
import { capabilityPage } from '../testing/capability_page.js';
import { gqaShape, mlaShape } from '../testing/shapes.js';

test('docs/capabilities.md is what the table says: npm run capabilities', async () => {
  const page = readFileSync(new URL('../../../docs/capabilities.md', import.meta.url), 'utf8');
  expect(page).toBe(await capabilityPage());
});

test('each pair stands once, and is refused with its reason', () => {
  const pairs = EXCLUSIONS.map(({ of }) => of.toSorted().join(' x '));
  expect(new Set(pairs).size).toBe(pairs.length);
  for (const { of, because, instead } of EXCLUSIONS) {
    expect(misfit(of)).toContain(`: ${because}; ${instead}`);
    for (const feature of of) {
      expect(misfit([feature])).toBeUndefined();
      expect(misfit(of)).toContain(FEATURES[feature]);
    }
  }
});

describe('makers and the table agree', () => {
  const shapes = {
    gqa: gqaShape(8, { numLayers: 8 }),
    'gqa, experts': gqaShape(8, { numLayers: 8, numExperts: 8 }),
    latent: mlaShape(16, { numLayers: 8 }),
    'latent, experts': mlaShape(16, { numLayers: 8, numExperts: 8 }),
  };
  test.each(Object.entries(shapes))('%s', (_name, shape) => {
    const model: Feature[] = [shape.latent ? 'latent' : 'gqa', shape.numExperts > 0 ? 'experts' : 'dense'];
    for (const policy of POLICIES) {
      const why = misfit([...parsePolicy(policy).features, ...model]);
      const make = () => makePlan(policy, policy === 'single' ? 1 : 8, shape);
      if (why === undefined) expect(misfit(model, make()), policy).toBeUndefined();
      else expect(make, policy).toThrow(`plan '${policy}': ${why}`);
    }
  });
});

test('stages are looked at one by one: a plan may have layers of different kinds', () => {
  const shape = gqaShape(4, { numExperts: 4 });
  const [token, ep] = [makePlan('token', 2, shape), makePlan('ep', 2, shape)];
  const stages = [
    { ...token.stages[0]!, layers: [0, 2] as const },
    { ...ep.stages[0]!, layers: [2, 4] as const },
  ];
  expect(misfit(['experts'], { stages })).toBeUndefined();
  expect(misfit(['experts'], { stages: [{ ...stages[0]!, shares: [...ep.stages[0]!.shares] }] })).toContain('KV-only');
});

test('errors: unsupported where the model is a part of it, else usage; a plan is named', () => {
  const thrown = (run: () => void): SplitkvError => {
    try {
      run();
    } catch (error) {
      return error as SplitkvError;
    }
    throw new Error('nothing thrown');
  };
  expect(thrown(() => checkTogether(['compression', 'latent']))).toMatchObject({ code: 'unsupported' });
  const error = thrown(() => checkTogether(['compression'], makePlan('token x sp', 2, gqaShape(4))));
  expect(error).toBeInstanceOf(SplitkvError);
  expect(error.code).toBe('usage');
  expect(error.message).toMatch(
    /^plan 'token x sp': a compressed cache \(kvBudget\) can't be had with places of several ranks that split/,
  );
  checkTogether(['compression', 'gqa'], makePlan('tp', 2, gqaShape(4)));
});
