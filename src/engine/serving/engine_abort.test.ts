import { afterEach, describe, expect, test, vi } from 'vitest';
import { Random } from '../../base/random.js';
import { type Device, openDevice } from '../../gpu/index.js';
import { testAdapters } from '../../gpu/testing/adapters.js';
import { drawn } from '../../gpu/testing/draw.js';
import { openRunner } from '../testing/open_runner.js';
import { Engine } from './engine.js';
import type { EngineOptions, EngineRequest } from './loop/requests.js';
import { placing } from './loop/rank_balance.js';

afterEach(() => void vi.restoreAllMocks());

const adapter = (await testAdapters()).at(-1)!;
const VOCAB = 320;
const tokens = (seed: number, length: number): number[] => {
  const random = new Random(seed);
  return Array.from({ length }, () => random.integer(VOCAB));
};

type Opening = Partial<Parameters<typeof openRunner>[0]>;

/** Dispatches that the devices were given; `onDispatch` after each. */
function counting(onDispatch: () => void): { readonly open: Opening['open']; count: number } {
  const state = {
    count: 0,
    open: async (request: Parameters<typeof openDevice>[0]): Promise<Device> => {
      const device = await openDevice(request);
      const create = device.gpu.createCommandEncoder.bind(device.gpu);
      device.gpu.createCommandEncoder = (descriptor) => {
        const encoder = create(descriptor);
        const begin = encoder.beginComputePass.bind(encoder);
        encoder.beginComputePass = (of) => {
          const pass = begin(of);
          const dispatch = pass.dispatchWorkgroups.bind(pass);
          pass.dispatchWorkgroups = (...grid) => {
            state.count++;
            onDispatch();
            return dispatch(...grid);
          };
          return pass;
        };
        return encoder;
      };
      return device;
    },
  };
  return state;
}

const PLANS: readonly (readonly [string, Opening, Partial<EngineOptions>])[] = [
  ['one rank', {}, {}],
  ['one rank, MLA and experts', { model: { seed: 3, config: { model_type: 'deepseek_v3' } } }, {}],
  ['tp', { plan: 'tp', ranks: 2 }, {}],
  ['sp', { plan: 'sp', ranks: 2 }, {}],
  ['pp, micro-batches', { plan: 'pp', ranks: 2, batches: 2 }, {}],
  ['token', { plan: 'token', ranks: 2 }, {}],
  ['adp', { plan: 'adp', ranks: 2, model: { seed: 3, config: { model_type: 'deepseek_v3' } } }, {}],
];

describe('an aborted prompt', () => {
  test.each(drawn(PLANS, 1, 'aborted prompts'))(
    'ends after what is submitted, frees its blocks, and leaves others alone: %s',
    { timeout: 240_000 },
    async (_name, { batches = 1, ...opening }, options) => {
      // A clock that runs a second at each look: submits are as short as can be.
      let now = 0;
      vi.spyOn(performance, 'now').mockImplementation(() => (now += 1000));
      let onDispatch = (): void => {};
      const devices = counting(() => onDispatch());
      const { group } = await openRunner({
        adapter: adapter.name,
        model: { seed: 31 },
        contextLength: 640,
        prefillChunk: 128,
        slots: 4 / batches,
        batches,
        kvBlocks: 64,
        virtual: true,
        open: devices.open,
        ...opening,
      });
      const engine = new Engine(group, {
        placing,
        slots: 4,
        tokensPerIteration: 128,
        iterationsInFlight: 4,
        recover: false,
        ...options,
      });
      const ask = (prompt: number[], more: Partial<EngineRequest> = {}) => {
        const got: number[] = [];
        const onToken = (token: number): boolean => got.push(token) < 0;
        const handle = engine.submit({ prompt, maxTokens: 6, seed: 5, temperature: 1, eosIds: [], onToken, ...more });
        return { got, handle };
      };
      const long = tokens(1, 512);
      const other = tokens(2, 70);
      const free = engine.metrics.kvBlocksFree;

      const before = devices.count;
      const whole = ask(long, { maxTokens: 1 });
      expect(await whole.handle.ended).toBe('length');
      const dispatches = devices.count - before;
      const first = ask(other);
      expect(await first.handle.ended).toBe('length');
      const others = devices.count - before - dispatches;

      const start = devices.count;
      let left: number | undefined;
      const dropped = ask(long, { promptRows: { all: true, onRow: () => expect(left).toBeUndefined() } });
      // In the middle of the first of four chunks, from within the encoding of one of its submits.
      onDispatch = () => {
        if (left !== undefined || devices.count - start < dispatches / 16) return;
        left = devices.count;
        dropped.handle.abort();
      };
      expect(await dropped.handle.ended).toBe('aborted');
      expect(engine.metrics.kvBlocksFree).toBe(free);
      // What the next request needs comes after what is left of the aborted one.
      const next = ask(other);
      expect(await next.handle.ended).toBe('length');
      expect(next.got).toEqual(first.got);
      expect(next.got).toHaveLength(6);
      // All four chunks were queued already.
      const since = devices.count - left! - others;
      expect(since, `${dispatches} dispatches for all of the prompt`).toBeLessThan(dispatches / 4);
      expect(dropped.got).toEqual([]);
      expect(engine.metrics.kvBlocksFree).toBe(free);
      const again = ask(long, { maxTokens: 1 });
      expect(await again.handle.ended).toBe('length');
      expect(again.got).toEqual(whole.got);
      await engine.dispose();
    },
  );
});
