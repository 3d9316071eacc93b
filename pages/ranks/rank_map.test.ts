import { expect, test } from 'vitest';
import { makePlan, type ModelShape } from '../../src/placement/index.js';
import { gqaShape, mlaShape } from '../../src/placement/testing/shapes.js';
import { rankMap, type Strip } from './rank_map.js';

function mapOf(policy: string, worldSize: number, shape: ModelShape): ReturnType<typeof rankMap> {
  const ranks = Array.from({ length: worldSize }, (_, rank) => ({
    adapter: `gpu ${rank}`,
    weightBytes: 1000 + rank,
    kvBytes: 10 + rank,
  }));
  return rankMap({ plan: makePlan(policy, worldSize, shape), shape, ranks });
}
const texts = (strips: readonly Strip[]): string[] => strips.map(({ name, text }) => `${name}: ${text}`);
/** One character a tile: X where it is held. */
const picture = ({ tiles }: Strip): string => tiles.map(({ held }) => (held ? 'X' : '.')).join('');
const named = (groups: readonly (readonly Strip[])[], name: string): Strip =>
  groups.flat().find((strip) => strip.name === name)!;

test('one rank holds everything', () => {
  const [only, ...others] = mapOf('single', 1, gqaShape(4));
  expect(others).toEqual([]);
  expect(only).toMatchObject({ rank: 0, adapter: 'gpu 0', weightBytes: 1000, kvBytes: 10, samples: true });
  expect(only!.groups.map(texts)).toEqual([
    [
      'Layers: all 4',
      'Attention: all 4 kv heads, all 8 query heads',
      'MLP: all 512 columns',
      'KV cache: all 4 kv heads, every lane',
    ],
    ['Embedding: all 1,000 rows', 'Output head: all 1,000 rows'],
  ]);
  expect(only!.groups.flat().every(({ tiles }) => tiles.every(({ held }) => held))).toBe(true);
});

test('tensor parallel: heads, columns and rows are cut, and side by side they are whole', () => {
  const [first, second] = mapOf('tp', 2, gqaShape(4));
  expect(texts(first!.groups[0]!)).toEqual([
    'Layers: all 4',
    'Attention: kv heads 0-1 of 4, 4 of 8 query heads',
    'MLP: 256 of 512 columns',
    'KV cache: kv heads 0-1 of 4, every lane',
  ]);
  expect([first, second].map((rank) => picture(named(rank!.groups, 'Attention')))).toEqual(['XX..', '..XX']);
  expect([first, second].map((rank) => picture(named(rank!.groups, 'Output head')))).toEqual(['X.', '.X']);
  expect([first!.samples, second!.samples]).toEqual([true, false]);
});

test('one head of a few is told as one', () => {
  const [first] = mapOf('tp', 2, gqaShape(2));
  expect(named(first!.groups, 'Attention').text).toBe('kv head 0 of 2, 2 of 4 query heads');
  expect(named(mapOf('single', 1, gqaShape(1))[0]!.groups, 'KV cache').text).toBe('1 kv head, every lane');
});

test('sequence parallel: weights on all, lanes cut, the head on the first', () => {
  const [first, second] = mapOf('sp', 2, gqaShape(4));
  expect([first, second].map((rank) => picture(named(rank!.groups, 'KV cache')))).toEqual(['X.X.X.X.', '.X.X.X.X']);
  expect(named(second!.groups, 'KV cache').text).toBe('all 4 kv heads, lanes 1 3 5 7');
  expect(named(second!.groups, 'Attention').text).toBe('all 4 kv heads, all 8 query heads');
  expect(named(second!.groups, 'Output head')).toMatchObject({ text: 'none', tiles: [{ held: false, size: 1000 }] });
});

test('pipeline: layers cut, the vocabulary at both ends', () => {
  const [first, second] = mapOf('pp', 2, gqaShape(4));
  expect([first, second].map((rank) => picture(named(rank!.groups, 'Layers')))).toEqual(['XX..', '..XX']);
  expect(named(first!.groups, 'Layers').text).toBe('0-1 of 4');
  expect(first!.groups.flat().map(({ name }) => name)).not.toContain('Experts');
  expect([named(first!.groups, 'Embedding').text, named(second!.groups, 'Embedding').text]).toEqual([
    'all 1,000 rows',
    'none',
  ]);
});

test('MLA: the latent, empty head groups left out, experts', () => {
  const [first, second] = mapOf('tp', 2, { ...mlaShape(4), numExperts: 8 });
  expect(texts(second!.groups[0]!)).toEqual([
    'Layers: all 4',
    'Attention: 2 of 4 query heads',
    'MLP: 256 of 512 columns',
    'Experts: 4-7 of 8',
    'KV cache: the latent, lanes 1 3 5 7',
  ]);
  expect(picture(named(first!.groups, 'Attention'))).toBe('XX..');
});

test('a rank that keeps only cache holds no heads', () => {
  const shape = gqaShape(2);
  const plan = makePlan('sp', 2, shape);
  const [stage] = plan.stages;
  const [root, other] = stage!.shares;
  const bare = { ...plan, stages: [{ ...stage!, shares: [root!, { ...other!, heads: [], mlp: [] }] }] };
  const ranks = [0, 1].map(() => ({ adapter: '', weightBytes: 0, kvBytes: 0 }));
  const groups = rankMap({ plan: bare, shape, ranks })[1]!.groups;
  expect(texts(groups[0]!).slice(1, 3)).toEqual(['Attention: none of 2 kv heads, no query heads', 'MLP: no columns']);
});

test('ranks that run rows of their own all sample', () => {
  expect(mapOf('adp', 2, gqaShape(2)).map(({ samples }) => samples)).toEqual([true, true]);
});

test('many pieces become runs', () => {
  const experts = mapOf('ep', 2, { ...mlaShape(8), numExperts: 64 }).map(({ groups }) => named(groups, 'Experts'));
  expect(experts.map(picture)).toEqual(['X.', '.X']);
  expect(experts[1]!.tiles.map(({ size }) => size)).toEqual([32, 32]);
});
