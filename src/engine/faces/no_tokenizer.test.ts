import { beforeAll, describe, expect, test } from 'vitest';
import { testAdapters } from '../../gpu/testing/adapters.js';
import { load, serve } from '../../index.js';
import { wordLevelTokenizer } from '../../tokenizer/testing/tiny_tokenizers.js';
import { randomFiles } from '../testing/random_source.js';

const { files } = randomFiles({ seed: 5, config: { max_position_embeddings: 256 } });
const without = files.filter(({ name }) => name !== 'tokenizer.json');
const json = (name: string, content: object): File => new File([JSON.stringify(content)], name);
let adapter: string;
beforeAll(async () => {
  adapter = (await testAdapters()).at(-1)!.name;
});

const cases: [string, File[], code: string, message: RegExp][] = [
  ['no tokenizer', without, 'io', /needs a tokenizer: the model has none: add its tokenizer\.json/],
  [
    'tokenizer.model only',
    [...without, new File(['x'], 'tokenizer.model')],
    'unsupported',
    /tokenizer\.model \(SentencePiece\) isn't read, and there is no tokenizer\.json/,
  ],
  [
    'a part that is not read',
    [...without, json('tokenizer.json', { ...wordLevelTokenizer().json, pre_tokenizer: { type: 'UnicodeScripts' } })],
    'unsupported',
    /Unknown PreTokenizer type: UnicodeScripts/,
  ],
];

describe.each(cases)('%s', (_name, folder, code, message) => {
  test('token ids work, text fails and says why', { timeout: 60_000 }, async () => {
    const warnings: string[] = [];
    const whole = await load(files, { adapter });
    const ids = [5, 6, 7];
    const expected = await whole.generate(ids, { maxTokens: 4, ignoreEos: true }).result;
    const { rows } = await whole.logits(ids);
    await whole.dispose();

    const model = await load(folder, { adapter, onWarning: (warning) => warnings.push(warning) });
    expect(warnings).toEqual([expect.stringMatching(/^token ids only, no text: /)]);
    const generation = model.generate(ids, { maxTokens: 4, ignoreEos: true });
    const pieces: string[] = [];
    for await (const piece of generation) pieces.push(piece);
    const { text, tokens } = await generation.result;
    expect([text, pieces.join(''), tokens]).toEqual(['', '', expected.tokens]);
    expect((await model.logits(ids)).rows).toEqual(rows);
    const failing = [
      () => model.generate('text').result,
      () => model.generate({ messages: [{ role: 'user', content: 'text' }] }).result,
      () => model.generate(ids, { stop: 'x' }).result,
      async () => model.tokenize('text'),
    ];
    for (const ask of failing) {
      await expect((async () => ask())()).rejects.toMatchObject({
        code,
        message: expect.stringMatching(message) as string,
      });
    }
    await model.dispose();
  });
});

test('serve answers token ids, too', { timeout: 60_000 }, async () => {
  const model = await serve(without, { adapter, slots: 2 });
  expect(() => model.complete('text')).toThrow(/the model has none: add its tokenizer\.json/);
  expect(() => model.complete([5, 6], { stop: 'x' })).toThrow(/a stop text needs a tokenizer/);
  const completion = model.complete([5, 6], { maxTokens: 3, ignoreEos: true });
  let text = '';
  for await (const event of completion) text += event.text;
  expect([text, completion.completionTokens]).toEqual(['', 3]);
  await model.dispose();
});

test('a text that cannot fit is refused by its length, before it is tokenized', { timeout: 60_000 }, async () => {
  const model = await load(files, { adapter });
  const long = 'the cat '.repeat(100_000);
  const refused = { code: 'context_full', message: expect.stringMatching(/at least [\d,]+ tokens/) as string };
  await expect(model.generate(long).result).rejects.toMatchObject(refused);
  const messages = [{ role: 'user', content: long }] as const;
  await expect(model.generate({ messages }).result).rejects.toMatchObject(refused);
  await model.dispose();
});
