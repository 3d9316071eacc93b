import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { testAdapters } from '../../gpu/testing/adapters.js';
import { drawn, drawSeed, sweepsAll } from '../../gpu/testing/draw.js';
import type { Conversation, LoadOptions, Model } from '../../index.js';
import { load, openModel } from './load.js';
import { LoadedModel } from './model.js';
import { loadSeats } from '../planning/seats.js';
import type { RankGroup } from '../ranks/rank_group.js';

// The quicker one to compile for, where there are two software adapters.
const adapter = (await testAdapters()).at(-1)!.name;
const TURNS = ['Who was there?', 'And then?', 'Why?', 'Tell me more of it, please.', 'Is that all?', 'Good night.'];
const SYSTEM = 'Answer in few words.';

interface Told {
  readonly text: string;
  readonly tokens: readonly number[];
  readonly cached: number;
  readonly prompt: number;
  /** SHA-256 of the logits that the first token was drawn from. */
  readonly digest: string;
}

/** What takes a model of its own: two of them a run. */
const turns = drawn(['variants', 'compressed', 'evicted', 'many', 'full', 'lost'], 2, 'conversations');

const maxTokens = 12;

async function ask(talk: Conversation, text: string, cachePrompt = true, seed = 3): Promise<Told> {
  let digest = '';
  const {
    text: answer,
    tokens,
    prompt_tokens,
    stats,
  } = await talk.send(text, {
    maxTokens,
    temperature: 0.8,
    seed,
    cachePrompt,
    ignoreEos: true,
    onFirstLogits: (logits) => (digest = createHash('sha256').update(new Uint8Array(logits.buffer)).digest('hex')),
  }).result;
  return { text: answer, tokens, prompt: prompt_tokens, cached: stats.cached_tokens!, digest };
}

async function tell(model: Model, cachePrompt = true, system = SYSTEM, turns = TURNS.length): Promise<Told[]> {
  const talk = model.conversation({ system });
  const told: Told[] = [];
  for (const text of TURNS.slice(0, turns)) told.push(await ask(talk, text, cachePrompt));
  return told;
}

const open = (options: LoadOptions = {}, name = 'tiny-gqa'): Promise<Model> =>
  load(`models/${name}`, { adapter, contextLength: 1024, ...options });

/** What doesn't depend on the cache. */
const bitsOf = (told: readonly Told[]) =>
  told.map(({ text, tokens, digest, prompt }) => ({ text, tokens, digest, prompt }));

