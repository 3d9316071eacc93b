import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { runCli } from './testing/run_cli.js';
import { runHere } from './testing/run_here.js';

const scratch = mkdtempSync(join(tmpdir(), 'splitkv-cli-'));
afterAll(() => rmSync(scratch, { recursive: true }));
const file = (name: string, text: string): string => {
  writeFileSync(join(scratch, name), text);
  return join(scratch, name);
};

const ggufFolder = join(scratch, 'gguf');
mkdirSync(ggufFolder);
writeFileSync(join(ggufFolder, 'bad.gguf'), 'GGUF');
const generate = ['generate', '--model', scratch, '--prompt', 'x'];
const logits = ['logits', '--model', scratch];

describe('bad usage: exit code 2, one line on stderr, nothing on stdout', () => {
  test.each<[string, string[], string]>([
    [
      'an unknown command',
      ['genrate'],
      "unknown command 'genrate'. Did you mean 'generate'? Commands: chat, generate, serve, logits",
    ],
    ['a profile without a budget', ['profile', '--model', scratch], '--kv-budget is missing'],
    [
      'an unknown option',
      [...generate, '--max-token', '3'],
      "unknown option --max-token. Did you mean '--max-tokens'?",
    ],
    ["vLLM's name of a degree", [...generate, '-tp', '2'], 'unknown option -tp: it is --tensor here'],
    ['an access token as a degree', [...generate, '--token', 'hf_a'], 'token: expected an integer from 1 to 64'],
    ['a degree of none', [...generate, '--tensor', '0'], '--tensor 0: expected an integer from 1 to 64'],
    ['a stray word', [...generate, 'y'], "unexpected argument 'y'"],
    ['words beyond those that a command has', ['generate', scratch, 'x', 'y'], "unexpected argument 'y'"],
    ['a word and the option that it is', ['generate', scratch, 'x', '--tokens', '1'], '--prompt and --tokens are two'],
    ['one dash', [...generate, '-m'], 'unknown option -m. Options have two dashes: --model, --max-tokens'],
    [
      'one dash and a name',
      [...generate, '-max-token', '3'],
      "unknown option -max-token. Did you mean '--max-tokens'?",
    ],
    ['help of an unknown command', ['help', 'genrate'], "unknown command 'genrate'. Did you mean 'generate'?"],
    ['a missing value', [...generate, '--seed'], '--seed needs a value: --seed S'],
    ['a value for a switch', [...generate, '--raw=yes'], '--raw takes no value (given: yes)'],
    ['an option twice', [...generate, '--seed', '1', '--seed', '2'], '--seed was given twice'],
    ['no model', ['generate', '--prompt', 'x'], '--model is missing: name a model folder'],
    ['no prompt', ['generate', '--model', scratch], '--prompt is missing'],
    [
      'two prompts',
      ['generate', '--model', scratch, '--prompt', 'x', '--tokens', '1'],
      '--prompt and --tokens are two prompts',
    ],
    ['ids that are none', ['generate', '--model', scratch, '--tokens', '1,x'], '--tokens: "x" is no token id'],
    ['an empty prompt', ['generate', '--model', scratch, '--prompt', ''], '--prompt is empty'],
    [
      'a number below its range',
      [...generate, '--max-tokens', '0'],
      '--max-tokens 0: expected an integer of at least 1',
    ],
    ['text for a number', [...generate, '--temperature', 'hot'], '--temperature hot: expected a number of at least 0'],
    ['hexadecimal', [...generate, '--seed', '0x10'], '--seed 0x10: expected an integer of at least 0'],
    ['min_p above 1', [...generate, '--min-p', '2'], '--min-p 2: expected a number from 0 to 1'],
    ['a penalty', [...generate, '--presence-penalty', '3'], '--presence-penalty 3: expected a number from -2 to 2'],
    ['a bias', [...generate, '--logit-bias', '5:1,6'], "--logit-bias: '6:' is no token id and bias"],
    ['a bias of a word', [...generate, '--logit-bias', 'cat:1'], "--logit-bias: 'cat:1' is no token id and bias"],
    [
      'biases as a list',
      [...generate, '--logit-bias', `@${file('biases.json', '[1]')}`],
      'expected an object of biases by token id',
    ],
    ['stop ids', [...generate, '--stop-token-ids', '5,x'], "--stop-token-ids: 'x' is no token id"],
    ['a probability above 1', [...generate, '--top-p', '1.5'], '--top-p 1.5: expected a number above 0 and at most 1'],
    ['unknown variants', [...generate, '--variants', 'gpu'], '--variants gpu: expected auto, hardware, software'],
    [
      'unknown weights',
      [...generate, '--weights', 'q5'],
      "--weights q5: expected auto, f32, f16, q8, q4. Did you mean 'q8'?",
    ],
    [
      'an unknown host',
      [...generate, '--host', 'crome'],
      "--host crome: expected node, chrome. Did you mean 'chrome'?",
    ],
    ['an adapter in Chrome', [...generate, '--host', 'chrome', '--adapter', 'x'], '--adapter needs --host node'],
    [
      'a KV budget above 1',
      [...generate, '--kv-budget', '20'],
      '--kv-budget 20: expected a number above 0 and at most 1',
    ],
    [
      'a KV policy that is none',
      [...generate, '--kv-policy', 'all'],
      '--kv-policy all: expected none, snap, ada, static',
    ],
    [
      'a profile without its budget',
      [...generate, '--kv-profile', file('profile.json', '{"model": "m", "kv_budget": 0.2}')],
      'profile.json.layers',
    ],
    ['a rank without an adapter', [...generate, '--ranks', 'a,,b'], '--ranks a,,b: expected a number of ranks'],
    ['a size that is none', [...generate, '--memory', 'lots'], '--memory lots: expected a size such as 500MB'],
    ['no tokens', logits, '--tokens is missing'],
    ['tokens that are none', [...logits, '--tokens', '1,two'], '--tokens: "two" is no token id'],
    ['an empty token', [...logits, '--tokens', '1,,2'], '--tokens: "" is no token id'],
    ['an empty list', [...logits, '--tokens', `@${file('empty.json', '[[1], []]')}`], 'list 1 is empty'],
    ['no list', [...logits, '--tokens', `@${file('object.json', '{"a": 1}')}`], 'expected a list of token ids'],
    ['fractions', [...logits, '--tokens', `@${file('fraction.json', '[1.5]')}`], 'list 0: 1.5 is no token id'],
    ['an unknown output', [...logits, '--tokens', '1', '--output', 'all'], '--output all: expected full, top, argmax'],
  ])('%s', async (_what, args, message) => {
    const { code, stdout, stderr } = await runHere([...args, '--json']);
    expect(stderr).toContain(message);
    expect(stderr).toMatch(/^splitkv: [^\n]+\n$/);
    expect(stdout).toBe('');
    expect(code).toBe(2);
  });

  test('no command at all shows the help', async () => {
    const { code, stdout } = await runCli([]);
    expect(stdout).toContain('Usage\n  splitkv COMMAND');
    expect(code).toBe(2);
  });
});

