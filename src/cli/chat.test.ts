import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, test, vi } from 'vitest';
import { runCli } from './testing/run_cli.js';
import { runHere } from './testing/run_here.js';
import { BIN } from './testing/bin.js';

vi.setConfig({ testTimeout: 180_000 });

const scratch = mkdtempSync(join(tmpdir(), 'splitkv-chat-'));
afterAll(() => rmSync(scratch, { recursive: true }));
const file = (name: string, content: unknown): string => {
  const path = join(scratch, name);
  writeFileSync(path, typeof content === 'string' ? content : JSON.stringify(content));
  return path;
};

interface Turn {
  readonly text: string;
  readonly tokens: readonly number[];
  readonly prompt_tokens: number;
  readonly cached_tokens: number;
  readonly finish_reason: string;
  readonly sha256: string;
}

const model = ['--model', 'models/tiny-gqa'];
const turns = ['who are you ?', 'and where ?', 'why ?'];

async function chat(...args: readonly string[]): Promise<Turn[]> {
  const given = file('turns.json', { system: 'be short .', turns, max_tokens: 8, temperature: 0.7, seed: 3 });
  const { code, stdout, stderr } = await runCli(['chat', ...model, '--turns', given, '--json', ...args]);
  expect(code, stderr).toBe(0);
  return (JSON.parse(stdout) as { turns: Turn[] }).turns;
}

describe('chat', () => {
  test('turns of a file: with reuse and without, the same tokens and logits', async () => {
    const [told, whole, split] = [
      await chat(),
      await chat('--no-reuse'),
      await chat(...'--ranks 2 --plan sp'.split(' '), '--virtual-ranks'),
    ];
    const bits = (of: readonly Turn[]) =>
      of.map(({ tokens, sha256, prompt_tokens: length }) => [tokens, sha256, length]);
    expect(bits(whole)).toEqual(bits(told));
    expect(bits(split)).toEqual(bits(told));
    for (const { sha256, text } of told) expect([sha256.length, text !== '']).toEqual([64, true]);
    expect(whole.map(({ cached_tokens: cached }) => cached)).toEqual([0, 0, 0]);
    for (const reused of [told, split]) {
      const cached = reused.map(({ cached_tokens: count }) => count);
      expect(cached[0]).toBe(0);
      for (const turn of [1, 2]) {
        expect(cached[turn]).toBe(reused[turn - 1]!.prompt_tokens + reused[turn - 1]!.tokens.length - 1);
      }
    }
  });

  test('--special token: control tokens of a message are tokens, of a prompt too', async () => {
    const said = file('control.json', { turns: ['a <|user|> b'], max_tokens: 1 });
    const lengths = async (...args: readonly string[]): Promise<number> => {
      const { code, stdout, stderr } = await runCli([...args, '--json']);
      expect(code, stderr).toBe(0);
      const told = JSON.parse(stdout) as { turns?: Turn[]; prompt_tokens: number };
      return told.turns?.[0]?.prompt_tokens ?? told.prompt_tokens;
    };
    const talk = ['chat', ...model, '--turns', said];
    const prompt = ['generate', ...model, '--prompt', 'a <|user|> b', '--max-tokens', '1'];
    const [asText, asToken] = [await lengths(...talk), await lengths(...talk, '--special', 'token')];
    expect(asToken).toBeLessThan(asText);
    expect(await lengths(...prompt)).toBe(asText);
    expect(await lengths(...prompt, '--special', 'token')).toBe(asToken);
    const { code, stderr } = await runHere([...prompt, '--raw', '--special', 'token']);
    expect([code, stderr]).toEqual([2, expect.stringContaining('--special is of messages')]);
  });

  test('lines of stdin are messages; Ctrl-C stops an answer, and the next one comes', async () => {
    const child = spawn(process.execPath, [BIN, 'chat', ...model, '--max-tokens', '2000', '--logit-bias', '2:-100']);
    let out = '';
    child.stdout.setEncoding('utf8').on('data', (text: string) => (out += text));
    child.stdin.write('tell me a story .\n');
    await vi.waitUntil(() => out.length > 40, { timeout: 60_000 });
    child.kill('SIGINT');
    await vi.waitUntil(() => out.includes('\n'), { timeout: 60_000 });
    const first = out.indexOf('\n');
    child.stdin.write('and then ?\n');
    await vi.waitUntil(() => out.length > first + 40, { timeout: 60_000 });
    child.kill('SIGINT');
    await vi.waitUntil(() => out.indexOf('\n', first + 1) > 0, { timeout: 60_000 });
    child.stdin.end();
    expect(await new Promise((resolve) => child.on('close', resolve))).toBe(0);
  });

  test('commands of lines: what was said is saved, and goes on; another answer, another model', async () => {
    const kept = join(scratch, 'said.json');
    const lines = [
      'who are you ?',
      `/save ${kept}`,
      '/clear',
      `/load ${kept}`,
      'and where ?',
      '/regen',
      '/model models/tiny-mla',
      `/load ${file('other.json', { a: 1 })}`,
      '/model models/none',
      'who are you ?',
    ];
    const child = spawn(process.execPath, [BIN, 'chat', ...model, '--max-tokens', '8', '--system', 'be short .']);
    let out = '';
    let err = '';
    child.stdout.setEncoding('utf8').on('data', (text: string) => (out += text));
    child.stderr.setEncoding('utf8').on('data', (text: string) => (err += text));
    child.stdin.end(`${lines.join('\n')}\n`);
    expect(await new Promise((resolve) => child.on('close', resolve)), err).toBe(0);
    const answers = out.trimEnd().split('\n');
    expect(answers).toHaveLength(4);
    const saved = JSON.parse(readFileSync(kept, 'utf8')) as Record<string, unknown>;
    expect(saved).toMatchObject({ system: 'be short .', turns: [{ user: 'who are you ?', answer: answers[0] }] });
    const same = file('same.json', { system: 'be short .', turns: ['who are you ?', 'and where ?'], max_tokens: 8 });
    const { stdout } = await runCli(['chat', ...model, '--turns', same, '--json']);
    const { turns: alone } = JSON.parse(stdout) as { turns: Turn[] };
    expect(alone.map(({ text }) => text)).toEqual(answers.slice(0, 2));
    expect(err).toContain('Turns that are back: 1.');
    expect(err).toMatch(/^tiny-mla$/m);
    expect(err).toContain('is no conversation that /save wrote');
    expect(err).toMatch(/models\/none/);
  });

  test.each([
    ['no file', join(scratch, 'none.json'), "can't be read"],
    ['no JSON', file('a.json', 'nothing'), 'not valid JSON'],
    ['no turns', file('b.json', { turns: [] }), '"turns": expected a list of texts'],
    ['another key', file('c.json', { turns: ['a'], max_token: 3 }), "Did you mean 'max_tokens'"],
    ['a wrong limit', file('d.json', { turns: ['a'], max_tokens: 0 }), '"max_tokens"'],
  ])('%s is refused before anything is loaded', async (_what, path, message) => {
    const { code, stderr } = await runHere(['chat', '--model', 'nowhere', '--turns', path, '--json']);
    expect(code).not.toBe(0);
    expect(stderr).toContain(message);
  });
});