describe('a turn computes what is new, and gives the bits of computing all', () => {
  const known = new Map<string, Promise<Told[]>>();
  const tellAlone = async (name: string): Promise<Told[]> => {
    const model = await open({}, name);
    const told = await tell(model, false);
    await model.dispose();
    return told;
  };
  const alone = (name: string): Promise<Told[]> => {
    if (!known.has(name)) known.set(name, tellAlone(name));
    return known.get(name)!;
  };

  const plans: [plan: string, options: LoadOptions, name?: string][] = [
    ['single', {}],
    ['single', {}, 'tiny-mla'],
    ['tp', { ranks: 2 }],
    ['sp', { ranks: 2 }],
    ['sp', { ranks: 2 }, 'tiny-mla'],
    ['pp', { ranks: 2 }],
    ['token', { ranks: 3 }],
    ['token x sp', { ranks: 3 }],
    ['adp', { ranks: 2 }],
    ['tp+sp', { ranks: 4 }, 'tiny-mla'],
    ['ep', { ranks: 2 }, 'tiny-mla'],
  ];
  test.each(drawn(plans, 1, 'conversation'))('%s %o %s', async (plan, options, name = 'tiny-gqa') => {
    const ranks = plan === 'single' ? {} : { plan, virtualRanks: true };
    const model = await open({ ...ranks, ...options }, name);
    const told = await tell(model);
    expect(bitsOf(told)).toEqual(bitsOf(await alone(name)));
    expect(told[0]!.cached).toBe(0);
    for (const [turn, { cached }] of told.entries()) {
      if (turn === 0) continue;
      // All but the last token of the answer before, and what was said since.
      const before = told[turn - 1]!;
      expect(cached).toBe(before.prompt + before.tokens.length - 1);
    }
    // What another conversation says at the beginning is there already.
    const again = await tell(model);
    expect(bitsOf(again)).toEqual(bitsOf(told));
    expect(again[0]!.cached).toBe(told[0]!.prompt - 1);
    await model.dispose();
  });

  test('with proposals, whose rows the next turn finds in the cache', async () => {
    const model = await open({ speculate: 'ngram' });
    const { speculation } = (model as LoadedModel).how;
    speculation!.tries = 6;
    const told = await tell(model);
    await model.dispose();
    expect(bitsOf(told)).toEqual(bitsOf(await alone('tiny-gqa')));
    expect(told.slice(1).every(({ cached }) => cached > 0)).toBe(true);
    expect(speculation!.counts.accepted).toBeGreaterThan(0);
  });

  test.each(drawn(plans, 1, 'continued'))('an answer that was cut goes on: %s %o %s', async (plan, options, name) => {
    const ranks = plan === 'single' ? {} : { plan, virtualRanks: true };
    const model = await open({ ...ranks, ...options }, name ?? 'tiny-gqa');
    const how = { temperature: 0.9, frequencyPenalty: 0.6, repetitionPenalty: 1.1, minTokens: 9, seed: 5 };
    const [whole, parts] = [model.conversation(), model.conversation()];
    await ask(whole, TURNS[0]!);
    await ask(parts, TURNS[0]!);
    const expected = await whole.send(TURNS[1]!, { ...how, maxTokens: 23 }).result;
    const [first, next] = [1 + (expected.seed % 7), 6];
    const cut = await parts.send(TURNS[1]!, { ...how, maxTokens: first, minTokens: 0 }).result;
    let { text } = cut;
    for (const maxTokens of [next, 23 - first - next]) {
      const going = parts.continue({ ...how, maxTokens });
      for await (const piece of going) text += piece;
      const { tokens, prompt_tokens: prompt, stats } = await going.result;
      // All but the last token, which no step has fed yet.
      expect(stats.cached_tokens).toBe(prompt - 1);
      expect(expected.tokens.slice(0, tokens.length)).toEqual(tokens);
    }
    expect(text).toBe(expected.text);
    expect(parts.save()).toEqual(whole.save());
    expect(bitsOf([await ask(parts, TURNS[2]!)])).toEqual(bitsOf([await ask(whole, TURNS[2]!)]));
    await model.dispose();
  });

  test.runIf(turns.includes('variants'))("by a GPU's variants, whatever the adapter is", async () => {
    const model = await open({ variants: 'hardware', prefillChunk: 100 });
    const told = await tell(model, true, SYSTEM, 2);
    await model.dispose();
    const ranks = await open({ variants: 'hardware', plan: 'tp', ranks: 2, virtualRanks: true });
    expect(bitsOf(await tell(ranks, false, SYSTEM, 2))).toEqual(bitsOf(told));
    await ranks.dispose();
    expect(told[1]!.cached).toBeGreaterThan(0);
    // Other sums than those of a CPU's variants.
    expect(told[0]!.digest).not.toBe((await alone('tiny-gqa'))[0]!.digest);
  });

  test.runIf(turns.includes('compressed'))(
    'where prompts are compressed nothing is shared unless asked for, and the bits are the same',
    { timeout: 240_000 },
    async () => {
      const model = await open({ kvBudget: 0.5, kvWindow: 8 });
      const told = await tell(model);
      expect(told.map(({ cached }) => cached)).toEqual(TURNS.map(() => 0));
      expect(bitsOf(await tell(model, false))).toEqual(bitsOf(told));
      await model.dispose();
      const keeping = await open({ kvBudget: 0.5, kvWindow: 8, prefixCaching: true });
      const kept = await tell(keeping);
      expect(bitsOf(kept)).toEqual(bitsOf(told));
      // What was said before, in whole blocks.
      for (const [at, { cached }] of kept.entries()) {
        expect(cached).toBeGreaterThanOrEqual(at === 0 ? 0 : Math.floor((told[at - 1]!.prompt - 8) / 64) * 64);
      }
      expect(kept.at(-1)!.cached).toBeGreaterThan(0);
      await keeping.dispose();
    },
  );
});

