import {
  configError,
  didYouMean,
  formatError,
  nearestName,
  type SplitkvError,
  unsupportedError,
} from '../../base/errors.js';
import { isObject, parseJson, parsePythonJson, show } from '../../base/json.js';
import type { GgufFile } from '../../loader/index.js';

/** Bounds of an integer, both inclusive; a size's where left out. */
interface IntegerRange {
  readonly min?: number;
  readonly max?: number;
}

/**
 * Typed access to the keys of one JSON object of a model folder. A key that is null counts as absent, as in transformers. Every
 * failure is a SplitkvError naming the file, the key and the value. The reader remembers which keys were asked for, so that
 * `refuseNearMisses` can tell a misspelt key from one that merely isn't needed.
 */
export class ConfigReader {
  readonly #values: Record<string, unknown>;
  readonly #asked = new Set<string>();
  #defaults: Readonly<Record<string, unknown>> = {};

  /**
   * @param source JSON text, or the object it holds.
   * @param file the name used in messages, e.g. `config.json`.
   * @param prefix what stands before each key.
   */
  constructor(
    source: unknown,
    readonly file: string,
    readonly prefix = '',
  ) {
    const value = typeof source === 'string' ? parseJson(source, file, parsePythonJson) : source;
    if (!isObject(value)) throw formatError(`${file}: expected a JSON object, got ${show(value)}`);
    this.#values = value;
  }

  /** The value as it stands, or undefined where the key is absent or null. */
  raw(key: string): unknown {
    const name = this.prefix + key;
    this.#asked.add(name);
    return Object.hasOwn(this.#values, name) ? (this.#values[name] ?? undefined) : this.#defaults[key];
  }

  /** What absent keys stand for; null still counts as absent. */
  setDefaults(defaults: Readonly<Record<string, unknown>>): void {
    this.#defaults = defaults;
  }

  /** True when the key is written, be it null. */
  has(key: string): boolean {
    return Object.hasOwn(this.#values, this.prefix + key);
  }

  asked(key: string): boolean {
    return this.#asked.has(this.prefix + key);
  }

  integer(key: string, range?: IntegerRange): number {
    return this.optionalInteger(key, range) ?? this.missing(key);
  }

  optionalInteger(key: string, { min = 1, max = 2 ** 20 }: IntegerRange = {}): number | undefined {
    const fits = (value: unknown): boolean => Number.isInteger(value) && Number(value) >= min && Number(value) <= max;
    return this.#optional(key, fits, `an integer from ${min} to ${max}`);
  }

  /** Undefined where absent; refused unless `fits` says so. */
  #optional<T>(key: string, fits: (value: unknown) => boolean, expected: string): T | undefined {
    const value = this.raw(key);
    if (value !== undefined && !fits(value)) throw this.invalid(key, value, expected);
    return value as T | undefined;
  }

  positive(key: string): number {
    return this.optionalPositive(key) ?? this.missing(key);
  }

  optionalPositive(key: string): number | undefined {
    return this.#optional(key, (value) => Number.isFinite(value) && Number(value) > 0, 'a positive number');
  }

  boolean(key: string, fallback: boolean): boolean {
    return this.#optional<boolean>(key, (value) => typeof value === 'boolean', 'true or false') ?? fallback;
  }

  optionalString(key: string): string | undefined {
    return this.#optional(key, (value) => typeof value === 'string', 'a string');
  }

  /**
   * One token id or a list of them; undefined where absent. Ids beyond the vocabulary are left out: no logit is theirs, so the
   * model can't produce them (vocabularies are cut, and configurations copied).
   */
  optionalTokenIds(key: string, vocabSize: number): number[] | undefined {
    const value = this.raw(key);
    if (value === undefined) return undefined;
    const ids = Array.isArray(value) ? value : [value];
    for (const id of ids) {
      if (!Number.isInteger(id) || id < 0) throw this.invalid(key, id, 'a token id or a list of them');
    }
    return [...new Set<number>(ids)].filter((id) => id < vocabSize);
  }

  optionalObject(key: string): ConfigReader | undefined {
    const value = this.#optional(key, isObject, 'an object');
    return value === undefined ? undefined : new ConfigReader(value, `${this.file}: ${this.prefix}${key}`);
  }

  missing(key: string): never {
    const name = this.prefix + key;
    throw configError(`${this.file}: the key '${name}' is missing.${didYouMean(name, this.#keysLeft())}`);
  }

  invalid(key: string, value: unknown, expected: string): SplitkvError {
    return configError(`${this.file}: ${this.prefix}${key} is ${show(value)}; expected ${expected}`);
  }

  unsupported(key: string, value: unknown, supported: string): SplitkvError {
    return unsupportedError(`${this.file}: ${this.prefix}${key} ${show(value)} is not supported; ${supported}`);
  }

  /**
   * Refuses a key nobody asked for whose name is within two edits of an optional key that is absent: a misspelt `rope_theta`
   * would otherwise quietly run with the default. Other unknown keys (there are many, and harmless) pass, and so do those that transformers
   * keeps for itself (`_sliding_window_pattern`).
   */
  refuseNearMisses(): void {
    const absent = [...this.#asked].filter((key) => key.length >= 8 && (this.#values[key] ?? undefined) === undefined);
    for (const key of this.#keysLeft()) {
      if (key.length < 8 || key.length > 24 || key.endsWith('_token_id') || key.startsWith('_')) continue;
      const near = nearestName(
        key,
        absent.filter((name) => withinTwoEdits(name, key)),
      );
      if (near !== undefined) throw configError(`${this.file}: unknown key '${key}'. Did you mean '${near}'?`);
    }
  }

  #keysLeft(): string[] {
    return Object.keys(this.#values).filter((key) => !this.#asked.has(key));
  }
}

/** True when the names differ only in a middle part of at most two letters on either side. */
function withinTwoEdits(a: string, b: string): boolean {
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start++;
  let end = 0;
  while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end++;
  return a.length - start - end <= 2 && b.length - start - end <= 2;
}

/** Typed access to the metadata of one architecture: `head_count` means `<arch>.head_count`. */
export class GgufMetadata extends ConfigReader {
  constructor(
    readonly gguf: GgufFile,
    readonly arch: string,
  ) {
    const values = [...gguf.metadata].filter(([key]) => key.startsWith(`${arch}.`));
    super(Object.fromEntries(values), gguf.what, `${arch}.`);
  }

  /** A number, or a list of one number per layer that are all the same. */
  override optionalInteger(name: string, range?: IntegerRange): number | undefined {
    const value = this.raw(name);
    if (!Array.isArray(value)) return super.optionalInteger(name, range);
    const [first] = value as unknown[];
    const key = this.prefix + name;
    if (value.some((one) => one !== first))
      throw unsupportedError(`${this.file}: ${key} ${show(value)} differs from layer to layer; all must be alike`);
    return new ConfigReader({ [key]: first }, this.file).optionalInteger(key, range);
  }

  /** 0 stands for absent, as in llama.cpp. Files hold f32: what comes back is the shortest number that is the same in f32. */
  override optionalPositive(name: string): number | undefined {
    const value = this.raw(name) === 0 ? undefined : super.optionalPositive(name);
    return value === undefined ? undefined : shortest(value);
  }
}

function shortest(value: number): number {
  for (let digits = 1; digits < 9; digits++) {
    const rounded = Number(value.toPrecision(digits));
    if (Math.fround(rounded) === Math.fround(value)) return rounded;
  }
  return value;
}
