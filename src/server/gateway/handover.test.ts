import { describe, expect, test } from 'vitest';
import { NatsLink, newLink } from '../../cluster/links/nats_link.js';
import { encode } from '../replicas/messages.js';
import type { Replica } from '../replicas/replica.js';
import { until } from '../testing/until.js';
import type { Gateway } from './gateway.js';
import { natsServer, TestCluster, there } from '../testing/test_cluster.js';

const tests = new TestCluster();
const gatewayOf = (): Promise<Gateway> => tests.gateway({ apiKeys: ['one', 'two'] });

interface Member {
  readonly close: Replica['close'];
  readonly notes: string[];
  readonly strange: unknown[];
}

async function join(name: string): Promise<Member> {
  const notes: string[] = [];
  const strange: unknown[] = [];
  const joined = await tests.join(
    name,
    {},
    {
      onNote: (line) => notes.push(line),
      onStrange: (error) => strange.push(error),
    },
  );
  return { close: (graceMs) => joined.close(graceMs), notes, strange };
}

interface Told {
  readonly status: number;
  readonly id: string;
  readonly output: readonly unknown[];
  readonly previous_response_id: string | null;
}

async function ask(gateway: Gateway, path: string, body?: object, key = 'one', method = body ? 'POST' : 'GET') {
  const headers = { 'Content-Type': 'application/json', Authorization: `Bearer ${key}` };
  const answer = await fetch(`${gateway.url}${path}`, { method, headers, ...(body && { body: JSON.stringify(body) }) });
  return { ...((await answer.json()) as Told), status: answer.status };
}
const respond = (gateway: Gateway, input: string, previous?: string, key?: string) =>
  ask(gateway, '/v1/responses', { input, max_output_tokens: 5, seed: 1, previous_response_id: previous }, key);

