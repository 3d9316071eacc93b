import { unsupportedError } from '../../base/errors.js';
import { show } from '../../base/json.js';
import type { GgufFile } from '../../loader/index.js';
import { ConfigReader, type IntegerRange } from '../config/config_reader.js';

/** Typed access to the metadata of one architecture: `head_count` means `<arch>.head_count`. */
export class GgufMetadata extends ConfigReader {
  constructor(
    gguf: GgufFile,
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
