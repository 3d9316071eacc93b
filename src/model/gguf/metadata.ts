import { unsupportedError } from '../../base/errors.js';
import { show } from '../../base/json.js';
import type { GgufFile } from '../../loader/index.js';
import { ConfigReader, type IntegerRange } from '../config/config_reader.js';

/** Typed access to the metadata of one architecture: `head_count` means `<arch>.head_count`. Throws as ConfigReader does. */
export class GgufMetadata {
  readonly what: string;
  readonly arch: string;
  readonly #reader: ConfigReader;

  constructor(gguf: GgufFile, arch: string) {
    this.what = gguf.what;
    this.arch = arch;
    const values = [...gguf.metadata].filter(([key]) => key.startsWith(`${arch}.`));
    this.#reader = new ConfigReader(Object.fromEntries(values), gguf.what);
  }

  /** A number, or a list of one number per layer that are all the same. */
  optionalInteger(name: string, range: IntegerRange): number | undefined {
    const key = `${this.arch}.${name}`;
    const value = this.#reader.raw(key);
    if (!Array.isArray(value)) return this.#reader.optionalInteger(key, range);
    const [first] = value as unknown[];
    if (value.some((one) => one !== first))
      throw unsupportedError(`${this.what}: ${key} ${show(value)} differs from layer to layer; all must be alike`);
    return new ConfigReader({ [key]: first }, this.what).optionalInteger(key, range);
  }

  integer(name: string, range: IntegerRange): number {
    return this.optionalInteger(name, range) ?? this.#reader.missing(`${this.arch}.${name}`);
  }

  /** 0 stands for absent, as in llama.cpp. Files hold f32: what comes back is the shortest number that is the same in f32. */
  optionalPositive(name: string): number | undefined {
    const key = `${this.arch}.${name}`;
    if (this.#reader.raw(key) === 0) return undefined;
    const value = this.#reader.optionalPositive(key);
    return value === undefined ? undefined : shortest(value);
  }

  positive(name: string): number {
    return this.optionalPositive(name) ?? this.#reader.missing(`${this.arch}.${name}`);
  }

  /** The value as it stands. */
  raw(name: string): unknown {
    return this.#reader.raw(`${this.arch}.${name}`);
  }

  optionalString(name: string): string | undefined {
    return this.#reader.optionalString(`${this.arch}.${name}`);
  }

  boolean(name: string, fallback: boolean): boolean {
    return this.#reader.boolean(`${this.arch}.${name}`, fallback);
  }

  /** True when somebody looked at the key. */
  asked(name: string): boolean {
    return this.#reader.asked(`${this.arch}.${name}`);
  }

  unsupported(name: string, value: unknown, supported: string): Error {
    return this.#reader.unsupported(`${this.arch}.${name}`, value, supported);
  }
}

function shortest(value: number): number {
  for (let digits = 1; digits < 9; digits++) {
    const rounded = Number(value.toPrecision(digits));
    if (Math.fround(rounded) === Math.fround(value)) return rounded;
  }
  return value;
}