describe('failure: exit code 1, one line on stderr, nothing on stdout', () => {
  test.each<[string, string[], string]>([
    ...[
      ['profile', '--model', scratch, '--kv-budget', '0.2'],
      ['prefix', 'make', scratch, '--prompt', 'x'],
      ['plan', '--model', scratch],
      ['arrange', '--profile', join(scratch, 'none'), '--ranks', '2'],
    ].flatMap((args): [string, string[], string][] => [
      [
        `${args[0]} into a folder that isn't there`,
        [...args, '--out', join(scratch, 'none', 'x')],
        "x: can't be written",
      ],
      [`${args[0]} into a folder`, [...args, '--out', scratch], "can't be written: it is a folder"],
    ]),
    ['a missing model', ['generate', '--model', '/no/such', '--prompt', 'x'], '--model /no/such: no such folder'],
    ['a file as model', ['generate', '--model', 'package.json', '--prompt', 'x'], 'expected a folder'],
    [
      'a broken GGUF file',
      ['generate', '--model', join(ggufFolder, 'bad.gguf'), '--prompt', 'x'],
      'expected a GGUF file',
    ],
    ['a folder of one', ['generate', '--model', ggufFolder, '--prompt', 'x'], 'expected a GGUF file'],
    ['an empty model folder', generate, 'has no config.json'],
    ['a model and a prompt by words', ['generate', '/no/such', 'x'], '--model /no/such: no such folder'],
    [
      'a prompt by a word, before the model',
      ['generate', 'x', '--model', '/no/such'],
      '--model /no/such: no such folder',
    ],
    ['a missing token file', [...logits, '--tokens', '@/no/such.json'], "--tokens @/no/such.json: can't be read"],
    ['a broken token file', [...logits, '--tokens', `@${file('broken.json', '[1,')}`], 'not valid JSON'],
  ])('%s', async (_what, args, message) => {
    const { code, stdout, stderr } = await runHere([...args, '--json']);
    expect(stderr).toContain(message);
    expect(stderr).toMatch(/^splitkv: [^\n]+\n$/);
    expect(stdout).toBe('');
    expect(code).toBe(1);
  });

  test('--verbose adds the stack', async () => {
    const { stderr } = await runCli([...generate, '--verbose']);
    expect(stderr).toMatch(/\n\s+at /);
  });
});

