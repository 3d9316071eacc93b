import * as parts from '../parts.js';
import { Tokenizer, type TokenizerFiles } from '../tokenizer.js';

/** As `Tokenizer.load`, at once: for tests. */
export function loadTokenizer(files: TokenizerFiles): Tokenizer {
  return new Tokenizer(files, parts);
}
