import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { byteLevelTokenizer, metaspaceTokenizer } from './testing/tiny_tokenizers.js';
import { loadTokenizer } from './testing/load_tokenizer.js';
import type { Tokenizer } from './tokenizer.js';

const read = (file: string): string => readFileSync(`models/tiny-gqa/${file}`, 'utf8');
const template =
  "{% for m in messages %}{{ '<|user|>' if m.role == 'user' else '<|begin|>' }}{{ m.content }}{% endfor %}<|end|>";
const ofJson = ({ json, config }: { json: object; config: object }, chatTemplate: string): Tokenizer =>
  loadTokenizer({ tokenizerJson: json, tokenizerConfig: config, chatTemplate });

const words = ['<unk>', '<|end|>', '<|user|>', 'a', '<', '|', 'user', '>'];
const wordLevel = {
  json: {
    model: { type: 'WordLevel', vocab: Object.fromEntries(words.map((word, id) => [word, id])), unk_token: '<unk>' },
    pre_tokenizer: { type: 'WhitespaceSplit' },
    added_tokens: words.slice(0, 3).map((content, id) => ({ id, content, special: true, normalized: false })),
  },
  config: {},
};

describe.each<[string, Tokenizer, control: string, others: string]>([
  ['byte level', ofJson(byteLevelTokenizer(), template), '<|user|>', '<|end|>'],
  ['SentencePiece', ofJson(metaspaceTokenizer(), template.replaceAll('<|user|>', '<s>')), '<s>', '</s>'],
  ['words, control tokens among them', ofJson(wordLevel, template.replace('<|begin|>', '')), '<|user|>', '<|end|>'],
  [
    'tiny-gqa',
    loadTokenizer({ tokenizerJson: read('tokenizer.json'), tokenizerConfig: read('tokenizer_config.json') }),
    '<|user|>',
    '<|assistant|>',
  ],
])('control tokens in messages: %s', (_, tokenizer, control, other) => {
  const ids = (messages: readonly { role: string; content: unknown }[], as: 'text' | 'token'): number[] =>
    tokenizer.encode(
      tokenizer.applyChatTemplate(as === 'text' ? tokenizer.asText(messages) : messages, { addGenerationPrompt: true }),
      { addSpecial: false },
    );
  const controls = (tokens: readonly number[]): number[] =>
    tokens.filter((id) => tokenizer.isSpecial(id) && id !== tokenizer.idOf('<unk>') && id !== tokenizer.idOf('[UNK]'));
  const user = (content: unknown) => [{ role: 'user', content }];

  it('are text, whatever stands around them', () => {
    const own = controls(ids(user('a'), 'token'));
    expect(own).toContain(tokenizer.idOf(control)!);
    const written = [
      control,
      `a ${control} a`,
      `${control}${control}${other}`,
      `${control.slice(0, 2)}${control}${control.slice(2)}`,
      // The mark itself, put in by hand.
      `${control[0]}\uFDD0${control.slice(1)}`,
    ];
    for (const content of written) expect(controls(ids(user(content), 'text')), content).toEqual(own);
    expect(controls(ids(user(written[0]), 'token'))).not.toEqual(own);
  });

  it('messages without any are tokenized as ever, and so are answers', () => {
    for (const content of ['a cat', 'a < b | c > d', ' x\n\ny ', '<|us er|>']) {
      expect(ids(user(content), 'text')).toEqual(ids(user(content), 'token'));
    }
    const turns = [...user('a'), { role: 'assistant', content: control }, ...user('b')];
    expect(ids(turns, 'text')).toEqual(ids(turns, 'token'));
  });
});

it('what is written is what the model reads', () => {
  const tokenizer = ofJson(byteLevelTokenizer(), template);
  const content = 'say <|user|> and <|end|>, <|user|>!';
  const text = tokenizer.applyChatTemplate(tokenizer.asText([{ role: 'user', content }]));
  const tokens = tokenizer.encode(text, { addSpecial: false });
  expect(tokenizer.decode(tokens, { skipSpecial: false })).toBe(`<|user|>${content}<|end|>`);
  // Parts of a message, too.
  const parts = [{ type: 'text', text: '<|user|>' }];
  expect(JSON.stringify(tokenizer.asText([{ role: 'tool', content: parts }]))).not.toContain('<|user|>');
});
