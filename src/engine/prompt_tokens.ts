import { SplitkvError, usageError } from '../base/errors.js';
import type { ModelConfig } from '../model/config.js';
import type { Tokenizer } from '../tokenizer/index.js';
import type { Prompt } from './api.js';

/** The ids that a prompt feeds. @throws SplitkvError `usage` for what is no prompt, `io` where a tokenizer is missing */
export function promptTokens(prompt: Prompt, tokenizer: Tokenizer | undefined): readonly number[] {
  if (typeof prompt === 'object' && !('messages' in (prompt ?? {}))) return tokenIds(prompt);
  if (typeof prompt === 'string') {
    if (prompt === '') throw usageError('the prompt is empty: give at least one character');
    return [...needTokenizer(tokenizer, 'a text prompt').encode(prompt, { addSpecial: true })];
  }
  const messages: unknown = (prompt as { messages?: unknown } | undefined)?.messages;
  if (!Array.isArray(messages))
    throw usageError(`a prompt must be a text, token ids or {messages: [...]}; got ${typeof prompt}`);
  const found = needTokenizer(tokenizer, 'a chat prompt');
  const text = found.applyChatTemplate(messages, { addGenerationPrompt: true });
  // The template writes the special tokens itself.
  return found.encode(text, { addSpecial: false });
}

/** Ids that end a text. */
export const eosIds = (config: ModelConfig, tokenizer: Tokenizer | undefined): readonly number[] => [
  ...new Set([...config.eosTokenIds, ...(tokenizer?.eosIds ?? [])]),
];

export function needTokenizer(tokenizer: Tokenizer | undefined, what: string): Tokenizer {
  if (!tokenizer) {
    throw new SplitkvError(
      'io',
      `${what} needs a tokenizer, and the model folder has no tokenizer.json; pass token ids, or add the file`,
    );
  }
  return tokenizer;
}

/** Token ids in any list-like form as an array. @throws SplitkvError `usage` for anything else. */
export function tokenIds(tokens: unknown): readonly number[] {
  if (Array.isArray(tokens)) return tokens as number[];
  if (tokens instanceof Uint32Array || tokens instanceof Int32Array) return [...tokens];
  throw usageError(
    `token ids must be an array, Uint32Array or Int32Array; got ${tokens === null ? 'null' : typeof tokens}`,
  );
}
