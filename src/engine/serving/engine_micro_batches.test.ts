import { placing } from './loop/rank_balance.js';
import { describe, expect, test } from 'vitest';
import type { Communicator } from '../../distributed/communicator.js';
import { testAdapters } from '../../gpu/testing/adapters.js';
import type { RankRunner } from '../ranks/rank_runner.js';
import { openRunner } from '../testing/open_runner.js';
import { Engine } from './engine.js';

const adapter = (await testAdapters()).at(-1)!.name;
const SLOTS = 8;

interface Event {
  readonly batch: number;
  readonly label: string;
  readonly begins: boolean;
  /** Tokens handed on before. */
  readonly tokens: number;
}

/** Exchanges of the root with the ranks that attend, in the order in which they begin and end. */
function traced(inner: Communicator, tokens: () => number, events: Event[]): Communicator {
  return {
    rank: inner.rank,
    worldSize: inner.worldSize,
    device: inner.device,
    get stats() {
      return inner.stats;
    },
    sentOn: (channel) => inner.sentOn(channel),
    async exchange(encoder, exchange) {
      const { channel: batch = 0, label } = exchange;
      events.push({ batch, label, begins: true, tokens: tokens() });
      await inner.exchange(encoder, exchange);
      events.push({ batch, label, begins: false, tokens: tokens() });
    },
    abort: (reason) => inner.abort(reason),
    dispose: () => inner.dispose(),
  };
}

/** Every second request is short: of two micro-batches one empties while the other goes on. */
const requests = Array.from({ length: SLOTS }, (_, index) => ({
  prompt: Array.from({ length: 20 + index }, (_, at) => (at * 37 + index * 101) % 320),
  maxTokens: index % 2 === 0 ? 110 : 12,
  seed: index,
  temperature: index % 4 === 0 ? 0.8 : 0,
}));

async function serveAll(
  plan: string,
  ranks: number,
  batches: number,
): Promise<{ tokens: number[][]; events: Event[] }> {
  const { group } = await openRunner({
    adapter,
    model: { seed: 67, config: { num_hidden_layers: 2 } },
    contextLength: 192,
    prefillChunk: 32,
    virtual: true,
    plan,
    ranks,
    slots: SLOTS / batches,
    batches,
    kvBlocks: 24,
  });
  const events: Event[] = [];
  let handedOn = 0;
  const { world } = group.ranks[0] as RankRunner;
  if (world.communicator) world.communicator = traced(world.communicator, () => handedOn, events);
  const engine = new Engine(group, { placing, slots: SLOTS, tokensPerIteration: 256 });
  const tokens = await Promise.all(
    requests.map(async (request) => {
      const own: number[] = [];
      const { ended } = engine.submit({
        ...request,
        eosIds: [],
        onToken: (token) => {
          own.push(token);
          handedOn++;
          return false;
        },
      });
      expect(await ended).toBe('length');
      return own;
    }),
  );
  await engine.dispose();
  return { tokens, events };
}

/** Exchanges that began while another batch's was under way. */
function overlaps(events: readonly Event[]): number {
  const under = new Set<number>();
  let count = 0;
  for (const { batch, begins } of events) {
    if (begins && [...under].some((other) => other !== batch)) count++;
    if (begins) under.add(batch);
    else under.delete(batch);
  }
  return count;
}

describe('micro-batches', () => {
  test(
    'the root goes on with one while other ranks attend for the other; tokens stay the same',
    { timeout: 300_000 },
    async () => {
      const alone = await serveAll('single', 1, 1);
      const one = await serveAll('token', 2, 1);
      const two = await serveAll('token', 2, 2);
      expect(one.tokens).toEqual(alone.tokens);
      expect(two.tokens).toEqual(alone.tokens);
      expect(overlaps(one.events)).toBe(0);
      const steps = two.events.filter(({ label, begins }) => label === 'queries' && begins);
      expect(new Set(steps.map(({ batch }) => batch))).toEqual(new Set([0, 1]));
      expect(overlaps(two.events)).toBeGreaterThan(steps.length / 2);
      // The short requests were all of one micro-batch; later it has others again.
      const longs = requests.filter(({ maxTokens }) => maxTokens > 12).length;
      const late = two.events.filter(({ tokens }) => tokens > requests.length * 12 + longs * 40);
      expect(new Set(late.map(({ batch }) => batch))).toEqual(new Set([0, 1]));
      expect(overlaps(late)).toBeGreaterThan(late.length / 8);
    },
  );
});
