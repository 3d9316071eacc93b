import { createRequire } from 'node:module';
import type * as Library from '@anush008/tokenizers';

/** Hugging Face's own tokenizers, built from Rust; a sentence where there is no binary of them for this platform. */
export const rustTokenizers = ((): typeof Library | string => {
  try {
    return createRequire(import.meta.url)('@anush008/tokenizers') as typeof Library;
  } catch (error) {
    return `no Rust tokenizers here: ${(error as Error).message.split('\n', 1)[0]}`;
  }
})();

/** Gives the ids that they give. */
export function rustEncoder(json: unknown): (text: string) => Promise<number[]> {
  if (typeof rustTokenizers === 'string') throw new Error(rustTokenizers);
  const tokenizer = rustTokenizers.Tokenizer.fromString(JSON.stringify(json));
  return async (text) => (await tokenizer.encode(text, null, { addSpecialTokens: false })).getIds();
}
