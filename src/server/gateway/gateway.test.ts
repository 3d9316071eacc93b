import { drawn, isTurn } from '../../gpu/testing/draw.js';
import { describe, expect, test } from 'vitest';
import { ApiServer } from '../api_server.js';
import type { Replica } from '../replicas/replica.js';
import { ReplicaProcess } from '../testing/replica_process.js';
import { standInModel, type StandInOptions } from '../testing/stand_in_model.js';
import { until } from '../testing/until.js';
import type { Gateway } from './gateway.js';
import { natsServer, post, TestCluster, there } from '../testing/test_cluster.js';

const tests = new TestCluster();

/** Replicas that can be killed. */
async function start(name: string, options: StandInOptions = {}): Promise<ReplicaProcess> {
  const process = new ReplicaProcess({ servers: tests.url, replica: name, ...options });
  tests.closes(() => process.signal('SIGKILL'));
  await process.ready();
  return process;
}

/** Breaks the replica that has a stream. */
async function breakBusy(gateway: Gateway, replicas: readonly (readonly [string, Replica])[]): Promise<void> {
  for (const [name, joined] of replicas) {
    if ((gateway.replicas.member(name)?.calls.size ?? 0) > 0) await joined.vanish();
  }
}

const metric = async ({ url }: Gateway, name: string): Promise<number> => {
  const text = await (await fetch(`${url}/metrics`)).text();
  return Number(new RegExp(`^${name}(?:{[^}]*})? (.*)$`, 'm').exec(text)![1]);
};

interface Chunk {
  readonly id: string;
  readonly created: number;
  readonly choices: readonly {
    readonly index: number;
    readonly text?: string;
    readonly delta?: { readonly content?: string; readonly tool_calls?: readonly { readonly id?: string }[] };
  }[];
}

const TOOL = { type: 'function', function: { name: 'look', parameters: { type: 'object' } } };

interface Event {
  readonly id?: string;
  readonly sequence_number?: number;
  readonly response?: { readonly id: string };
}

/** A stream's text; hears how many events there are as they come. */
async function read(response: Response, onEvents: (count: number) => void): Promise<string> {
  let raw = '';
  for await (const text of response.body!.pipeThrough(new TextDecoderStream())) {
    raw += text;
    onEvents(raw.split(/\n+/).length);
  }
  return raw;
}

/** A stream's chunks; hears of each event as it comes. */
async function chunksOf(response: Response, onEvent: (count: number) => void = () => {}): Promise<Chunk[]> {
  const chunks: Chunk[] = [];
  let rest = '';
  let isDone = false;
  for await (const bytes of response.body!.pipeThrough(new TextDecoderStream())) {
    rest += bytes;
    const blocks = rest.split('\n\n');
    rest = blocks.pop()!;
    for (const block of blocks.filter((text) => text.startsWith('data: '))) {
      if (block === 'data: [DONE]') isDone = true;
      else chunks.push(JSON.parse(block.slice(6)) as Chunk);
      onEvent(chunks.length);
    }
  }
  expect(isDone).toBe(true);
  return chunks;
}

/** What each answer says. */
function textsOf(chunks: readonly Chunk[]): string[] {
  const texts: string[] = [];
  for (const { choices } of chunks) {
    for (const { index, text, delta } of choices) {
      texts[index] = (texts[index] ?? '') + (text ?? delta?.content ?? '');
    }
  }
  return texts;
}

