import { afterAll, expect, test, vi } from 'vitest';
import type { OptionRow } from '../src/engine/contracts/options/row.js';

/** A row each, and nothing else. */
const evenness: OptionRow = {
  help: 'how evenly, made up',
  default: 1,
  range: { low: 0, high: 10 },
  value: 'E',
  at: ['cli', 'attribute'],
  recommended: 'even',
  sheet: { label: 'Evenness', max: 5 },
};
const spareBlocks: OptionRow = {
  help: 'blocks that are kept free, made up',
  default: 4,
  range: { integer: true, low: 0, high: 64 },
  group: 'KV cache',
};
vi.mock('../src/engine/contracts/options/sampling_rows.js', async (original) => {
  const rows = await original<typeof import('../src/engine/contracts/options/sampling_rows.js')>();
  return { ...rows, SAMPLING_ROWS: { ...rows.SAMPLING_ROWS, evenness } };
});
vi.mock('../src/engine/contracts/options/load_rows.js', async (original) => {
  const rows = await original<typeof import('../src/engine/contracts/options/load_rows.js')>();
  return { ...rows, LOAD_ROWS: { ...rows.LOAD_ROWS, spareBlocks } };
});

// Tests before and after this one in the same process have the tables as they are.
vi.resetModules();
afterAll(() => vi.resetModules());

const { runHere } = await import('../src/cli/testing/run_here.js');
const { readSettings } = await import('../src/app/chat/settings.js');
const { withProperties } = await import('../src/app/chat/properties.js');
const { STRINGS } = await import('../src/app/chat/strings.js');
const { readParameters } = await import('../pages/ranks/parameters.js');
const { checkLoadOptions } = await import('../src/engine/contracts/load_options.js');
const { chatCompletions } = await import('../src/engine/faces/chat_api.js');
const { recommendedSampling } = await import('../src/engine/files/model_files.js');
const { checkSampling } = await import('../src/engine/ranks/sampling/sampling.js');
const { samplingOf } = await import('../src/engine/ranks/sampling/sampling_options.js');
const { parseChatRequest } = await import('../src/server/requests/chat_request.js');
const { optionFiles } = await import('./option_files.js');

const messages = [{ role: 'user', content: 'x' }] as const;

test("both are in the command line's help, and read by it", async () => {
  for (const command of ['generate', 'chat']) {
    const { stdout } = await runHere(['help', command, '--all']);
    expect(stdout, command).toMatch(
      /\nSampling\n[\s\S]*--evenness E +how evenly, made up; default 1\n[\s\S]*\nModel\n/,
    );
    expect(stdout, command).toMatch(
      /\nKV cache\n[\s\S]*--spare-blocks N +blocks that are kept free, made up; default 4\n/,
    );
  }
  for (const command of ['plan', 'serve', 'logits']) {
    expect((await runHere(['help', command, '--all'])).stdout, command).toContain('--spare-blocks N');
  }
  const generate = ['generate', '--model', '/no/such', '--prompt', 'x'];
  expect((await runHere([...generate, '--evenness', '11'])).stderr).toContain(
    '--evenness 11: expected a number from 0 to 10',
  );
  expect((await runHere([...generate, '--spare-blocks', '65'])).stderr).toContain(
    '--spare-blocks 65: expected an integer from 0 to 64',
  );
  expect((await runHere([...generate, '--spare-block', '6'])).stderr).toContain("Did you mean '--spare-blocks'?");
});

test('the library checks and hands on both', async () => {
  const options = { seed: 0, evenness: 2 };
  checkSampling(options);
  expect(samplingOf(options)).toEqual(options);
  expect(() => checkSampling({ seed: 0, evenness: 11 } as never)).toThrow('evenness 11: use a number from 0 to 10');
  expect(() => checkLoadOptions({ spareBlocks: 1.5 } as never)).toThrow('spareBlocks 1.5: expected an integer from 0');
  expect(() => checkLoadOptions({ spareBlock: 1 } as never)).toThrow("Did you mean 'spareBlocks'?");
  expect(recommendedSampling({ evenness: 3 })).toEqual({ evenness: 3 });
  let told: unknown;
  const api = chatCompletions('m', (_, given) => {
    told = given;
    throw new Error('enough');
  });
  await expect(api.create({ messages, evenness: 2 } as never)).rejects.toThrow('enough');
  expect(told).toEqual({ evenness: 2 });
});

test("a sampling number is the server's field", () => {
  expect(parseChatRequest({ messages, evenness: 2 }, 100)).toMatchObject({ options: { evenness: 2 }, ignored: [] });
  expect(() => parseChatRequest({ messages, evenness: 11 }, 100)).toThrow(
    'evenness is 11; expected a number from 0 to 10',
  );
});

test('both are attributes, properties and parameters of a page', () => {
  const attributes: Readonly<Record<string, string>> = { evenness: '2', 'spare-blocks': '3' };
  const read = readSettings((name) => attributes[name] ?? null);
  expect([read.sampling, read.load]).toEqual([{ maxTokens: 512, evenness: 2 }, { spareBlocks: 3 }]);
  expect(() => readSettings((name) => ({ 'spare-blocks': 'x' })[name as string] ?? null)).toThrow(
    'spare-blocks="x": expected an integer from 0 to 64',
  );
  const { prototype } = withProperties(class {} as typeof HTMLElement);
  expect(Object.keys(prototype)).toEqual(expect.arrayContaining(['evenness', 'spareBlocks']));
  expect(STRINGS).toMatchObject({ set_evenness: 'Evenness' });
  expect(readParameters(new URLSearchParams('spare-blocks=3')).load).toEqual({ spareBlocks: 3 });
});

test('types and tables are made of them', async () => {
  const files = await optionFiles();
  const types = files['generated/option_types.ts'];
  expect(types).toContain(
    '/** How evenly, made up. A number from 0 to 10. Default: 1. */\n  readonly evenness?: number',
  );
  expect(types).toContain('  readonly spareBlocks?: number | undefined;');
  expect(types).toMatch(/RecommendedSampling = Pick<[^>]*'evenness'/);
  const properties = files['generated/chat_properties.ts'];
  for (const name of ['evenness', 'spareBlocks']) expect(properties).toContain(`  ${name}: number | undefined;`);
  expect(files['docs/sampling.md']).toMatch(
    /^\| `evenness` +\| `evenness` +\| `evenness` +\| a number from 0 to 10 +\| 1 /m,
  );
  expect(files['docs/serving.md']).toMatch(/^\| `evenness` +\| a number from 0 to 10 +\| 1 /m);
  expect(files['docs/library.md']).toMatch(
    /^\| `spareBlocks` +\| `--spare-blocks` +\| an integer from 0 to 64 +\| 4 /m,
  );
  expect(files['docs/chat.md']).toMatch(/`spare-blocks`[\s\S]*`evenness`/);
});
