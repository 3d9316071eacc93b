import { expect, test } from 'vitest';
import type { PlanReport } from '../../../index.js';
import { SAY } from '../strings.js';
import { clusterPreview, previewOf, ranksText } from './preview.js';

const MIB = 2 ** 20;
const pick = { policy: 'sp', worldSize: 2, tokensPerSecond: 41.6, memory: [{ totalBytes: MIB }, { totalBytes: MIB }] };
const report = (changes: object): PlanReport =>
  ({
    weights: 'q4',
    contextLength: 4096,
    machine: { ranks: [{ name: 'GPU A' }, { name: 'GPU B' }] },
    download: { bytes: 10 * MIB, storedBytes: 0, complete: false },
    pick,
    misfit: undefined,
    why: 'no plan fits',
    candidates: [],
    ...changes,
  }) as unknown as PlanReport;
const facts = (changes: object) => Object.fromEntries(previewOf(report(changes)).facts);

test('tells the download, memory, speed and plan', () => {
  expect(facts({})).toEqual({
    Download: '10 MiB',
    'GPU memory': '2.0 MiB, which fits',
    'Expected speed': '42 tokens/s on GPU A + GPU B',
    Plan: 'sp on 2 ranks',
    Weights: 'q4, context of 4,096 tokens',
  });
  expect(previewOf(report({}))).toMatchObject({ problem: undefined, start: 'Download 10 MiB and start' });
});

test('counts only what is left of a download that broke off', () => {
  const download = { bytes: 10 * MIB, storedBytes: 4 * MIB, complete: false };
  expect(facts({ download })['Download']).toBe('6.0 MiB: 4.0 MiB of 10 MiB are kept from before');
  expect(previewOf(report({ download })).start).toBe('Download 6.0 MiB and start');
});

test('downloads nothing that is here', () => {
  const download = { bytes: 10 * MIB, storedBytes: 10 * MIB, complete: true };
  expect(facts({ download })['Download']).toBe('none: 10 MiB are kept in this browser');
  expect(previewOf(report({ download })).start).toBe('Start');
});

test('says why it does not fit', () => {
  expect(previewOf(report({ misfit: 'out of memory' }))).toMatchObject({
    problem: 'out of memory',
    start: 'Download 10 MiB and start anyway',
    remedies: [],
  });
  const offered = previewOf(report({ misfit: 'x' }), SAY, { ranks: 1 }, [{ ranks: 1, weights: 'q4' }]).remedies;
  expect(offered).toEqual([{ label: 'Start with 4-bit weights', action: 'retry', load: { ranks: 1, weights: 'q4' } }]);
  expect(facts({ misfit: 'out of memory' })['GPU memory']).toContain('does not fit');
  expect(previewOf(report({ pick: undefined })).problem).toBe('no plan fits');
  expect(facts({ pick: undefined })).not.toHaveProperty('Plan');
  // Nothing is offered that is sure to fail; what is missing is told of the plan that lacks least.
  expect(previewOf(report({ pick: undefined })).start).toBeUndefined();
  const ranks = [{ budgetBytes: 5 * MIB }, { budgetBytes: 3 * MIB }];
  const needs = (...bytes: number[]) => ({ plan: {}, memory: bytes.map((totalBytes, rank) => ({ rank, totalBytes })) });
  const candidates = [needs(9 * MIB), needs(4 * MIB, 6 * MIB), { refused: 'none' }];
  expect(facts({ pick: undefined, machine: { ranks }, candidates })['GPU memory']).toBe(
    '6.0 MiB needed, 3.0 MiB more than there is',
  );
});

test('names the ranks of a cluster, before and once it is loaded', () => {
  const cluster = { servers: ['wss://a.example', 'ws://b.example:4223'], token: 'secret' };
  const named = clusterPreview({ ranks: ['gpu-a', 'gpu-b'], plan: 'pp', cluster }, SAY);
  expect(named).toMatchObject({ start: 'Start', problem: undefined });
  expect(Object.fromEntries(named.facts)).toEqual({
    'Runs on': 'gpu-a, gpu-b of the cluster main (a.example, b.example:4223)',
    Plan: 'pp',
  });
  const counted = clusterPreview({ ranks: 2, cluster: { ...cluster, name: 'lab' } }, SAY);
  expect(Object.fromEntries(counted.facts)).toEqual({
    'Runs on': '2 free ranks of the cluster lab (a.example, b.example:4223)',
    Plan: 'auto',
  });
  const rank = (adapter: string, name?: string) => ({ adapter, weightBytes: 1, kvBytes: 1, ...(name && { name }) });
  expect(ranksText([rank('acme', 'gpu-a'), rank('acme', 'gpu-b'), rank('other', 'gpu-c')])).toBe(
    'gpu-a, gpu-b: acme + gpu-c: other',
  );
  expect(ranksText([rank('acme'), rank('acme')])).toBe('acme');
});
