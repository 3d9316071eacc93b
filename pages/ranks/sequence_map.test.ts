import { expect, test } from 'vitest';
import { makePlan } from '../../src/placement/index.js';
import { gqaShape } from '../../src/placement/testing/shapes.js';
import { sequenceMap } from './sequence_map.js';

const shape = gqaShape(4);
const plan = (policy: string, ranks: number): ReturnType<typeof makePlan> => makePlan(policy, ranks, shape);
const owners = (map: ReturnType<typeof sequenceMap>): string =>
  map.chunks.map(({ owners: ranks }) => ranks.join('+')).join(' ');

test('chunks go round the ranks that split the sequence', () => {
  expect(owners(sequenceMap(plan('sp', 2), 300, 'writing', 4096))).toBe('0 1 0 1 0 1 0 1');
  expect(owners(sequenceMap(plan('sp', 2), 300, 'writing', 4096, 1))).toBe('1 0 1 0 1 0 1 0');
  expect(owners(sequenceMap(plan('sp', 4), 300, 'writing', 4096))).toBe('0 1 2 3 0 1 2 3');
  expect(owners(sequenceMap(plan('tp', 2), 300, 'writing', 4096)), 'each its heads').toBe(
    Array(8).fill('0+1').join(' '),
  );
  expect(owners(sequenceMap(plan('pp x sp', 4), 300, 'writing', 4096)), 'each its layers').toBe(
    Array(4).fill('0+2 1+3').join(' '),
  );
  expect(owners(sequenceMap(plan('token x sp', 3), 300, 'writing', 4096)), 'beside the root').toBe('1 2 1 2 1 2 1 2');
  expect(owners(sequenceMap(plan('token', 3), 300, 'writing', 4096)), 'whole on one').toBe(
    Array(8).fill('2').join(' '),
  );
});

test('tokens fill chunks in order, and the chunk being written is told', () => {
  const map = sequenceMap(plan('sp', 2), 300, 'writing', 4096);
  expect(map.chunks.map(({ tokens }) => tokens)).toEqual([256, 44, 0, 0, 0, 0, 0, 0]);
  expect(map.chunks.map(({ active }) => active).indexOf(true)).toBe(1);
  expect(map.text).toBe('300 tokens in 2 chunks; now writing chunk 1 (lane 1) on rank 1.');
  expect(map.lanes.map((lanes) => lanes.join(' '))).toEqual(['256 0 0 0 0 0 0 0', '0 44 0 0 0 0 0 0']);
});

test('a chunk that is full is followed by the next, and the ninth is in lane 0 again', () => {
  const map = sequenceMap(plan('sp', 2), 2048, 'writing', 4096);
  expect(map.chunks).toHaveLength(16);
  expect(map.chunks[8]).toMatchObject({ lane: 0, owners: [0], tokens: 0, active: true });
  const later = sequenceMap(plan('sp', 2), 2100, 'ended', 4096);
  expect(later.lanes[0]).toEqual([256 + 52, 0, 256, 0, 256, 0, 256, 0]);
  expect(later.chunks.some(({ active }) => active)).toBe(false);
  expect(later.text).toBe('2100 tokens in 9 chunks, as the last answer left them.');
});

test('a full or short context ends the map', () => {
  expect(sequenceMap(plan('sp', 2), 600, 'writing', 600).chunks.map(({ tokens }) => tokens)).toEqual([256, 256, 88]);
  const full = sequenceMap(plan('sp', 2), 512, 'writing', 512);
  expect(full.chunks.map(({ active }) => active)).toEqual([false, true]);
});

test('a prompt that is being read has reached its chunks, and none is filled', () => {
  const map = sequenceMap(plan('tp', 2), 257, 'reading', 4096);
  expect(map.chunks.map(({ active }) => active)).toEqual([true, true, ...Array<boolean>(6).fill(false)]);
  expect(map.lanes.flat().every((tokens) => tokens === 0)).toBe(true);
  expect(map.text).toBe('Reading a prompt of 257 tokens (2 chunks of 256).');
});

test('no sequence yet', () => {
  const map = sequenceMap(plan('single', 1), 0, 'ended', 4096);
  expect(map.text).toMatch(/^No sequence yet\./);
  expect(owners(map)).toBe('0 0 0 0 0 0 0 0');
});
