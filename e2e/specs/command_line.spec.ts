import { writeFile } from 'node:fs/promises';
import { expect, test } from '@playwright/test';
import { QUESTIONS, STORY } from '../../models/example.js';
import { runCli as splitkv } from '../../src/cli/testing/run_cli.js';

const chrome = ['--host', 'chrome', '--model', 'models/tiny-gqa', '--json'];

test('generate in Chrome prints the document', async () => {
  const { question, answer } = QUESTIONS[1];
  const { code, stdout, stderr } = await splitkv(['generate', ...chrome, '--prompt', `${STORY} ${question}`]);
  expect(code, stderr).toBe(0);
  const result = JSON.parse(stdout) as Record<string, unknown>;
  expect(result).toMatchObject({ finish_reason: 'stop', stats: { ranks: [{}] } });
  expect((result['text'] as string).trim()).toBe(answer);
});

test('an answer in Chrome is JSON of a schema', async () => {
  const file = test.info().outputPath('schema.json');
  const schema = {
    type: 'object',
    properties: { who: { enum: ['Mia', 'Tom'] }, age: { type: 'integer', minimum: 1, maximum: 99 } },
    required: ['who', 'age'],
    additionalProperties: false,
  };
  await writeFile(file, JSON.stringify(schema));
  const args = ['generate', ...chrome, '--prompt', STORY, '--json-schema', file, '--temperature', '1', '--seed', '3'];
  const { code, stdout, stderr } = await splitkv(args);
  expect(code, stderr).toBe(0);
  const { text, finish_reason } = JSON.parse(stdout) as { text: string; finish_reason: string };
  expect(finish_reason).toBe('stop');
  expect(JSON.parse(text)).toEqual({ who: expect.stringMatching(/^(Mia|Tom)$/), age: expect.any(Number) });
});

test('logits in Chrome are the same bits in every run, and digest and numbers agree', async () => {
  const args = ['logits', ...chrome, '--tokens', '1,300,301,302', '--all'];
  const first = await splitkv(args);
  expect(first.code, first.stderr).toBe(0);
  const document = JSON.parse(first.stdout) as {
    results: { positions: number[]; argmax: number[]; sha256: string; logits: number[][] }[];
  };
  const [result] = document.results;
  expect(result!.positions).toEqual([0, 1, 2, 3]);
  expect(result!.logits.map((row) => row.indexOf(Math.max(...row)))).toEqual(result!.argmax);
  const bytes = Buffer.concat(result!.logits.map((row) => Buffer.from(Float32Array.from(row).buffer)));
  const { createHash } = await import('node:crypto');
  expect(createHash('sha256').update(bytes).digest('hex')).toBe(result!.sha256);

  const second = await splitkv([...args, '--output', 'argmax', '--prefill-chunk', '3']);
  expect((JSON.parse(second.stdout) as typeof document).results[0]!.sha256).toBe(result!.sha256);
});

test('what fails in the page keeps its code and message', async () => {
  const wrong = await splitkv(['generate', ...chrome, '--prompt', 'x', '--context', '1000000']);
  expect(wrong).toMatchObject({ code: 2, stdout: '' });
  expect(wrong.stderr).toMatch(/^splitkv: contextLength 1000000: this model has at most 4096 positions\n$/);
});

test('Ctrl-C ends a run in Chrome, and what came until then is told', async () => {
  const args = ['--host', 'chrome', '--model', 'models/tiny-gqa', '--raw', '--max-tokens', '3000'];
  const { code, stdout, stderr } = await splitkv(
    ['generate', ...args, '--prompt', `${STORY} ${QUESTIONS[0].question}`],
    { interruptAt: 'bag' },
  );
  expect(code, stderr).toBe(130);
  expect(stdout).toContain('bag');
  expect(stderr).toMatch(/^\d+ tokens, .*, interrupted \(/m);
});
