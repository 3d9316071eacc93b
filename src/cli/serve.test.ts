import { cpSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, test, vi } from 'vitest';
import { QUESTIONS, STORY } from '../../models/example.js';
import { SplitkvError } from '../base/errors.js';
import { Device } from '../gpu/index.js';
import { drawn } from '../gpu/testing/draw.js';
import { Recovery } from '../engine/serving/loop/recovery.js';
import { runOn } from './main.js';
import { runCli } from './testing/run_cli.js';
import { ServerProcess } from './testing/run_server.js';

const model = ['--model', 'models/tiny-gqa'];
let running: ServerProcess | undefined;
afterEach(async () => {
  await running?.stop('SIGKILL');
  running = undefined;
});

interface ReadyDocument {
  readonly url: string;
  readonly model: string;
}

const ask = (url: string, body: object, headers: Record<string, string> = {}): Promise<Response> =>
  fetch(`${url}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', ...headers },
    body: JSON.stringify(body),
  });

const messages = [{ role: 'user', content: `${STORY} ${QUESTIONS[0].question}` }];

describe('serve', () => {
  test(
    'says where it is, answers, lets requests finish at SIGTERM, and ends with 0',
    { timeout: 300_000 },
    async () => {
      const keys = join(mkdtempSync(join(tmpdir(), 'splitkv-keys-')), 'keys');
      writeFileSync(keys, 'three priority\r\n\nfour\n');
      running = new ServerProcess(
        [
          ...model,
          ...'--port 0 --json --api-key one --slots 2 --verbose --drain-delay 1 --api-key-file'.split(' '),
          keys,
        ],
        // As a file's last line has it.
        { SPLITKV_API_KEY: 'two\n' },
      );
      const document = JSON.parse(await running.ready()) as ReadyDocument;
      expect(document).toMatchObject({ model: 'tiny-gqa', slots: 2, context: 4096, kv_blocks: 128, plan: 'single' });
      expect(document.url).toMatch(/^http:\/\/127\.0\.0\.1:\d+$/);
      expect((await ask(document.url, { messages })).status).toBe(401);
      const answer = await ask(document.url, { messages, model: document.model }, { Authorization: 'Bearer two' });
      expect(await answer.json()).toMatchObject({
        choices: [
          { message: { content: expect.stringContaining(QUESTIONS[0].answer) as string }, finish_reason: 'stop' },
        ],
      });

      const urgent = { messages, max_tokens: 1, priority: 5 };
      expect((await ask(document.url, urgent, { Authorization: 'Bearer three' })).status).toBe(200);
      expect((await ask(document.url, urgent, { Authorization: 'Bearer four' })).status).toBe(403);
      expect((await ask(document.url, urgent, { Authorization: 'Bearer one' })).status).toBe(403);

      const stream = await ask(
        document.url,
        { messages, stream: true, max_tokens: 60, ignore_eos: true },
        { Authorization: 'Bearer one' },
      );
      const code = running.stop('SIGTERM');
      const isReady = async (): Promise<number> => (await fetch(`${document.url}/readyz`)).status;
      for (let status = 200; status !== 503;) status = await isReady();
      expect(await stream.text()).toMatch(/"finish_reason":"length"[^]*\[DONE\]/);
      expect(await code).toBe(0);
      expect(running.stdout.trim()).toBe(JSON.stringify(document)); // one line, nothing else
      expect(running.stderr).toMatch(/POST \/v1\/chat\/completions 401 refused/);
    },
  );

  test(
    'a model whose chat template loops: requests are refused, /health answers, SIGTERM ends it',
    { timeout: 300_000 },
    async () => {
      const folder = mkdtempSync(join(tmpdir(), 'splitkv-loops-'));
      try {
        cpSync('models/tiny-gqa', folder, { recursive: true });
        const loops = `${'{% for i in range(3000) %}'.repeat(3)}x${'{% endfor %}'.repeat(3)}`;
        writeFileSync(join(folder, 'chat_template.jinja'), loops);
        running = new ServerProcess(['--model', folder, '--port', '0', '--json', '--slots', '1', '--context', '256']);
        const { url } = JSON.parse(await running.ready()) as ReadyDocument;
        // One is short enough to be read beside the others' answers, one goes to a thread.
        const asked = ['x', 'x', 'y'.repeat(10_000)].map((content) =>
          ask(url, { messages: [{ role: 'user', content }] }),
        );
        const health = await Promise.all(Array.from({ length: 5 }, () => fetch(`${url}/health`)));
        expect(health.map(({ status }) => status)).toEqual([200, 200, 200, 200, 200]);
        for (const answer of await Promise.all(asked)) {
          expect(answer.status).toBe(400);
          expect(await answer.text()).toMatch(/chat template takes more than [\d.]+ steps/);
        }
        const last = ask(url, { messages }).catch(() => undefined);
        expect(await running.stop('SIGTERM')).toBe(0);
        await last;
      } finally {
        rmSync(folder, { recursive: true });
      }
    },
  );

  test('on two ranks, in words', { timeout: 300_000 }, async () => {
    const ranks = ['--ranks', '2', '--virtual-ranks', '--plan', 'tp'];
    const limits = ['--context', '512', '--kv-memory', '1MB', '--max-queue', '0', '--max-body', '1000'];
    running = new ServerProcess([...model, ...ranks, ...limits, '--port', '0', '--served-name', 'reader']);
    const line = await running.ready();
    // 4 layers, K and V, 2 of 4 heads of 32 a rank, in f32: 2048 bytes per token, 7 blocks of 64 in a megabyte.
    expect(line).toMatch(
      /^reader at http:\/\/127\.0\.0\.1:\d+\/v1 \(context of 512 tokens, 16 slots, KV cache for 448 tokens; tp, /,
    );
    const url = /http:\/\/[^/]+/.exec(line)![0];
    const answer = await ask(url, { messages: [{ role: 'user', content: 'hello' }], model: 'reader', max_tokens: 3 });
    expect(answer.status).toBe(200);
    expect((await ask(url, { messages: [{ role: 'user', content: 'x'.repeat(2000) }] })).status).toBe(413);
    expect(await running.stop('SIGINT')).toBe(0);
  });
});

test('a GPU that is lost for good ends a server that is to end then', { timeout: 120_000 }, async () => {
  vi.spyOn(Recovery.prototype, 'rebuild').mockRejectedValue(new SplitkvError('no_webgpu', 'the driver is gone'));
  const devices = vi.spyOn(Device, 'open');
  const notes: string[] = [];
  let ready!: (line: string) => void;
  const line = new Promise<string>((resolve) => (ready = resolve));
  const code = runOn(['serve', ...model, '--port', '0', '--exit-on-failure'], {
    signal: new AbortController().signal,
    write: (text) => Promise.resolve(ready(text)),
    note: (text) => void notes.push(text),
    progress: () => {},
  });
  const url = /http:\/\/[^/]+/.exec(await Promise.race([line, code.then(() => notes.join('\n'))]))![0];
  for (const { value } of devices.mock.results) ((await value) as Device).gpu.destroy();
  const answer = await ask(url, { messages, max_tokens: 4 });
  expect(answer.status).toBe(503);
  expect(await code).toBe(1);
  expect(notes.join('\n')).toContain('splitkv: the model failed for good: the driver is gone');
  vi.restoreAllMocks();
});

test('attention data parallelism: answers, and how evenly the ranks worked', { timeout: 300_000 }, async () => {
  const plan = [
    '--ranks',
    '2',
    '--virtual-ranks',
    '--plan',
    'adp',
    '--attention-dp-config={"enable_balance": true, "timeout_iters": 4}',
    '--no-prefix-caching',
  ];
  running = new ServerProcess(['--model', 'models/tiny-mla', ...plan, '--slots', '4', '--port', '0', '--json']);
  const document = JSON.parse(await running.ready()) as ReadyDocument;
  expect(document).toMatchObject({ plan: 'adp', slots: 4, ranks: [{}, {}] });
  const wanted = { messages, model: document.model, max_tokens: 12 };
  const texts = await Promise.all(
    [0, 1, 2].map(async () => ((await (await ask(document.url, wanted)).json()) as { choices: unknown }).choices),
  );
  expect(texts[1]).toEqual(texts[0]);
  expect(texts[2]).toEqual(texts[0]);
  expect(JSON.stringify(texts[0])).toContain(QUESTIONS[0].answer);
  const metrics = await (await fetch(`${document.url}/metrics`)).text();
  const value = (name: string): number =>
    Number(
      metrics
        .split('\n')
        .find((line) => line.startsWith(`${name} `))
        ?.slice(name.length + 1),
    );
  // Each rank had a prompt, which is longer than the answers.
  const prompts = value('splitkv_prompt_tokens_total') / 3;
  for (const rank of [0, 1]) {
    expect(value(`splitkv_rank_tokens_total{rank="${rank}"}`)).toBeGreaterThan(prompts / 2);
    expect(value(`splitkv_rank_tokens{rank="${rank}"}`)).toBeGreaterThan(0);
  }
  for (const ratio of ['splitkv_balance_ratio', 'splitkv_mean_balance_ratio', 'splitkv_weighed_balance_ratio']) {
    expect(value(ratio)).toBeGreaterThanOrEqual(0.5);
    expect(value(ratio)).toBeLessThanOrEqual(1);
  }
  expect(value('splitkv_sol_seconds_total')).toBeLessThanOrEqual(value('splitkv_iteration_seconds_total'));
  expect(value('splitkv_sol_tokens_per_second')).toBeGreaterThan(0);
  expect(await running.stop('SIGINT')).toBe(0);
});

describe('serve: bad usage and failure, one line on stderr', () => {
  const refused: [string, string[], number, string][] = [
    ['a host', ['--host', 'chrome'], 2, 'unknown option --host'],
    ['a port that is none', ['--port', '70000'], 2, '--port 70000: expected an integer from 0 to 65535'],
    ['no slots', ['--slots', '0'], 2, '--slots 0: expected an integer from 1 to 256'],
    ['a size that is none', ['--kv-memory', 'much'], 2, '--kv-memory much: expected a size'],
    ['several sizes', ['--kv-memory', '1MB,2MB'], 2, '--kv-memory 1MB,2MB: expected one size'],
    ['an empty key', ['--api-key='], 2, '--api-key: expected letters'],
    ['an origin with a path', ['--allow-origin', 'https://a.example/x'], 2, 'such as https://a.example, or *'],
    ['balance that is no JSON', ['--attention-dp-config', 'on'], 2, 'expected JSON, such as {"enable_balance": false}'],
    ['no prefill worker', ['--prefill-workers', '0'], 2, '--prefill-workers 0: expected 1 to 64 workers'],
    [
      'balance without ranks to balance',
      ['--attention-dp-config', '{"enable_balance": true}'],
      2,
      "plan 'single': balance between ranks (attentionDpConfig) can't be had with a plan that keeps all requests on the same ranks",
    ],
    ['an address of others', ['--listen', '203.0.113.1', '--no-auth'], 1, "can't listen on 203.0.113.1"],
    ['an open door', ['--listen', '0.0.0.0'], 2, '--listen 0.0.0.0: whoever reaches it could use this server'],
    ['a door that is open and shut', ['--no-auth', '--api-key', 'x'], 2, '--no-auth: leave out the keys'],
    ['a file of keys that is missing', ['--api-key-file', '/nowhere'], 1, "can't be read: ENOENT"],
    ['a file of keys without any', ['--api-key-file', '/dev/null'], 2, 'there is no key in it'],
    ['a file with a key that has a blank', ['--api-key-file', 'LICENSE'], 2, "a blank and 'priority'"],
    ['metrics behind no key', ['--protect-metrics'], 2, 'there is no key'],
  ];
  test.each(drawn(refused, 4, 'refused by serve'))('%s', async (_what, args, expected, message) => {
    const { code, stdout, stderr } = await runCli(['serve', ...model, ...args]);
    expect(stderr).toContain(message);
    expect(stderr).toMatch(/^splitkv: [^\n]+\n$/);
    expect(stdout).toBe('');
    expect(code).toBe(expected);
  });

  test('a port in use is told before the model is loaded', async () => {
    const server = createServer();
    await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
    const { port } = server.address() as AddressInfo;
    const { code, stderr } = await runCli(['serve', ...model, '--port', String(port)]);
    server.close();
    expect(stderr).toBe(
      `splitkv: port ${port} is in use on 127.0.0.1; choose another with --port, or 0 for a free one\n`,
    );
    expect(code).toBe(1);
  });
});
