import { Ajv2020 } from 'ajv/dist/2020.js';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { testAdapters } from '../../../gpu/testing/adapters.js';
import type { GenerateOptions, Model, ResponseFormat } from '../../contracts/api.js';
import { load } from '../../faces/load.js';
import { randomFiles } from '../../testing/random_source.js';

const adapter = (await testAdapters()).at(-1)!.name;
const { files } = randomFiles({ seed: 11, config: { max_position_embeddings: 1024 } });

const schema = {
  type: 'object',
  properties: {
    name: { type: 'string', minLength: 1, maxLength: 6 },
    age: { type: 'integer', minimum: 0, maximum: 150 },
    kind: { enum: ['cat', 'dog "x"'] },
    tags: { type: 'array', items: { type: 'string', pattern: '^[a-c]{1,3}$' }, maxItems: 2 },
  },
  required: ['name', 'age', 'kind', 'tags'],
  additionalProperties: false,
};
const responseFormat: ResponseFormat = { type: 'json_schema', json_schema: { name: 'animal', schema } };
const isValid = new Ajv2020().compile(schema);

describe('texts of a given form', () => {
  let model: Model;
  beforeAll(async () => {
    model = await load(files, { adapter });
  });
  afterAll(() => model.dispose());

  const run = (options: GenerateOptions, on = model) =>
    on.generate('the cat sat', { maxTokens: 700, ...options }).result;

  test('JSON of a schema, greedy and drawn, alone and side by side', async () => {
    const options = [0, 1, 2].map((seed) => ({ seed, temperature: seed, responseFormat }));
    const alone = [];
    for (const each of options) alone.push(await run(each));
    for (const { text, finish_reason: finish } of alone) {
      expect(finish).toBe('stop');
      expect(isValid(JSON.parse(text)), text).toBe(true);
    }
    expect(new Set(alone.map(({ text }) => text)).size).toBeGreaterThan(1);
    const free = { seed: 9, temperature: 1, maxTokens: 60 };
    const [without, ...together] = await Promise.all([run(free), ...options.map((each) => run(each))]);
    expect(together.map(({ text }) => text)).toEqual(alone.map(({ text }) => text));
    expect(without!.text).toBe((await run(free)).text);
  });

  const request = {
    messages: [{ role: 'user' as const, content: 'an animal' }],
    tools: [{ type: 'function' as const, function: { name: 'keep', parameters: schema } }],
    tool_choice: 'required' as const,
    parallel_tool_calls: false,
    max_tokens: 700,
    seed: 6,
    temperature: 1,
  };

  test('a call that must be made, whole and in pieces, and its result', async () => {
    const { message, finish_reason: finish } = (await model.chat.completions.create(request)).choices[0]!;
    expect(finish).toBe('tool_calls');
    expect(message.content).toBeNull();
    const [call] = message.tool_calls!;
    expect(call!.function.name).toBe('keep');
    expect(isValid(JSON.parse(call!.function.arguments)), call!.function.arguments).toBe(true);
    let [pieces, names] = ['', ''];
    for await (const { choices } of await model.chat.completions.create({ ...request, stream: true })) {
      for (const { id, function: of } of choices[0]!.delta.tool_calls ?? []) {
        expect(id === undefined).toBe(of.name === undefined);
        names += of.name ?? '';
        pieces += of.arguments;
      }
    }
    expect([names, pieces]).toEqual(['keep', call!.function.arguments]);
    const result = { role: 'tool' as const, tool_call_id: call!.id, content: 'done' };
    const messages = [...request.messages, message, result];
    const next = await model.chat.completions.create({ ...request, messages, tool_choice: 'none', max_tokens: 4 });
    expect(next.choices[0]!.message.tool_calls).toBeUndefined();
  });

  test('the same text on two ranks', async () => {
    const ranks = await load(files, { adapter, ranks: 2, plan: 'tp', virtualRanks: true });
    try {
      const calls = await Promise.all([model, ranks].map((of) => of.chat.completions.create(request)));
      const [one, two] = calls.map(({ choices }) => choices[0]!.message.tool_calls![0]!.function.arguments);
      expect(two).toBe(one);
      for (const seed of [3, 4]) {
        const options = { seed, temperature: 1, responseFormat };
        const [one, two] = [await run(options), await run(options, ranks)];
        expect(two.tokens).toEqual(one.tokens);
      }
    } finally {
      await ranks.dispose();
    }
  });

  test('a text that is cut by its limit says so', async () => {
    const { text, finish_reason: finish, tokens } = await run({ responseFormat, maxTokens: 4 });
    expect(finish).toBe('length');
    expect(tokens).toHaveLength(4);
    expect(text.startsWith('{')).toBe(true);
  });

  test('regex, choice and grammar', async () => {
    expect((await run({ regex: '(yes|no), [a-z]{3} \\d{2}', temperature: 1 })).text).toMatch(
      /^(yes|no), [a-z]{3} \d{2}$/,
    );
    expect(['red', 'green', 'blue']).toContain((await run({ choice: ['red', 'green', 'blue'], temperature: 1 })).text);
    const { text } = await run({ grammar: 'root ::= "é" [0-9]{2} (" " [x-z])?', temperature: 1 });
    expect(text).toMatch(/^é\d\d( [x-z])?$/);
  });

  test('in conversations and chat completions, whole and in pieces', async () => {
    const conversation = model.conversation();
    const { text } = await conversation.send('who?', { choice: ['me', 'you'], temperature: 1 }).result;
    expect(['me', 'you']).toContain(text);
    const request = {
      messages: [{ role: 'user' as const, content: 'an animal' }],
      max_tokens: 700,
      seed: 5,
      temperature: 1,
      response_format: responseFormat,
    };
    const whole = await model.chat.completions.create(request);
    expect(isValid(JSON.parse(whole.choices[0]!.message.content!))).toBe(true);
    let pieces = '';
    for await (const chunk of await model.chat.completions.create({ ...request, stream: true })) {
      pieces += chunk.choices[0]!.delta.content ?? '';
    }
    expect(pieces).toBe(whole.choices[0]!.message.content);
  });

  test('a form that the tokens of a stop text end', async () => {
    const { text, finish_detail: detail } = await run({ regex: '[a-d]{20}XYZ[a-d]{20}', stop: 'YZ' });
    expect(text).toMatch(/^[a-d]{20}X$/);
    expect(detail).toBe('stop_string');
  });

  test.each<[GenerateOptions, string]>([
    [{ regex: '(' }, 'regular expression'],
    [
      { responseFormat: { type: 'json_schema', json_schema: { schema: { type: 'array', uniqueItems: true } } } },
      'uniqueItems',
    ],
    [{ choice: ['a'], ignoreEos: true }, 'ignoreEos'],
    [{ choice: ['a'], minTokens: 3 }, 'min_tokens'],
    [{ choice: ['a'], regex: 'b' }, 'give one of them'],
    [{ grammar: 'root ::= x' }, 'grammar: '],
    [{ toolChoice: 'required' }, 'there are no tools'],
    [{ tools: [{ type: 'function', function: { name: 'a b' } }] }, 'tools[0]'],
  ])('%o is refused, and the next is answered', async (options, message) => {
    await expect(run(options)).rejects.toMatchObject({
      code: 'usage',
      message: expect.stringContaining(message) as string,
    });
    expect((await run({ choice: ['on'] })).text).toBe('on');
  });

  test('without a tokenizer there is no text to hold to a form', async () => {
    const bare = await load(
      files.filter(({ name }) => !name.startsWith('tokenizer')),
      { adapter },
    );
    await expect(bare.generate([1, 2], { regex: 'a' }).result).rejects.toMatchObject({
      code: expect.stringMatching(/io|unsupported|usage/) as string,
    });
    await bare.dispose();
  });
});
