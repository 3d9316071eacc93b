import { describe, expect, test } from 'vitest';
import { loadTokenizer } from '../../../tokenizer/testing/load_tokenizer.js';
import { byteLevelTokenizer } from '../../../tokenizer/testing/tiny_tokenizers.js';
import { Answer } from './answer.js';
import { readerOf } from './reading.js';
import type { CompletionEvent, TokenLogprobs } from '../api.js';
import type { EngineEnd } from '../loop/requests.js';

const { json, config } = byteLevelTokenizer();
const tokenizer = loadTokenizer({ tokenizerJson: json, tokenizerConfig: config });
const VOCAB = 320;
/** A token a byte. */
const bytesOf = (text: string): number[] => Array.from(new TextEncoder().encode(text), (byte) => byte + 4);
const flat = new Float32Array(VOCAB);

function answer(
  tokens: readonly number[],
  stops: readonly string[],
  end: EngineEnd,
  minTokens = 0,
): { pieces: string[]; logprobs: TokenLogprobs[]; finish: CompletionEvent['finish']; used: number } {
  const made = new Answer(tokenizer, { stop: stops, logprobs: 0, minTokens });
  const pieces: string[] = [];
  const logprobs: TokenLogprobs[] = [];
  let used = 0;
  for (const token of tokens) {
    used++;
    const out = made.push(token, flat);
    pieces.push(out.text);
    logprobs.push(...out.logprobs);
    if (made.stopped) break;
  }
  const last = made.finish(made.stopped ? 'ended' : end);
  return { pieces: [...pieces, last.text], logprobs: [...logprobs, ...last.logprobs], finish: last.finish, used };
}

describe('answer', () => {
  test('characters come whole, each token with its own bytes', () => {
    const { pieces, logprobs, finish } = answer(bytesOf('né🐈!'), [], 'length');
    expect(pieces).toEqual(['n', '', 'é', '', '', '', '🐈', '!', '']);
    expect(logprobs.map(({ bytes }) => bytes)).toEqual([...new TextEncoder().encode('né🐈!')].map((byte) => [byte]));
    expect(logprobs.map(({ offset }) => offset)).toEqual([0, 1, 1, 2, 2, 2, 2, 4]);
    expect(logprobs.map(({ text }) => text)).toEqual(['n', '�', '�', '�', '�', '�', '�', '!']);
    expect(finish).toBe('max_tokens');
  });

  test('a stop text is held back and left out, and so are the probabilities of its tokens', () => {
    const { pieces, logprobs, finish, used } = answer(bytesOf('one, two, three'), [', t', ', th'], 'length');
    expect(pieces.join('')).toBe('one');
    expect(logprobs.map(({ text }) => text).join('')).toBe('one');
    expect(finish).toBe('stop_string');
    expect(used).toBe('one, t'.length);
  });

  test('what might have begun a stop text comes at the end, with its probabilities', () => {
    const { pieces, logprobs, finish } = answer(bytesOf('so, '), [', the'], 'eos');
    expect(pieces).toEqual(['s', 'o', '', '', ', ']);
    expect(logprobs).toHaveLength(4);
    expect(finish).toBe('eos');
  });

  test('stop texts are looked for after the least number of tokens', () => {
    const { pieces, logprobs, finish } = answer(bytesOf('one, two, three, four'), [', t'], 'length', 5);
    expect(pieces.slice(0, 5)).toEqual(['o', 'n', 'e', ',', ' ']);
    expect(pieces.join('')).toBe('one, two');
    expect(logprobs.map(({ text }) => text).join('')).toBe('one, two');
    expect(finish).toBe('stop_string');
  });

  test('a token in which a stop text begins keeps its probability', () => {
    const merged = tokenizer.encode(' the', { addSpecial: false });
    expect(merged.length).toBeLessThan(4);
    const { pieces, logprobs } = answer([...bytesOf('x'), ...merged], ['he'], 'length');
    expect(pieces.join('')).toBe('x t');
    expect(logprobs.at(-1)!.text).toContain('t');
  });

  test('a character cut off at the end shows as U+FFFD, and may still complete a stop text', () => {
    expect(answer(bytesOf('é').slice(0, 1), [], 'length').pieces.join('')).toBe('�');
    const stopped = answer([...bytesOf('a'), bytesOf('é')[0]!], ['�'], 'length');
    expect(stopped).toMatchObject({ finish: 'stop_string' });
    expect(stopped.pieces.join('')).toBe('a');
  });

  test('special tokens count and show among the probabilities, but not in the text', () => {
    const { pieces, logprobs } = answer([3, ...bytesOf('a')], [], 'aborted');
    expect(pieces.join('')).toBe('a');
    expect(logprobs.map(({ text }) => text)).toEqual(['<|user|>', 'a']);
  });

  test('without a tokenizer there is no text, and tokens still count', () => {
    const made = new Answer(undefined, { logprobs: 2 });
    expect(made.push(7, flat)).toMatchObject({ text: '', logprobs: [{ id: 7, text: '', bytes: [] }] });
    expect(made.tokens).toBe(1);
  });

  describe("with Harmony's marks", () => {
    const marks = ['<|start|>', '<|channel|>', '<|message|>', '<|return|>', '<|constrain|>'];
    const added = marks.map((content, at) => {
      return {
        id: VOCAB + at,
        content,
        single_word: false,
        lstrip: false,
        rstrip: false,
        normalized: false,
        special: true,
      };
    });
    const harmony = loadTokenizer({
      tokenizerJson: { ...json, added_tokens: [...(json['added_tokens'] as object[]), ...added] },
      tokenizerConfig: config,
    });
    const said = (text: string, ...more: string[]) => {
      const made = new Answer(harmony, { stop: more }, readerOf(harmony, [], {}, true));
      const all = harmony.encode(text, { addSpecial: false }).map((token) => made.push(token, undefined));
      const ended = made.finish(made.stopped ? 'ended' : 'eos');
      const join = (key: 'text' | 'reasoning'): string => [...all, ended].map((out) => out[key] ?? '').join('');
      return { text: join('text'), reasoning: join('reasoning'), finish: ended.finish };
    };

    test.each([
      [
        '<|channel|>analysis<|message|>Hm, 東京?<|end|><|start|>assistant<|channel|>final<|message|>It is 東京.<|return|>',
        'It is 東京.',
        'Hm, 東京?',
      ],
      ['<|channel|>final<|message|>Yes.', 'Yes.', ''],
      ['<|channel|>final <|constrain|>json<|message|>{"a": 1}', '{"a": 1}', ''],
      [
        '<|channel|>analysis<|message|>One.<|end|><|start|>assistant<|channel|>commentary to=f<|message|>{}',
        '',
        'One.{}',
      ],
      ['<|channel|>finality<|message|>no', '', 'no'],
      ['<|message|>A message without a channel', 'A message without a channel', ''],
      ['Once upon a time<|end|>', 'Once upon a time', ''],
      ['<|channel|>analysis<|message|>cut off', '', 'cut off'],
    ])('%s', (tokens, text, reasoning) => {
      expect(said(tokens)).toEqual({ text, reasoning, finish: 'eos' });
    });

    test('a stop text is looked for in the answer only', () => {
      const tokens =
        '<|channel|>analysis<|message|>stop here<|end|><|start|>assistant<|channel|>final<|message|>a stop b';
      expect(said(tokens, 'stop')).toEqual({ text: 'a ', reasoning: 'stop here', finish: 'stop_string' });
    });
  });
});
