import type { GgufValue } from './gguf_file.js';

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
