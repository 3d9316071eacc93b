import { expect, test } from 'vitest';
import { type AdapterEntry, markSame } from '../../src/app/shared/adapter_list.js';
import { describeChoice } from './adapter_choice.js';

const entry = (request: string, changes: Partial<AdapterEntry> = {}): AdapterEntry => ({
  name: 'acme one',
  vendor: 'acme',
  architecture: 'one',
  device: '',
  description: '',
  software: false,
  request,
  features: ['shader-f16'],
  limits: { maxBufferSize: 1024 },
  ...changes,
});

test('two preferences that lead to one GPU are told as one', () => {
  const entries = markSame([entry('high-performance'), entry('low-power')]);
  expect(entries.map(({ same_as: same }) => same)).toEqual([undefined, 'high-performance']);
  expect(describeChoice(entries)).toBe(
    'high-performance and low-power are the same GPU (acme one): ranks are several devices on it.',
  );
});

test('GPUs differ by their name, features or limits', () => {
  for (const changes of [
    { name: 'acme two', architecture: 'two' },
    { features: [] },
    { limits: { maxBufferSize: 512 } },
  ]) {
    const entries = markSame([entry('high-performance'), entry('low-power', changes)]);
    expect(entries.some(({ same_as: same }) => same !== undefined)).toBe(false);
    expect(describeChoice(entries)).toBe(
      `Two GPUs: acme one (high-performance) and ${changes.name ?? 'acme one'} (low-power); ` +
        'ranks=high-performance,low-power puts a rank on each.',
    );
  }
});

test('one adapter, or none', () => {
  expect(describeChoice([entry('high-performance')])).toBe(
    'There is one GPU (acme one): ranks are several devices on it.',
  );
  expect(describeChoice([])).toBe('This browser offers no WebGPU adapter.');
});
