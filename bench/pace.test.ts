import { expect, test } from 'vitest';
import { paceRows, paceTable } from './pace.js';

const samples = (rates: readonly number[], cpuRate?: number) =>
  rates.map((rate) => ({ rate, ...(cpuRate !== undefined && { cpuRate }) }));

test('a ratio is the median of pairs: a machine that gets slower between two turns slows both', () => {
  // Three machines' speeds; ours always has nine tenths.
  const theirs = [100, 10, 1000, 50, 400];
  const [row] = paceRows([
    { name: 'decode', ours: samples(theirs.map((rate) => 0.9 * rate)), theirs: samples(theirs) },
  ]);
  expect(row!.ratio.value).toBeCloseTo(0.9);
  expect(row!.ratio.low).toBeCloseTo(0.9);
  expect(row!.ratio.high).toBeCloseTo(0.9);
  expect(row).toMatchObject({ name: 'decode', turns: 5, verdict: 'slower' });
  expect(row!.cpu).toBeUndefined();
});

test('verdicts heed the interval', () => {
  const verdict = (ratios: readonly number[]) =>
    paceRows([{ name: '', ours: samples(ratios), theirs: samples(ratios.map(() => 1)) }])[0]!.verdict;
  expect(verdict([0.7, 0.9, 0.95, 1.1, 1.2])).toBe('perhaps slower');
  expect(verdict([0.9, 0.91, 0.92, 0.93])).toBe('slower');
  expect(verdict([0.9, 1, 1, 1.1])).toBe('as fast');
  expect(verdict([1.1, 1.2, 1.3, 1.2])).toBe('faster');
  expect(verdict([0.97, 0.97])).toBe('as fast');
});

test('CPU time is compared where every turn has it', () => {
  const pair = (ours?: number, theirs?: number) =>
    paceRows([{ name: 'serve 1', ours: samples([1, 1], ours), theirs: samples([1, 1], theirs) }])[0]!;
  expect(pair(3, 4).cpu!.value).toBeCloseTo(0.75);
  expect(pair(3).cpu).toBeUndefined();
  expect(paceTable([pair(3, 4), pair()])).toMatch(
    /serve 1 +2 +1\.00 \(1\.00 to 1\.00\) +0\.75 \(0\.75 to 0\.75\) +as fast\nserve 1 +2 +1\.00 \(1\.00 to 1\.00\) +- +as fast\n/,
  );
});
