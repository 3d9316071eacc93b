import { formatError } from '../base/errors.js';
import { show } from '../base/json.js';

/** Metadata of a GGUF file, by key. */
export type GgufMetadata = ReadonlyMap<string, unknown>;

/** What a token is (tokenizer.ggml.token_type). */
export type TokenType = 'normal' | 'unknown' | 'control' | 'user_defined' | 'unused' | 'byte';

const typeNames: Readonly<Record<number, TokenType>> = {
  0: 'normal',
  1: 'normal',
  2: 'unknown',
  3: 'control',
  4: 'user_defined',
  5: 'unused',
  6: 'byte',
};

/** The vocabulary of a GGUF file. Throws `format` for lists of the wrong kind or length. */
export class GgufVocabulary {
  readonly tokens: readonly string[];
  readonly types: readonly TokenType[];
  readonly #metadata: GgufMetadata;
  readonly #what: string;

  /** @param what the file as messages name it */
  constructor(metadata: GgufMetadata, what: string) {
    this.#metadata = metadata;
    this.#what = what;
    this.tokens = this.#list('tokens', 'string', undefined) ?? this.#missing('tokens');
    const types = this.#list<number>('token_type', 'number', this.tokens.length);
    this.types = types?.map((type) => typeNames[type] ?? 'normal') ?? this.tokens.map(() => 'normal');
  }

  /** SentencePiece's log probabilities. */
  scores(): readonly number[] {
    return this.#list<number>('scores', 'number', this.tokens.length) ?? this.#missing('scores');
  }

  /** Pairs of tokens that join, the first first. A token may begin with a blank, hence the blank after its first letter. */
  merges(): [string, string][] {
    const lines = this.#list<string>('merges', 'string', undefined) ?? this.#missing('merges');
    return lines.map((line) => {
      const blank = line.indexOf(' ', 1);
      return [line.slice(0, blank), line.slice(blank + 1)];
    });
  }

  /** The id in `tokenizer.ggml.<name>_token_id`, or `fallback`; undefined where no token has it. */
  special(name: string, fallback?: number): number | undefined {
    const id = this.#metadata.get(`tokenizer.ggml.${name}_token_id`) ?? fallback;
    return typeof id === 'number' && this.tokens[id] !== undefined ? id : undefined;
  }

  flag(name: string, fallback: boolean): boolean {
    const value = this.#metadata.get(`tokenizer.ggml.${name}`) ?? fallback;
    if (typeof value === 'boolean') return value;
    throw formatError(`${this.#what}: tokenizer.ggml.${name} is ${show(value)}; expected true or false`);
  }

  text(name: string, fallback: string): string {
    const value = this.#metadata.get(`tokenizer.ggml.${name}`) ?? fallback;
    if (typeof value === 'string') return value;
    throw formatError(`${this.#what}: tokenizer.ggml.${name} is ${show(value)}; expected a string`);
  }

  #list<T extends string | number>(name: string, kind: 'string' | 'number', length: number | undefined) {
    const value = this.#metadata.get(`tokenizer.ggml.${name}`);
    if (value === undefined) return undefined;
    const good = Array.isArray(value) && value.every((item) => typeof item === kind);
    if (!good)
      throw formatError(`${this.#what}: tokenizer.ggml.${name} is ${show(value)}; expected a list of ${kind}s`);
    if (length === undefined || value.length === length) return value as readonly T[];
    throw formatError(
      `${this.#what}: tokenizer.ggml.${name} has ${value.length} entries; expected ${length}, one per token`,
    );
  }

  #missing(name: string): never {
    throw formatError(`${this.#what} has no tokenizer.ggml.${name}; expected the tokenizer in the file`);
  }
}
