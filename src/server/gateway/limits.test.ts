import OpenAI from 'openai';
import { describe, expect, test } from 'vitest';
import { prefixHashes } from '../../cluster/routing/prefixes.js';
import { until } from '../testing/until.js';
import type { Gateway } from './gateway.js';
import { SESSION_HEADER } from './gateway.js';
import { natsServer, post, TestCluster, there } from '../testing/test_cluster.js';

const tests = new TestCluster();

/** Requests that each replica was sent. */
const asked = (gateway: Gateway): number[] =>
  gateway.replicas.members.toSorted((a, b) => (a.beat.name < b.beat.name ? -1 : 1)).map((member) => member.asked);

describe.skipIf(!natsServer)('a gateway', () => {
  test('the openai client: whole, streamed, errors as it knows them, stored responses at their replica', async () => {
    const gateway = await tests.gateway({ apiKeys: ['secret'] });
    await Promise.all([tests.join('a'), tests.join('b')]);
    await there(gateway, 'a', 'b');
    const client = new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: 'secret', maxRetries: 0 });
    const messages = [{ role: 'user' as const, content: 'hello' }];
    const request = { model: 'stand-in', messages, max_tokens: 12, seed: 1 };
    const whole = await client.chat.completions.create(request);
    const stream = client.chat.completions.stream(request);
    expect((await stream.finalChatCompletion()).choices[0]!.message.content).toBe(whole.choices[0]!.message.content);
    expect((await client.models.list()).data.map(({ id }) => id)).toEqual(['stand-in']);
    await expect(client.chat.completions.create({ ...request, messages: [] })).rejects.toMatchObject({ status: 400 });
    const wrong = new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: 'no', maxRetries: 0 });
    await expect(wrong.models.list()).rejects.toMatchObject({ status: 401 });
    for (let turn = 0; turn < 4; turn++) {
      const first = await client.responses.create({ model: 'stand-in', input: `turn ${turn}`, max_output_tokens: 5 });
      expect((await client.responses.retrieve(first.id)).output_text).toBe(first.output_text);
      const next = await client.responses.create({
        model: 'stand-in',
        input: 'and then',
        previous_response_id: first.id,
        max_output_tokens: 5,
      });
      expect(next.previous_response_id).toBe(first.id);
      await client.responses.delete(first.id);
      await expect(client.responses.retrieve(first.id)).rejects.toMatchObject({ status: 404 });
    }
  });

  test('a priority is for keys that may have one, and replicas believe the gateway', async () => {
    const gateway = await tests.gateway({ apiKeys: ['plain', 'first'], priorityKeys: ['first'] });
    await tests.join('a');
    await there(gateway, 'a');
    const ask = async (key: string, priority: number) => {
      const response = await fetch(`${gateway.url}/v1/completions`, {
        method: 'POST',
        headers: { Authorization: `Bearer ${key}` },
        body: JSON.stringify({ prompt: 'x', max_tokens: 2, priority }),
      });
      return [response.status, ((await response.json()) as { error?: { code: string } }).error?.code];
    };
    expect(await ask('plain', 100)).toEqual([403, 'priority_not_allowed']);
    expect(await ask('plain', 0)).toEqual([200, undefined]);
    expect(await ask('first', 100)).toEqual([200, undefined]);
  });

  test('a full cluster: 429 with the time to come again; a full replica leaves it to the other', async () => {
    const gateway = await tests.gateway();
    const both = await Promise.all([
      tests.join('a', { slots: 1, tokenMs: 30 }, { server: { maxQueue: 0 } }),
      tests.join('b', { slots: 1, tokenMs: 30 }, { server: { maxQueue: 0 } }),
    ]);
    await there(gateway, 'a', 'b');
    // Long enough for a busy machine to see both under way.
    const ask = () => post(gateway.url, { prompt: 'x', max_tokens: 200 });
    const first = [ask(), ask()];
    await until(() => both.every(({ live }) => live === 1));
    const refused = await ask();
    expect(refused.status).toBe(429);
    expect(Number(refused.headers.get('retry-after'))).toBeGreaterThan(0);
    expect(await refused.json()).toMatchObject({ error: { code: 'queue_full' } });
    expect((await Promise.all(first)).map(({ status }) => status)).toEqual([200, 200]);
  });

  test('a client has its share over all gateways', async () => {
    const [one, two] = [await tests.gateway(), await tests.gateway()];
    await tests.join('a', { tokenMs: 30 }, { server: { maxPerClient: 2 } });
    await Promise.all([there(one, 'a'), there(two, 'a')]);
    const ask = ({ url }: Gateway) => post(url, { prompt: 'x', max_tokens: 60 });
    const first = [ask(one), ask(two)];
    // A replica tells what it has with its beats.
    await until(() => one.replicas.member('a')!.beat.running === 2);
    const refused = await Promise.all([ask(one), ask(two)]);
    for (const response of refused) {
      expect(response.status).toBe(429);
      expect(await response.json()).toMatchObject({ error: { code: 'client_queue_full' } });
    }
    expect((await Promise.all(first)).map(({ status }) => status)).toEqual([200, 200]);
  });

  test('a draining replica ends what it has, and what takes too long goes on elsewhere', async () => {
    const gateway = await tests.gateway();
    const first = await tests.join('a', { tokenMs: 30 });
    await there(gateway, 'a');
    const long = post(gateway.url, { prompt: 'x', max_tokens: 100, seed: 1, stream: true });
    const short = post(gateway.url, { prompt: 'y', max_tokens: 15 });
    await until(() => first.live === 2);
    await tests.join('b');
    await there(gateway, 'a', 'b');
    first.drain();
    await there(gateway, 'b');
    const before = gateway.replicas.member('b')!.asked;
    expect((await post(gateway.url, { prompt: 'z' })).status).toBe(200);
    expect(gateway.replicas.member('b')!.asked).toBe(before + 1);
    await first.close(1200);
    expect((await short).status).toBe(200);
    const text = await (await long).text();
    expect(text).toMatch(/"finish_reason":"length"[^]*\[DONE\]/);
    expect(text.match(/"text":" /g)).toHaveLength(100);
  });

  test('a prefix and a session stay with a replica', async () => {
    const gateway = await tests.gateway();
    await Promise.all([tests.join('a'), tests.join('b'), tests.join('c')]);
    await there(gateway, 'a', 'b', 'c');
    const prefix = 'once upon a time there was a bridge of stone '.repeat(30);
    await post(gateway.url, { prompt: `${prefix}0` });
    // A replica tells what it has cached with its beats.
    await until(() => gateway.replicas.members.some(({ prefixes }) => (prefixes?.matched(hashesOf(prefix)) ?? 0) > 1));
    for (let turn = 1; turn < 6; turn++) await post(gateway.url, { prompt: `${prefix}${turn}` });
    expect(asked(gateway).toSorted((a, b) => a - b)).toEqual([0, 0, 6]);
    const before = asked(gateway);
    for (let turn = 0; turn < 6; turn++) {
      await post(gateway.url, { prompt: `${turn}` }, { [SESSION_HEADER]: 'one' });
    }
    const sent = asked(gateway).map((count, at) => count - before[at]!);
    expect(sent.toSorted((a, b) => a - b)).toEqual([0, 0, 6]);
  });

  test('a name that is taken is refused', async () => {
    await tests.join('a');
    await expect(tests.join('a')).rejects.toMatchObject({ code: 'usage' });
  });
});

const hashesOf = (prompt: string): Uint32Array => prefixHashes(JSON.stringify([null, prompt]));
