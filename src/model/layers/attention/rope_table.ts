import { type RopeSpans, SPAN_ELEMENTS, spanElements } from '../../../../shaders/rope/rope_append/index.js';
import { range } from '../../../base/lists.js';
import type { Buffer, Device } from '../../../gpu/index.js';
import type { RopeConfig, RopeStretch } from '../../config/rope_config.js';

/** What a table is made of. */
export type RotaryConfig = Pick<RopeConfig, 'theta' | 'scaling' | 'dims' | 'temperature'>;

/**
 * Rotary rows that come in pairs (2i, 2i + 1) put in halves: where each row of a head is taken from.
 * @param length rows of a head
 * @param first where the rotary rows begin; the rows before and behind them stay
 * @param dims how many they are
 */
export const pairsInHalves = (length: number, first: number, dims: number): number[] =>
  Array.from({ length }, (_, row) => {
    const rotary = row - first;
    if (rotary < 0 || rotary >= dims) return row;
    return first + (rotary < dims / 2 ? 2 * rotary : 2 * rotary - dims + 1);
  });

/** The same of heads whose halves have halves. */
export const axesInHalves = (length: number): number[] =>
  [2, 0, 3, 1].flatMap((quarter) => range((quarter * length) / 4, ((quarter + 1) * length) / 4));

/**
 * Rotary angular frequencies [dims / 2], radians a position, in float64: theta^(-2i/dims), then stretched as transformers'
 * modeling_rope_utils does. `linear` divides all of them; `llama3` divides those whose wavelength exceeds the trained context,
 * leaves the short ones, and blends in between; `yarn` does so by a ramp over the dimensions; `longrope` divides each by its own
 * factor: the long list where `positions` exceeds the trained context, otherwise the short one.
 *
 * @param positions the context length the caller allocates. transformers chooses longrope's list by the length of the sequence so
 * far, which changes the meaning of keys already in the cache; here one list serves a whole run, as in llama.cpp and vLLM.
 */
export function ropeFrequencies(config: RotaryConfig, positions: number): Float64Array {
  const { theta, scaling, dims } = config;
  const plain = Float64Array.from({ length: dims / 2 }, (_, i) => theta ** ((-2 * i) / dims));
  switch (scaling?.type) {
    case undefined:
      return plain;
    case 'linear':
      return plain.map((frequency) => frequency / scaling.factor);
    case 'llama3':
      return plain.map((frequency) => llama3Frequency(frequency, scaling));
    case 'yarn':
      return yarnFrequencies(plain, theta, scaling);
    case 'longrope': {
      const divisors = positions > scaling.originalMaxPositions ? scaling.longFactor : scaling.shortFactor;
      return plain.map((frequency, i) => frequency / divisors[i]!);
    }
  }
}

function llama3Frequency(frequency: number, scaling: Extract<RopeStretch, { type: 'llama3' }>): number {
  const { factor, lowFreqFactor, highFreqFactor, originalMaxPositions } = scaling;
  /** How many turns this frequency makes in the trained context. */
  const turns = (originalMaxPositions * frequency) / (2 * Math.PI);
  if (turns < lowFreqFactor) return frequency / factor;
  if (turns > highFreqFactor) return frequency;
  const smooth = (turns - lowFreqFactor) / (highFreqFactor - lowFreqFactor);
  return ((1 - smooth) * frequency) / factor + smooth * frequency;
}

/** Frequencies before dimension `low` stay, those from `high` on are divided by the factor, with a straight ramp between. */
function yarnFrequencies(
  plain: Float64Array,
  theta: number,
  { factor, originalMaxPositions, betaFast, betaSlow, truncate = true }: Extract<RopeStretch, { type: 'yarn' }>,
): Float64Array {
  const dims = plain.length * 2;
  /** The (fractional) index of the frequency that makes `turns` turns in the trained context. */
  const indexOf = (turns: number) =>
    (dims * Math.log(originalMaxPositions / (turns * 2 * Math.PI))) / (2 * Math.log(theta));
  const [from, to] = [indexOf(betaFast), indexOf(betaSlow)];
  const low = Math.max(truncate ? Math.floor(from) : from, 0);
  const high = Math.min(truncate ? Math.ceil(to) : to, dims - 1);
  const width = high === low ? 0.001 : high - low;
  return plain.map((frequency, i) => {
    const stretched = Math.min(Math.max((i - low) / width, 0), 1);
    return (stretched * frequency) / factor + (1 - stretched) * frequency;
  });
}

/**
 * (cos, sin) of every rotation, [positions][dims / 2][2], computed in float64 and rounded once to f32; YaRN and LongRoPE multiply
 * them by their attention factor. Entry i turns the pair (x[i], x[i + dims / 2]) of a head. With a temperature, [positions][2][dims / 2]
 * [2]: a row for keys, then one for queries.
 */
export function ropeTable(config: RotaryConfig, positions: number): Float32Array<ArrayBuffer> {
  const { scaling, temperature } = config;
  const frequencies = ropeFrequencies(config, positions);
  const scale = scaling !== null && 'attentionFactor' in scaling ? scaling.attentionFactor : 1;
  const table = new Float32Array(positions * frequencies.length * (temperature ? 4 : 2));
  let at = 0;
  const addRow = (position: number, factor: number): void => {
    for (const frequency of frequencies) {
      table[at++] = Math.cos(position * frequency) * factor;
      table[at++] = Math.sin(position * frequency) * factor;
    }
  };
  for (let position = 0; position < positions; position++) {
    addRow(position, scale);
    if (temperature) addRow(position, scale * queryFactor(temperature, position));
  }
  return table;
}

const queryFactor = ({ beta, length }: NonNullable<RotaryConfig['temperature']>, position: number): number =>
  1 + beta * Math.log(1 + Math.floor(position / length));

/** A picture of a sequence: the place of its first row, and how many lines and columns of rows it has. */
export type PictureSpan = readonly [first: number, lines: number, columns: number];

/** Tables on a device, for sequences of up to `positions` tokens: one for all layers that rotate alike. */
export class RopeTables {
  readonly #tables = new Map<string, Buffer>();
  /** Those that have slots' pictures behind their positions, and where. */
  readonly #spans = new Map<Buffer, number>();

  constructor(
    readonly device: Device,
    readonly positions: number,
    readonly slots: number,
  ) {}

  /** @param spans whether rows of pictures have positions of their own */
  of({ theta, scaling, dims, temperature }: RotaryConfig, spans = false): Buffer {
    const config = { theta, scaling, dims, ...(temperature && { temperature }), spans };
    const key = JSON.stringify(config);
    const known = this.#tables.get(key);
    if (known) return known;
    const table = ropeTable(config, this.positions);
    const { byteLength } = table;
    const buffer = this.device.createBuffer('rope_table', byteLength + (spans ? this.slots * SPAN_ELEMENTS * 4 : 0));
    this.device.write(buffer, 0, table);
    this.#tables.set(key, buffer);
    if (spans) this.#spans.set(buffer, byteLength);
    return buffer;
  }

  /** What kernels are told of such a table. */
  spansOf({ sections }: Pick<RopeConfig, 'sections'>): RopeSpans | undefined {
    return sections && { positions: this.positions, ...sections };
  }

  /** Which pictures a slot's sequence has from now on. */
  place(slot: number, pictures: readonly PictureSpan[]): void {
    const elements = spanElements(pictures);
    for (const [table, at] of this.#spans) this.device.write(table, at + slot * elements.byteLength, elements);
  }
}
