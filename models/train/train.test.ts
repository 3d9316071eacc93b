import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, describe, expect, test } from 'vitest';
import { load } from '../../src/engine/faces/load.js';
import { testAdapters } from '../../src/gpu/testing/adapters.js';
import { drawn } from '../../src/gpu/testing/draw.js';

const run = promisify(execFile);
const python = existsSync('/usr/bin/python3') ? '/usr/bin/python3' : 'python3';
const torch = await run(python, ['-c', 'import torch']).then(
  () => true,
  (error: Error) => {
    console.warn(`skipped: the training smoke run (${python} has no torch: ${error.message.split('\n').at(-2)})`);
    return false;
  },
);
const folder = await mkdtemp(join(tmpdir(), 'splitkv-train-'));
afterAll(() => rm(folder, { recursive: true }));

const families = [
  ['train.py --arch llama', 'llama'],
  ['train.py --arch deepseek', 'deepseek_v3'],
  ['train_pictures.py', 'llama'],
] as const;
describe.skipIf(!torch)('--smoke', () => {
  test.each(drawn(families, 1, 'trained'))(
    '%s: makes a folder that the runtime loads',
    { timeout: 300_000 },
    async (command, architecture) => {
      const out = join(folder, command.replaceAll(' ', '_'));
      const [script, ...given] = command.split(' ');
      await run(python, [`models/train/${script}`, ...given, '--smoke', '--out', out], {
        env: { ...process.env, PYTHONDONTWRITEBYTECODE: '1' },
      });
      const adapter = (await testAdapters()).at(-1)!;
      const model = await load(out, { adapter: adapter.name, contextLength: 128 });
      try {
        expect(model.info).toMatchObject({ architecture, hasChatTemplate: true });
        const { text, tokens } = await model.generate('where is the red key ?', { maxTokens: 4, ignoreEos: true })
          .result;
        expect(tokens).toHaveLength(4);
        expect(text).toBe(model.detokenize(tokens));
      } finally {
        await model.dispose();
      }
    },
  );
});