describe('on one rank', () => {
  let model: Model;
  let told: Told[];
  beforeAll(async () => {
    model = await open();
    told = await tell(model, false);
  });
  afterAll(() => model.dispose());

  test('saved as plain JSON, it goes on after a reload with the same bits', async () => {
    const talk = model.conversation({ system: SYSTEM });
    for (const text of TURNS.slice(0, 3)) await ask(talk, text);
    const saved = JSON.stringify(talk.save());
    expect(saved.length).toBeLessThan(4000);
    const other = await open();
    const restored = other.conversation({ restore: JSON.parse(saved) as ReturnType<typeof talk.save> });
    expect(restored.messages).toEqual(talk.messages);
    const rest: Told[] = [];
    for (const text of TURNS.slice(3)) rest.push(await ask(restored, text));
    await other.dispose();
    expect(rest[0]!.cached).toBe(0);
    expect(bitsOf(rest)).toEqual(bitsOf(told.slice(3)));
  });

  test.runIf(turns.includes('evicted'))('blocks are evicted in between', async () => {
    const small = await open({ contextLength: 512 });
    const talk = small.conversation({ system: SYSTEM });
    const all: Told[] = [];
    for (const [index, text] of TURNS.entries()) {
      // A prompt that fills the cache.
      await small.generate(
        Array.from({ length: 500 }, (_, i) => 20 + ((i * 7 + index) % 200)),
        { maxTokens: 2 },
      ).result;
      all.push(await ask(talk, text));
    }
    expect(bitsOf(all)).toEqual(bitsOf(told));
    expect(all.every(({ cached }) => cached === 0)).toBe(true);
    await small.dispose();
  });

  test('results of tools are a turn; those of no call are refused', async () => {
    const tools = [
      {
        type: 'function' as const,
        function: {
          name: 'look',
          parameters: { type: 'object', properties: { at: { type: 'boolean' } }, required: ['at'] },
        },
      },
    ];
    const talk = model.conversation({ system: SYSTEM });
    const asked = { tools, toolChoice: 'required' as const, parallelToolCalls: false, seed: 2, maxTokens: 100 };
    const { tool_calls: calls, finish_reason: finish } = await talk.send('Who?', asked).result;
    expect(finish).toBe('tool_calls');
    const [call] = calls!;
    expect(call!.function.name).toBe('look');
    expect(() => talk.send([{ role: 'tool', tool_call_id: 'x', content: 'y' }])).toThrow("no call 'x'");
    const result = { role: 'tool' as const, tool_call_id: call!.id, content: 'a cat' };
    const { text } = await talk.send([result], { tools, seed: 3, maxTokens }).result;
    expect(talk.messages.map(({ role }) => role)).toEqual(['system', 'user', 'assistant', 'tool', 'assistant']);
    expect(talk.messages[2]).toMatchObject({ content: null, tool_calls: calls });
    const again = model.conversation({
      restore: JSON.parse(JSON.stringify(talk.save())) as ReturnType<typeof talk.save>,
    });
    expect(again.messages).toEqual(talk.messages);
    expect((await again.regenerate({ tools, seed: 3, maxTokens }).result).text).toBe(text);
  });

  test('an answer goes on after a reload, and one that is known as a text only', async () => {
    const talk = model.conversation({ system: SYSTEM });
    const { text: whole } = await talk.send(TURNS[0]!, { maxTokens: 20, ignoreEos: true }).result;
    await talk.regenerate({ maxTokens: 7, ignoreEos: true }).result;
    const saved = JSON.parse(JSON.stringify(talk.save())) as ReturnType<typeof talk.save>;
    const other = await open();
    const restored = other.conversation({ restore: saved });
    const fresh = await restored.continue({ maxTokens: 13, ignoreEos: true }).result;
    expect(fresh.text).toBe(whole);
    expect(fresh.stats.cached_tokens).toBe(0);
    await other.dispose();
    // By its text it is a prompt; its tokens may be others.
    const asText = model.conversation({
      restore: { ...saved, turns: saved.turns.map((turn) => ({ ...turn, tokens: [] })) },
    });
    const going = asText.continue({ maxTokens: 5, ignoreEos: true });
    let pieces = '';
    for await (const piece of going) pieces += piece;
    const { text } = await going.result;
    expect(text).toBe(saved.turns[0]!.answer + pieces);
    expect(pieces).not.toBe('');
    expect(asText.messages.at(-1)).toEqual({ role: 'assistant', content: text });
    await asText.continue({ maxTokens: 2, ignoreEos: true }).result;
    expect((asText.messages.at(-1)!.content as string).startsWith(text)).toBe(true);
  });

  test('an answer that was cut in its thoughts, or in its form, goes on there', async () => {
    const files = readdirSync('models/tiny-gqa').map((name) => {
      const bytes = readFileSync(`models/tiny-gqa/${name}`);
      // It begins to think, and never ends.
      const thinks = bytes.toString().replace("{{ '<|assistant|>' }}", "{{ '<|assistant|><think>' }}");
      return new File([name === 'tokenizer_config.json' ? thinks : bytes], name);
    });
    const thinking = await load(files, { adapter, contextLength: 256 });
    const talk = thinking.conversation();
    const options = { ignoreEos: true, seed: 4, temperature: 0.7 };
    const whole = await talk.send(TURNS[0]!, { ...options, maxTokens: 15 }).result;
    expect(whole).toMatchObject({ text: '', reasoning: expect.stringMatching(/./) });
    const cut = await talk.regenerate({ ...options, maxTokens: 6 }).result;
    const restored = thinking.conversation({
      restore: JSON.parse(JSON.stringify(talk.save())) as ReturnType<typeof talk.save>,
    });
    const going = restored.continue({ ...options, maxTokens: 9 });
    let thoughts = cut.reasoning!;
    for await (const { reasoning = '' } of going.deltas()) thoughts += reasoning;
    expect(thoughts).toBe(whole.reasoning);
    expect(await going.result).toMatchObject({ reasoning: whole.reasoning, tokens: whole.tokens, text: '' });
    await thinking.dispose();

    const form = { regex: '([a-z]{2} ){12}', seed: 2, temperature: 1, maxTokens: 100 };
    const formed = model.conversation();
    const { text } = await formed.send(TURNS[0]!, form).result;
    await formed.regenerate({ ...form, maxTokens: 5 }).result;
    expect((await formed.continue(form).result).text).toBe(text);
    // It is whole.
    expect(await formed.continue(form).result).toMatchObject({ text, finish_detail: 'eos' });
    await expect(formed.continue({ ...form, regex: '[0-9]+' }).result).rejects.toThrow("aren't tokens of a text");
  });

  test('what has nothing to go on with is refused, and an abort leaves what was there', async () => {
    const talk = model.conversation({ system: SYSTEM });
    expect(() => talk.continue()).toThrow('there is no answer yet');
    await talk.send(TURNS[0]!, { maxTokens: 4, ignoreEos: true }).result;
    const before = talk.save();
    expect((await talk.continue({ maxTokens: 50, signal: AbortSignal.abort() }).result).finish_reason).toBe('abort');
    expect(talk.save()).toEqual(before);
    expect(() => talk.send('x', { continueFrom: [5] })).toThrow('goes on by continue()');
    await expect(talk.continue({ maxTokens: 4, stop: 'a', temperature: 9, topP: 2 }).result).rejects.toMatchObject({
      code: 'usage',
    });
    expect(talk.save()).toEqual(before);
    for (const wrong of [[100_000], [-1], [1.5]]) {
      await expect(model.generate('x', { continueFrom: wrong }).result).rejects.toMatchObject({ code: 'usage' });
    }
    await expect(model.generate('x', { continueFrom: 5 as never }).result).rejects.toMatchObject({ code: 'usage' });
    const small = await open({ contextLength: 64 });
    const full = small.conversation();
    const { finish_detail: why } = await full.send('Who was there?', { maxTokens: 200, ignoreEos: true }).result;
    expect(why).toBe('context_full');
    await expect(full.continue().result).rejects.toMatchObject({ code: 'context_full' });
    await small.dispose();
  });

  test('fork, undo, regenerate and edit', async () => {
    const talk = model.conversation({ system: SYSTEM });
    await ask(talk, TURNS[0]!);
    const fork = talk.fork();
    await ask(fork, 'Something else?');
    await ask(talk, TURNS[1]!);
    expect(fork.messages).toHaveLength(5);
    expect(fork.messages[3]).toEqual({ role: 'user', content: 'Something else?' });
    const [third] = bitsOf([await ask(talk, TURNS[2]!)]);
    expect(third).toEqual(bitsOf(told)[2]);
    talk.undo();
    const again = await ask(talk, TURNS[2]!);
    expect(bitsOf([again])).toEqual([third]);
    expect(again.cached).toBe(again.prompt - 1);
    const before = talk.messages;
    await talk.regenerate({ maxTokens, seed: 3, temperature: 0.8, ignoreEos: true }).result;
    expect(talk.messages).toEqual(before);
    await talk.edit('And now?', { maxTokens: 4 }).result;
    expect(talk.messages.at(-2)).toEqual({ role: 'user', content: 'And now?' });
    expect(talk.messages).toHaveLength(before.length);
    expect(() => talk.undo(4)).toThrow('undo 4');
  });

  test('an aborted answer is kept as far as it came; one that failed leaves the conversation as it was', async () => {
    const talk = model.conversation({ system: SYSTEM });
    const control = new AbortController();
    const generation = talk.send(TURNS[0]!, { maxTokens: 200, ignoreEos: true, signal: control.signal });
    expect(() => talk.send('Me too?')).toThrow('an answer is being written');
    let seen = 0;
    for await (const piece of generation) if ((seen += piece.length) > 10) control.abort();
    const { finish_reason, text } = await generation.result;
    expect(finish_reason).toBe('abort');
    expect(talk.messages.slice(1)).toEqual([
      { role: 'user', content: TURNS[0] },
      { role: 'assistant', content: text },
    ]);
    await expect(talk.send('x '.repeat(2000)).result).rejects.toMatchObject({ code: 'context_full' });
    expect(talk.messages).toHaveLength(3);
    await ask(talk, TURNS[1]!);
    expect(talk.messages).toHaveLength(5);
  });

  test.runIf(turns.includes('full'))('a full context: an error, or the oldest turns are forgotten', async () => {
    const small = await open({ contextLength: 160 });
    const strict = small.conversation({ system: SYSTEM });
    const lenient = small.conversation({ system: SYSTEM, whenFull: 'forget' });
    const many = Array.from({ length: 8 }, (_, index) => `${TURNS[index % TURNS.length]} (${index})`);
    await expect(
      (async () => {
        for (const text of many) await ask(strict, text);
      })(),
    ).rejects.toMatchObject({ code: 'context_full' });
    for (const text of many) await ask(lenient, text);
    expect(lenient.messages[0]).toEqual({ role: 'system', content: SYSTEM });
    expect(lenient.messages.length).toBeLessThan(2 * many.length);
    expect(lenient.messages.at(-2)).toEqual({ role: 'user', content: many.at(-1) });
    await small.dispose();
  });

  test.runIf(turns.includes('lost'))('a device that is lost in the middle', async () => {
    const options = { adapter, contextLength: 1024 };
    const opened = await openModel('models/tiny-gqa', options, ({ plan }) => loadSeats(plan, 1024, undefined));
    const lost = new LoadedModel(opened, { stepsInFlight: 4 });
    const talk = lost.conversation({ system: SYSTEM });
    const all: Told[] = [];
    for (const [index, text] of TURNS.entries()) {
      if (index === 3) {
        const generation = talk.send(text, { maxTokens: 200, ignoreEos: true });
        generation.result.catch(() => {});
        (opened.group as RankGroup).devices[0]!.gpu.destroy();
        await expect(generation.result).rejects.toMatchObject({ code: 'device_lost' });
        expect(talk.messages).toHaveLength(1 + 2 * index);
        await lost.recover();
      }
      all.push(await ask(talk, text));
    }
    expect(bitsOf(all)).toEqual(bitsOf(told));
    await lost.dispose();
  });

  test('what is no saved conversation is refused', () => {
    const saved = { version: 1, model: model.info.name, turns: [] };
    const refused = (restore: unknown): unknown => {
      try {
        return model.conversation({ restore: restore as typeof saved });
      } catch (error) {
        return error;
      }
    };
    expect(refused({ ...saved, model: 'other' })).toMatchObject({ code: 'usage' });
    expect(refused({ ...saved, version: 2 })).toMatchObject({ code: 'format' });
    for (const wrong of [null, 3, 'text', {}, { ...saved, turns: [null] }, { ...saved, turns: [{ user: 1 }] }]) {
      expect(refused(wrong), JSON.stringify(wrong)).toMatchObject({ code: 'format' });
    }
    expect(refused(saved)).toHaveProperty('messages', []);
    expect(() => model.conversation({ sytem: 'x' } as never)).toThrow("Did you mean 'system'");
  });

  test.runIf(turns.includes('many'))(
    'many prompts at once: each as alone, a common beginning computed once',
    async () => {
      const stem = `${'The fox and the hen met at the well. '.repeat(8)}`;
      const prompts = Array.from({ length: 5 }, (_, index) => `${stem}Question ${index}`);
      const options = { maxTokens, seed: 5, temperature: 0.7, ignoreEos: true };
      const expected: string[] = [];
      for (const prompt of prompts) {
        expected.push((await model.generate(prompt, { ...options, cachePrompt: false }).result).text);
      }
      const fresh = await open();
      const texts: string[] = [];
      const cached: number[] = [];
      for await (const { index, text, stats } of fresh.generateMany(prompts, options)) {
        texts[index] = text;
        cached[index] = stats.cached_tokens!;
      }
      expect(texts).toEqual(expected);
      expect(Math.min(...cached)).toBeGreaterThan(64);
      // Leaving the iteration aborts the others, and frees what they hold.
      for await (const _ of fresh.generateMany(prompts, { ...options, maxTokens: 300 })) break;
      expect((await fresh.generate(prompts[0]!, options).result).text).toEqual(expected[0]);
      // Of none there are none.
      for await (const _ of fresh.generateMany([], options)) expect.unreachable();
      await fresh.dispose();
    },
  );

  test('chats, forks, aborts and batches in any order give what each gives alone', async () => {
    const action = fc.record({
      talk: fc.nat(2),
      kind: fc.constantFrom('send', 'send', 'send', 'fork', 'undo', 'abort', 'batch'),
      text: fc.constantFrom(...TURNS),
      seed: fc.integer({ min: 1, max: 3 }),
    });
    const alone = new Map<string, string>();
    const expectedOf = async (talk: Conversation, text: string, seed: number): Promise<string> => {
      const key = JSON.stringify([talk.save(), text, seed]);
      let known = alone.get(key);
      if (known === undefined) {
        const { digest, tokens } = await ask(talk.fork(), text, false, seed);
        alone.set(key, (known = JSON.stringify([digest, tokens])));
      }
      return known;
    };
    await fc.assert(
      fc.asyncProperty(fc.array(action, { minLength: 4, maxLength: 12 }), async (actions) => {
        const talks = [0, 1, 2].map(() => model.conversation({ system: SYSTEM }));
        const last = talks.map((): Promise<unknown> => Promise.resolve());
        for (const { talk, kind, text, seed } of actions) {
          if (kind === 'batch') {
            last[talk] = Promise.all([last[talk], model.generate(text, { maxTokens: 8, ignoreEos: true }).result]);
            continue;
          }
          await last[talk];
          const own = talks[talk]!;
          if (kind === 'fork') talks[(talk + 1) % 3] = own.fork();
          else if (kind === 'undo') own.undo(Math.min(1, Math.floor(own.messages.length / 2)));
          else if (kind === 'abort') {
            const control = new AbortController();
            last[talk] = own.send(text, { maxTokens: 30, seed, ignoreEos: true, signal: control.signal }).result;
            setTimeout(() => control.abort(), seed * 3);
          } else {
            const expected = await expectedOf(own, text, seed);
            last[talk] = ask(own, text, true, seed).then(({ digest, tokens }) =>
              expect(JSON.stringify([digest, tokens])).toBe(expected),
            );
          }
        }
        await Promise.all(last);
      }),
      { numRuns: sweepsAll ? 6 : 2, seed: drawSeed },
    );
  });
});
