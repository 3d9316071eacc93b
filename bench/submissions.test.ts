import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import {
  isTime,
  readGpuSubmission,
  readSubmission,
  sideBySide,
  submissionFile,
  submissionSchema,
  verdictOf,
} from './submissions.js';
import { madeUpSubmission } from './testing/made_up_submission.js';

const FOLDER = 'bench/results/gpu';

test('what was sent is of a GPU, as the schema has it, and named after it', async () => {
  const others = new Set(['README.md', 'schema.json']);
  expect(readdirSync(FOLDER).filter((file) => !others.has(file) && !/^[a-z0-9-]+\.json$/.test(file))).toEqual([]);
  for (const file of readdirSync(FOLDER).filter((name) => !others.has(name))) {
    readGpuSubmission(readFileSync(join(FOLDER, file), 'utf8'), file);
  }
  // `npx vitest run bench/submissions.test.ts -u` writes it.
  await expect(`${JSON.stringify(submissionSchema(), null, 2)}\n`).toMatchFileSnapshot('results/gpu/schema.json');
});

const good = madeUpSubmission('Made-up GPU 1', 1);

test.each<[string, unknown, RegExp]>([
  ['no JSON', '{"suite": "gpu",', /x\.json/],
  ['another suite', { ...good, suite: 'decode' }, /x\.json\.suite is .decode.; write 'gpu'/],
  [
    'no adapters',
    { ...good, environment: { ...good.environment, adapters: [] } },
    /environment\.adapters is .*; write the adapter/,
  ],
  [
    'no environment',
    { suite: 'gpu', results: good.results },
    /x\.json\.environment is missing; write where it was measured/,
  ],
  ['no results', { ...good, results: [] }, /x\.json\.results is .*; write at least one part/],
  ['more than was asked', { ...good, email: 'a@b' }, /x\.json: unknown key 'email'/],
  [
    'a number that is none',
    part({ rows: [{ us: null }] }),
    /x\.json\.results\[0\]\.rows\[0\]\.us is null; write a text or a number/,
  ],
  ['a time below 0', part({ seconds: -1 }), /x\.json\.results\[0\]\.seconds is -1; write a number of at least 0/],
  [
    'no date',
    { ...good, environment: { ...good.environment, date: 'today' } },
    /environment\.date is .today.; write a date such as/,
  ],
])('%s is refused, and it says where', (_what, json, message) => {
  expect(() => readSubmission(typeof json === 'string' ? json : JSON.stringify(json), 'x.json')).toThrow(message);
});

function part(change: object): object {
  return { ...good, results: [{ ...good.results[0]!, ...change }] };
}

test("what the CPU measured isn't kept", () => {
  const [adapter] = good.environment.adapters;
  const onCpu = { ...good, environment: { ...good.environment, adapters: [{ ...adapter!, software: true }] } };
  expect(readSubmission(onCpu, 'x.json')).toEqual(onCpu);
  expect(() => readGpuSubmission(onCpu, 'x.json')).toThrow('x.json: Made-up GPU 1 runs on the CPU');
  expect(readGpuSubmission(good, 'x.json')).toEqual(good);
  expect(submissionFile(good)).toBe('made-up-gpu-1-2026-01-02.json');
});

test('answers to one thing stand side by side, of several plans the quickest, of a run also the peers', () => {
  const parts = sideBySide([
    good,
    madeUpSubmission('Made-up GPU 2', 2),
    madeUpSubmission('Made-up GPU 2', 4, '2026-01-03'),
  ]);
  expect(parts.map(({ title }) => title)).toEqual(
    good.results.filter(({ part: name }) => !['correct', 'bits'].includes(name)).map(({ title }) => title),
  );
  const [linear] = parts.find(({ title }) => title.startsWith('A row'))!.asked;
  expect(linear).toEqual({
    what: 'q4, outputs 640, inputs 640, rows 1',
    unit: 'us',
    answers: [
      { by: 'Made-up GPU 1, Node', value: 8, note: '50.0% of copies' },
      { by: 'Made-up GPU 2, 2026-01-02 00:00, Node', value: 4, note: '50.0% of copies' },
      { by: 'Made-up GPU 2, 2026-01-03 00:00, Node', value: 2, note: '50.0% of copies' },
    ],
  });
  expect(isTime('us')).toBe(true);
  const peers = parts.at(-1)!.asked;
  expect(peers.map(({ what, unit }) => [what, unit])).toEqual([['decode, tokens 128', 'tokens/s']]);
  expect(peers[0]!.answers.slice(0, 2)).toEqual([
    { by: 'Made-up GPU 1, Chrome: splitkv', value: 100, note: '' },
    { by: 'Made-up GPU 1, Chrome: onnxruntime-web', value: 50, note: '' },
  ]);
});

test('whether it is right is told', () => {
  expect(verdictOf(good)).toBe('2 of 2 kernels right; the same bits in 2 of 2 ways to run a model');
  const wrong = part({ rows: [{ kernel: 'rms_norm', cases: 3, wrong: 1, first: 'odd' }] }) as typeof good;
  expect(verdictOf(wrong)).toBe('0 of 1 kernels right; wrong: rms_norm');
});
