import { Random } from '../../base/random.js';
import { writeSafetensors } from '../../loader/testing/write_safetensors.js';
import type { DeltaConfig } from '../config/model_config.js';
import type { RandomModel } from './random_model.js';
import type { ReferenceTensor, WeightMap } from './reference/reference.js';
import { f32, type GgufTensor, text, writeGguf } from './gguf/file.js';
import { ggufContents } from './gguf/model.js';

export interface RandomAdapterOptions {
  readonly seed: number;
  readonly rank?: number;
  /** Tensors that it changes; default: all projections of layers. */
  readonly targets?: RegExp;
  /** Keys of adapter_config.json, over the usual ones. */
  readonly config?: Record<string, unknown>;
  readonly dtype?: 'F32' | 'F16';
}

export interface RandomPair {
  readonly tensor: string;
  readonly rows: number;
  readonly columns: number;
  /** Before any scale. */
  readonly a: Float32Array;
  readonly b: Float32Array;
}

export interface RandomAdapter {
  readonly rank: number;
  readonly pairs: readonly RandomPair[];
  /** As PEFT saves it. */
  readonly files: ReadonlyMap<string, Uint8Array<ArrayBuffer>>;
}

const PROJECTIONS = /\.\w+_proj\.weight$/;

/** Random pairs beside a model's projections, large enough to matter. */
export function randomAdapter(
  { weights }: Pick<RandomModel, 'weights'>,
  { seed, rank = 4, targets = PROJECTIONS, config = {}, dtype = 'F32' }: RandomAdapterOptions,
): RandomAdapter {
  const random = new Random(seed);
  const pairs = [...weights].flatMap(([tensor, { shape }]): RandomPair[] => {
    if (!targets.test(tensor) || shape.length !== 2) return [];
    const [rows, columns] = shape as [number, number];
    const values = (count: number, deviation: number): Float32Array =>
      // F16 holds them as they are.
      random.normals(count, deviation).map((value) => Math.round(value * 256) / 256);
    return [
      { tensor, rows, columns, a: values(rank * columns, 0.5), b: values(rows * rank, 0.3 / Math.sqrt(columns)) },
    ];
  });
  const json = {
    peft_type: 'LORA',
    r: rank,
    lora_alpha: 2 * rank,
    bias: 'none',
    target_modules: [...new Set(pairs.map(({ tensor }) => tensor.split('.').at(-2)))],
    modules_to_save: null,
    ...config,
  };
  const tensors = pairs.flatMap(({ tensor, rows, columns, a, b }) => {
    const name = `base_model.model.${tensor.replace(/\.weight$/, '')}`;
    return [
      { name: `${name}.lora_A.weight`, dtype, shape: [rank, columns], data: a },
      { name: `${name}.lora_B.weight`, dtype, shape: [rows, rank], data: b },
    ];
  });
  const files = new Map([
    ['adapter_config.json', new TextEncoder().encode(JSON.stringify(json))],
    ['adapter_model.safetensors', writeSafetensors(tensors)],
  ]);
  return { rank, pairs, files };
}

/** W + scale b a, summed in float64. */
export function mergedWeights(weights: WeightMap, { rank, pairs }: RandomAdapter, scale: number): WeightMap {
  const merged = new Map(weights);
  for (const { tensor, rows, columns, a, b } of pairs) {
    const { shape, data } = weights.get(tensor)!;
    const sums = data.slice();
    for (let row = 0; row < rows; row++) {
      for (let column = 0; column < columns; column++) {
        let sum = 0;
        for (let j = 0; j < rank; j++) sum += b[row * rank + j]! * a[j * columns + column]!;
        sums[row * columns + column] = data[row * columns + column]! + scale * sum;
      }
    }
    merged.set(tensor, { shape, data: sums });
  }
  return merged;
}

/** The same adapter as llama.cpp's convert_lora_to_gguf.py writes it: b's rows in the order of the tensor's, a as it is. */
export function adapterToGguf(
  { config }: RandomModel,
  { rank, pairs }: RandomAdapter,
  alpha: number,
): Uint8Array<ArrayBuffer> {
  const isOut = (tensor: string): boolean => tensor.endsWith('linear_attn.out_proj.weight');
  const isStacked = ({ tensor }: RandomPair): boolean => /experts\.\d+\./.test(tensor);
  const contents = (of: readonly RandomPair[], half: (pair: RandomPair) => ReferenceTensor) =>
    ggufContents(config, new Map(of.map((pair) => [pair.tensor, half(pair)])));
  const ofB = ({ tensor, rows, columns, b }: RandomPair): ReferenceTensor => ({
    shape: [rows, rank],
    data: isOut(tensor) ? new Float32Array(rows * columns) : b,
  });
  const single = pairs.filter((pair) => !isStacked(pair));
  const stacked = pairs.filter(isStacked);
  const { metadata, tensors } = contents(single, ofB);
  const stacksOfA = contents(stacked, ({ columns, a }) => ({ shape: [rank, columns], data: a })).tensors;
  const stacksOfB = contents(stacked, ofB).tensors;
  return writeGguf(
    {
      'general.type': text('adapter'),
      'general.architecture': metadata['general.architecture']!,
      'adapter.type': text('lora'),
      'adapter.lora.alpha': f32(alpha),
    },
    [
      ...tensors.flatMap((tensor, index): GgufTensor[] => {
        const { columns, a, b, tensor: of } = single[index]!;
        const values = isOut(of);
        return [
          { name: `${tensor.name}.lora_a`, shape: [rank, columns], data: values ? inTiles(config, columns, a) : a },
          { ...tensor, name: `${tensor.name}.lora_b`, ...(values && { data: b }) },
        ];
      }),
      ...stacksOfA.map((tensor) => ({ ...tensor, name: `${tensor.name}.lora_a` })),
      ...stacksOfB.map((tensor) => ({ ...tensor, name: `${tensor.name}.lora_b` })),
    ],
  );
}

/** Columns of value heads: the file has the first ones of all key heads first. */
function inTiles({ layers }: RandomModel['config'], columns: number, a: Float32Array): Float32Array {
  const attention = layers.map((layer) => layer.attention).find(({ kind }) => kind === 'delta') as DeltaConfig;
  const { keyHeads, valueHeads, valueDim } = attention;
  const ratio = valueHeads / keyHeads;
  return a.map((_, at) => {
    const column = at % columns;
    const tile = Math.floor(column / valueDim);
    const head = (tile % keyHeads) * ratio + Math.floor(tile / keyHeads);
    return a[at - column + head * valueDim + (column % valueDim)]!;
  });
}