describe.skipIf(!natsServer)('responses that a replica keeps', () => {
  test('go to another one when it leaves, and on with that one; each client has its own', async () => {
    const gateway = await gatewayOf();
    const first = await join('a');
    await there(gateway, 'a');
    const mine = await respond(gateway, 'hello');
    const next = await respond(gateway, 'and then', mine.id);
    const theirs = await respond(gateway, 'other', undefined, 'two');
    expect([mine.status, next.status, theirs.status]).toEqual([200, 200, 200]);
    const expected = await ask(gateway, `/v1/responses/${next.id}`);
    const inputs = await ask(gateway, `/v1/responses/${next.id}/input_items`);
    const goesOn = await respond(gateway, 'what else', next.id);
    // Another replica's process each time, under a name of its own.
    let leaving = first;
    for (const [from, name] of [
      ['a', 'b'],
      ['b', 'c'],
    ] as const) {
      const heir = await join(name);
      await there(gateway, from, name);
      await leaving.close(1000);
      expect(leaving.notes).toEqual([expect.stringMatching(new RegExp(`^${name} has its \\d+ kept responses$`))]);
      await there(gateway, name);
      expect(await ask(gateway, `/v1/responses/${next.id}`)).toEqual(expected);
      expect(await ask(gateway, `/v1/responses/${next.id}/input_items`)).toEqual(inputs);
      expect((await ask(gateway, `/v1/responses/${next.id}`, undefined, 'two')).status).toBe(404);
      expect((await ask(gateway, `/v1/responses/${theirs.id}`, undefined, 'two')).status).toBe(200);
      const again = await respond(gateway, 'what else', next.id);
      expect(again).toMatchObject({ status: 200, previous_response_id: next.id });
      expect(textOf(again)).toBe(textOf(goesOn));
      leaving = heir;
    }
    // A gateway that came later knows it, too.
    const late = await gatewayOf();
    await there(late, 'c');
    expect(await ask(late, `/v1/responses/${mine.id}`)).toMatchObject({ status: 200, id: mine.id });
    expect((await ask(late, `/v1/responses/${mine.id}`, undefined, 'one', 'DELETE')).status).toBe(200);
    expect((await ask(gateway, `/v1/responses/${mine.id}`)).status).toBe(404);
  });

  test('are asked for while they move: the answer waits for the replica that has them', async () => {
    const gateway = await gatewayOf();
    const [leaving] = [await join('a'), await there(gateway, 'a')];
    const { id } = await respond(gateway, 'hello');
    await join('b');
    await there(gateway, 'a', 'b');
    let over = false;
    const left = leaving.close(1000).then(() => (over = true));
    const found: number[] = [];
    while (!over) found.push((await ask(gateway, `/v1/responses/${id}`)).status);
    await left;
    found.push((await ask(gateway, `/v1/responses/${id}`)).status);
    expect([...new Set(found)]).toEqual([200]);
  });

  test('go with the last replica, which says so', async () => {
    const gateway = await gatewayOf();
    const only = await join('a');
    await there(gateway, 'a');
    await respond(gateway, 'hello');
    await only.close(1000);
    expect(only.notes).toEqual(['1 kept responses go with it: no replica takes them']);
  });

  test('messages that hand over nothing end in an error, and keep nothing', async () => {
    const gateway = await gatewayOf();
    const heir = await join('a');
    await there(gateway, 'a');
    const { instance } = gateway.replicas.members[0]!.beat;
    const subject = tests.cluster.subject('replica', instance, 'heir', 'deadbeef');
    const wrong = [
      '',
      '{}',
      'x\n',
      '[]\n',
      '{}\n',
      '{"from":"deadbeef","model":"stand-in"}\n',
      '{"from":1,"model":"stand-in","link":{}}\n',
    ];
    for (const text of wrong) tests.cluster.connection.publish(subject, text);
    await until(() => heir.strange.length === wrong.length);
    const hand = async (values: readonly unknown[]): Promise<unknown> => {
      const [near, far] = newLink();
      const asked = encode({ from: 'deadbeef', model: 'stand-in', link: far });
      const answer = await tests.cluster.connection.request(subject, asked, { timeout: 5000 });
      expect(answer.string()).toBe('yes');
      return new Promise((resolve) => {
        const link = new NatsLink(tests.cluster, near, { message: resolve, ended: resolve });
        for (const value of values) link.post(value);
      });
    };
    const message = { role: 'user', content: 'hello' };
    const whole = { client: 'me', body: { id: 'resp_deadbeef_1' }, items: [], messages: [message] };
    const response = (change: object): object => ({ kind: 'response', kept: { ...whole, ...change } });
    const none = [
      null,
      'kept',
      { kind: 'other' },
      response({ client: '../x' }),
      response({ body: { id: 'x' } }),
      response({ body: null }),
      response({ items: 1 }),
      response({ messages: [{ role: 'nobody', content: 'x' }] }),
      response({ messages: [{ role: 'user', content: 5 }] }),
      { kind: 'end', keeps: ['x'] },
      { kind: 'end', keeps: Array.from({ length: 65 }, () => 'deadbeef') },
    ];
    const refused = await Promise.all(none.map((value) => hand([value])));
    for (const [at, said] of refused.entries()) expect(said, JSON.stringify(none[at])).toMatch(/left|nothing came/);
    const other = encode({ from: 'deadbeef', model: 'another', link: newLink()[0] });
    expect((await tests.cluster.connection.request(subject, other, { timeout: 5000 })).string()).toBe('no');
    const pictured = { role: 'user', content: [{ type: 'image_url', image_url: { url: 'data:image/png;base64,' } }] };
    const all = [response({}), response({ body: { id: 'resp_deadbeef_2' }, messages: [pictured] })];
    expect(await hand([...all, { kind: 'end', keeps: ['deadbeef'] }])).toBe('kept');
    await until(() => gateway.replicas.ofInstance('deadbeef') !== undefined);
    expect(gateway.replicas.ofInstance('deadbeef')!.beat.keeps).toEqual(['deadbeef']);
  });
});

const textOf = ({ output }: Told): string =>
  JSON.stringify(output, (key, value: unknown) => (key === 'id' ? undefined : value));