describe.skipIf(!natsServer)('a gateway', () => {
  test('answers what replicas answer: models, whole and streamed, errors, tokens', async () => {
    const gateway = await tests.gateway();
    const { url } = gateway;
    expect((await fetch(`${url}/readyz`)).status).toBe(503);
    const early = await post(url, { prompt: 'x' });
    expect([early.status, early.headers.get('retry-after')]).toEqual([503, '2']);
    await tests.join('a');
    await there(gateway, 'a');
    expect((await fetch(`${url}/readyz`)).status).toBe(200);
    const direct = await new ApiServer({}).listen();
    tests.closes(() => direct.close());
    direct.open(standInModel());
    const body = { model: 'stand-in', prompt: 'the cat', max_tokens: 20, seed: 3, n: 2 };
    const [mine, theirs] = await Promise.all([post(url, body), post(direct.url, body)]);
    const whole = (await mine.json()) as { choices: { text: string }[] };
    expect(whole.choices).toEqual(((await theirs.json()) as typeof whole).choices);
    const streamed = await chunksOf(await post(url, { ...body, stream: true }));
    expect(textsOf(streamed)).toEqual(whole.choices.map(({ text }) => text));
    for (const [path, wrong] of [
      ['/v1/completions', { prompt: 1 }],
      ['/v1/chat/completions', { messages: [] }],
      ['/v1/messages', { messages: [{ role: 'user', content: 'x' }] }],
    ] as const) {
      const [here, other] = await Promise.all([post(url, wrong, {}, path), post(direct.url, wrong, {}, path)]);
      expect([here.status, await here.json()]).toEqual([other.status, await other.json()]);
    }
    const ignored = await post(url, { prompt: 'x', max_tokens: 1, foo: 1 });
    expect(ignored.headers.get('x-splitkv-ignored')).toBe('foo');
    expect(await (await post(url, { prompt: 'x' }, {}, '/tokenize')).json()).toMatchObject({ count: 3 });
    expect(await (await fetch(`${url}/v1/models`)).json()).toMatchObject({ data: [{ id: 'stand-in' }] });
    expect((await post(url, { model: 'other', prompt: 'x' })).status).toBe(404);
    expect((await post(url, [])).status).toBe(400);
    expect(await metric(gateway, 'splitkv_replica_requests_total')).toBeGreaterThan(5);
  });

  const calls: [what: string, path: string, body: object][] = [
    ['a text', '/v1/completions', { prompt: 'the cat' }],
    ['several texts', '/v1/completions', { prompt: ['the cat', 'the dog'], n: 2 }],
    ['a chat', '/v1/chat/completions', { messages: [{ role: 'user', content: 'hi' }], tools: [TOOL], n: 2 }],
    ['a response', '/v1/responses', { input: 'hi', max_output_tokens: 60 }],
    ['a message', '/v1/messages', { messages: [{ role: 'user', content: 'hi' }] }],
    [
      'a chat in lines',
      '/api/chat',
      { model: 'stand-in', messages: [{ role: 'user', content: 'hi' }], options: { num_predict: 60 } },
    ],
    ['a text in lines', '/api/generate', { model: 'stand-in', prompt: 'the cat', options: { num_predict: 60 } }],
    ["llama.cpp's text", '/completion', { prompt: 'the cat', n_predict: 60 }],
  ];
  test.each(drawn(calls, 2, 'replicas that vanish'))(
    '%s goes on when its replica vanishes, and a whole one is answered',
    { timeout: 60_000 },
    async (_, path, body) => {
      const gateway = await tests.gateway();
      const { url } = gateway;
      const first = await tests.join('a', { tokenMs: 40 });
      await there(gateway, 'a');
      // No seed: the gateway draws one.
      const asked = { ...(path === '/v1/responses' || !path.startsWith('/v1') ? {} : { max_tokens: 60 }), ...body };
      const whole = post(url, { ...asked, stream: false }, {}, path);
      await until(() => gateway.replicas.member('a')!.calls.size === 1);
      const stream = await post(url, { ...asked, stream: true }, {}, path);
      const second = tests.join('b');
      let isBroken = false;
      const raw = await read(stream, (events) => {
        if (events < 10 || isBroken) return;
        isBroken = true;
        void first.vanish();
      });
      await second;
      expect(isBroken).toBe(true);
      expect(await metric(gateway, 'splitkv_gateway_resumed_total')).toBe(1);
      const told = await whole;
      expect([told.status, told.status === 200 ? '' : await told.text()]).toEqual([200, '']);
      // As the API's own checks of a stream would have it: one id of each kind, numbers in order.
      const events = raw.split(/\n+/).flatMap((line) => /^(?:data: )?(\{.*)$/.exec(line)?.[1] ?? []);
      const values = events.map((text) => JSON.parse(text) as Event);
      const ids = new Set(values.flatMap(({ id, response }) => id ?? response?.id ?? []));
      expect(ids.size).toBeLessThanOrEqual(1);
      const numbers = values.flatMap(({ sequence_number: number }) => number ?? []);
      expect(numbers).toEqual(numbers.map((_each, index) => index));
      expect(raw).toMatch(/\[DONE\]|response\.incomplete|message_stop|"done":true|"stop":true/);
    },
  );

  test('a stream that went on is the one that would have been', { timeout: 60_000 }, async () => {
    const gateway = await tests.gateway();
    const { url } = gateway;
    const body = {
      messages: [{ role: 'user', content: 'hi' }],
      tools: [TOOL],
      n: 3,
      seed: 9,
      max_tokens: 40,
      stream: true,
      stream_options: { include_usage: true },
    };
    const ask = (): Promise<Response> => post(url, body, {}, '/v1/chat/completions');
    const replicas = [
      ['a', await tests.join('a', { tokenMs: 15 })] as const,
      ['b', await tests.join('b', { tokenMs: 15 })] as const,
    ];
    await there(gateway, 'a', 'b');
    const chunks = await chunksOf(await ask(), (count) => {
      if (count === 40) void breakBusy(gateway, replicas);
    });
    expect(await metric(gateway, 'splitkv_gateway_resumed_total')).toBe(1);
    const alone = await chunksOf(await ask());
    expect(textsOf(chunks)).toEqual(textsOf(alone));
    expect(chunks).toHaveLength(alone.length);
    expect(new Set(chunks.map(({ id, created }) => `${id} ${created}`)).size).toBe(1);
    const calls = chunks.flatMap(({ choices }) => choices.flatMap(({ delta }) => delta?.tool_calls ?? []));
    expect(new Set(calls.map(({ id }) => id)).size).toBe(3);
  });

  test('another kind of adapter: the stream ends with an error', { timeout: 60_000 }, async () => {
    const gateway = await tests.gateway({ patienceMs: 1500 });
    const replica = await tests.join('a', { tokenMs: 40 });
    await there(gateway, 'a');
    const stream = await post(gateway.url, { prompt: 'x', max_tokens: 60, stream: true, seed: 1 });
    const other = tests.join('b', { adapter: 'other' });
    let isBroken = false;
    const raw = await read(stream, (events) => {
      if (events < 10 || isBroken) return;
      isBroken = true;
      void replica.vanish();
    });
    expect(raw).toMatch(/no replica of the kind that began the answer is ready/);
    expect(raw).not.toMatch(/DONE/);
    await other;
  });

  test.runIf(isTurn(2, 'gateway and processes'))(
    'processes: one that is killed, one that stands still, one that computes for long',
    { timeout: 180_000 },
    async () => {
      const gateway = await tests.gateway();
      const names = ['a', 'b', 'c'];
      const processes = new Map(
        await Promise.all(names.map(async (name) => [name, await start(name, { tokenMs: 20 })] as const)),
      );
      await there(gateway, ...names);
      for (const [round, signal] of (['SIGKILL', 'SIGSTOP'] as const).entries()) {
        let isSent = false;
        const stream = await post(gateway.url, { prompt: 'x', max_tokens: 60, stream: true });
        const chunks = await chunksOf(stream, (count) => {
          if (count < 10 || isSent) return;
          isSent = true;
          const busy = gateway.replicas.members.find(({ calls }) => calls.size > 0)!;
          void processes.get(busy.beat.name)!.signal(signal);
        });
        expect(textsOf(chunks)[0]!.trim().split(' ')).toHaveLength(60);
        expect(await metric(gateway, 'splitkv_gateway_resumed_total')).toBe(round + 1);
      }
      // Its thread of heartbeats says that it lives.
      await Promise.all([...processes.values()].map((process) => process.signal('SIGKILL')));
      await start('d', { tokenMs: 10, blocksMs: 3000 });
      await there(gateway, 'd');
      const long = await chunksOf(await post(gateway.url, { prompt: 'x', max_tokens: 20, stream: true }));
      expect(textsOf(long)[0]!.trim().split(' ')).toHaveLength(20);
      expect(await metric(gateway, 'splitkv_gateway_moved_total')).toBe(2);
    },
  );
});