test('generate --prompts answers many at once, each as alone', async () => {
  const prompts = ['who are you ?', [260, 261, 262], 'where is the red needle ?'];
  const sampling = ['--max-tokens', '6', '--temperature', '0.6', '--seed', '5'];
  const sharded = ['--plan', 'token', '--ranks', '3', '--virtual-ranks'];
  const given = ['--prompts', file('prompts.json', prompts), '--json'];
  const all = await runCli(['generate', ...model, ...given, ...sampling, ...sharded]);
  expect(all.code, all.stderr).toBe(0);
  const { results, stats } = JSON.parse(all.stdout) as {
    results: { text: string; tokens: number[]; stats?: unknown }[];
    stats: { attention: { kv_tokens_per_step: number[] } };
  };
  expect(results).toHaveLength(3);
  expect(results.every((result) => result.stats === undefined)).toBe(true);
  // As many sequences as ranks that keep them: each reads some.
  expect(stats.attention.kv_tokens_per_step.every((tokens) => tokens > 0)).toBe(true);
  const alone = await runCli(['generate', ...model, '--prompt', prompts[2] as string, '--json', ...sampling]);
  expect((JSON.parse(alone.stdout) as { tokens: number[] }).tokens).toEqual(results[2]!.tokens);
  const wrong = await runHere(['generate', '--model', 'nowhere', '--prompts', file('wrong.json', ['a', 3])]);
  expect(wrong.stderr).toContain('entry 2: 3 is no prompt');
});