test('help by the command and by help are the same, in groups, whatever else the line says', async () => {
  const { code, stdout } = await runHere(['help', 'generate', '--all']);
  expect(code).toBe(0);
  for (const words of [
    ['generate', '--help', '--all'],
    ['generate', '--all', '-h'],
    ['generate', '--nonsense', '--help', '--all'],
    ['--help', 'generate', '--all'],
  ]) {
    expect((await runHere(words)).stdout, words.join(' ')).toBe(stdout);
  }
  const heads = stdout.split('\n').filter((line) => /^[A-Z][A-Za-z ]+$/.test(line));
  expect(heads).toEqual([
    'Usage',
    'Examples',
    'Options',
    'Sampling',
    'Form of the answer',
    'Conversation',
    'Model',
    'KV cache',
    'Where and how it runs',
    'Several GPUs',
    'Cluster',
    'Output and help',
  ]);
  for (const line of stdout.split('\n')) expect(line.length, line).toBeLessThanOrEqual(110);
});

test('of many options the ten that are used most come first, and the line that lists all', async () => {
  const optionsOf = (text: string): string[] => [...text.matchAll(/^  --([\w-]+)/gm)].map(([, name]) => name!);
  const { stdout } = await runHere(['help', 'chat']);
  const whole = optionsOf((await runHere(['help', 'chat', '--all'])).stdout);
  expect(optionsOf(stdout)).toHaveLength(10);
  expect(optionsOf(stdout).slice(0, 3)).toEqual(['system', 'max-tokens', 'temperature']);
  expect(whole).toEqual(expect.arrayContaining(optionsOf(stdout)));
  expect(stdout).toMatch(new RegExp(`\n\nAll ${whole.length} options: splitkv help chat --all\n$`));
  expect((await runHere(['chat', '--help'])).stdout).toBe(stdout);
  // A few are told at once.
  expect((await runHere(['help', 'arrange'])).stdout).not.toContain('--all');
});

test('help and version are told quickly, without the engine', async () => {
  const help = await runCli(['--help']);
  expect(help).toMatchObject({ code: 0, stderr: '' });
  for (const name of ['adapters', 'generate', 'logits']) expect(help.stdout).toContain(name);
  const generateHelp = await runCli(['generate', '--help', '--all']);
  for (const option of ['--temperature T', '--top-p P', '--stop TEXT', '--raw', '--host HOST']) {
    expect(generateHelp.stdout).toContain(option);
  }
  expect((await runCli(['--version'])).stdout).toMatch(/^\d+\.\d+\.\d+\n$/);
});
