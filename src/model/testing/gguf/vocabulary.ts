import { isObject } from '../../../base/json.js';
import type { GgufValue } from './file.js';

/** llama.cpp wants a vocabulary even where only ids are used: a BPE of names that mean nothing. */
export function dummyVocabulary(vocabSize: number): Record<string, GgufValue> {
  const tokens = Array.from({ length: vocabSize }, (_, id) => `t${id}`);
  return {
    'tokenizer.ggml.model': { type: 'string', value: 'gpt2' },
    'tokenizer.ggml.pre': { type: 'string', value: 'gpt-2' },
    'tokenizer.ggml.tokens': { type: 'string[]', value: tokens },
    // All normal tokens (1) but for two control tokens (3).
    'tokenizer.ggml.token_type': { type: 'i32[]', value: tokens.map((_, id) => (id === 1 || id === 2 ? 3 : 1)) },
    'tokenizer.ggml.merges': { type: 'string[]', value: [] },
    'tokenizer.ggml.bos_token_id': { type: 'u32', value: 1 },
    'tokenizer.ggml.eos_token_id': { type: 'u32', value: 2 },
  };
}

interface TokenizerJson {
  readonly model: { readonly vocab: Readonly<Record<string, number>>; readonly merges: readonly string[] };
  readonly added_tokens: readonly { readonly id: number; readonly content: string; readonly special: boolean }[];
}

/**
 * A tokenizer.json with its tokenizer_config.json as convert_hf_to_gguf.py writes it: byte-level where `pre` is given, otherwise
 * SentencePiece with the order of the merges as scores. Ids that no token has are padded as unused.
 */
export function vocabularyMetadata(
  json: TokenizerJson,
  config: Readonly<Record<string, unknown>>,
  { pre, vocabSize = 0, addBos }: { pre?: string; vocabSize?: number; addBos?: boolean },
): Record<string, GgufValue> {
  const ids = Object.entries(json.model.vocab);
  const size = Math.max(
    vocabSize,
    ...[...ids.map(([, id]) => id), ...json.added_tokens.map(({ id }) => id)].map((id) => id + 1),
  );
  const tokens = Array.from({ length: size }, (_, id) => `[PAD${id}]`);
  const types = tokens.map(() => 5);
  for (const [token, id] of ids) {
    tokens[id] = token;
    types[id] = pre === undefined && /^<0x[0-9A-F]{2}>$/.test(token) ? 6 : 1;
  }
  for (const { id, content, special } of json.added_tokens) {
    tokens[id] = content;
    types[id] = special ? (content === '<unk>' ? 2 : 3) : 4;
  }
  const rank = new Map(json.model.merges.map((merge, i) => [merge.replace(' ', ''), i]));
  const idOf = (key: string): number => {
    const token = isObject(config[key]) ? config[key].content : config[key];
    return tokens.indexOf(token as string);
  };
  const specials = { bos: 'bos_token', eos: 'eos_token', unknown: 'unk_token', padding: 'pad_token' };
  const named = Object.entries(specials).flatMap(([name, key]): [string, GgufValue][] => {
    const id = idOf(key);
    return id < 0 ? [] : [[`tokenizer.ggml.${name}_token_id`, { type: 'u32', value: id }]];
  });
  return {
    'tokenizer.ggml.model': { type: 'string', value: pre === undefined ? 'llama' : 'gpt2' },
    ...(pre === undefined
      ? { 'tokenizer.ggml.scores': { type: 'f32[]', value: tokens.map((token) => -(rank.get(token) ?? 1e6)) } }
      : {
          'tokenizer.ggml.pre': { type: 'string', value: pre },
          'tokenizer.ggml.merges': { type: 'string[]', value: json.model.merges },
        }),
    'tokenizer.ggml.tokens': { type: 'string[]', value: tokens },
    'tokenizer.ggml.token_type': { type: 'i32[]', value: types },
    ...Object.fromEntries(named),
    ...(addBos !== undefined && { 'tokenizer.ggml.add_bos_token': { type: 'bool', value: addBos } }),
    ...(typeof config.chat_template === 'string' && {
      'tokenizer.chat_template': { type: 'string', value: config.chat_template },
    }),
  };
}
