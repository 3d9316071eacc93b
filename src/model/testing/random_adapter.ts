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
  /** Experts' pairs are saved beside stacks of all, as those of `target_parameters`. */
  readonly stacked?: true;
}

interface RandomPair {
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
  { seed, rank = 4, targets = PROJECTIONS, config = {}, dtype = 'F32', stacked }: RandomAdapterOptions,
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
    // Of gate and up side by side.
    ...(stacked && { alpha_pattern: { '.*\\.gate_up_proj': 4 * rank } }),
    ...config,
  };
  const single = stacked ? pairs.filter((pair) => !isExperts(pair)) : pairs;
  const tensors = [
    ...single.flatMap((pair) => savedPair(pair, rank)),
    ...(stacked ? savedStacks(pairs, rank) : []),
  ].map(({ name, ...tensor }) => ({ ...tensor, name: `base_model.model.${name}`, dtype }));
  const files = new Map([
    ['adapter_config.json', new TextEncoder().encode(JSON.stringify(json))],
    ['adapter_model.safetensors', writeSafetensors(tensors)],
  ]);
  return { rank, pairs, files };
}

interface SavedTensor {
  readonly name: string;
  readonly shape: readonly [number, number];
  readonly data: Float32Array;
}

const isExperts = ({ tensor }: RandomPair): boolean => /experts\.\d+\./.test(tensor);

/** PEFT has the embedding the other way round: B A [hidden, vocabulary]. */
function savedPair({ tensor, rows, columns, a, b }: RandomPair, rank: number): SavedTensor[] {
  const name = tensor.replace(/\.weight$/, '');
  if (isEmbedding(tensor))
    return [
      { name: `${name}.lora_embedding_A`, shape: [rank, rows], data: turned(b, rows, rank) },
      { name: `${name}.lora_embedding_B`, shape: [columns, rank], data: turned(a, rank, columns) },
    ];
  return [
    { name: `${name}.lora_A.weight`, shape: [rank, columns], data: a },
    { name: `${name}.lora_B.weight`, shape: [rows, rank], data: b },
  ];
}

const isEmbedding = (tensor: string): boolean => tensor.endsWith('embed_tokens.weight');

function turned(of: Float32Array, rows: number, columns: number): Float32Array {
  return new Float32Array(of.length).map((_, at) => of[(at % rows) * columns + Math.floor(at / rows)]!);
}

/**
 * As PEFT's ParamWrapper computes it: delta[e] = B'[:, :, e] A'[e], of lora_A as A' [experts, rank, inputs] and lora_B as B' [outputs, rank,
 * experts]. Gate and up are one parameter: their ranks side by side, and zeros where B would mix them. Of a module's parameters the one
 * wrapped first lies within.
 */
function savedStacks(pairs: readonly RandomPair[], rank: number): SavedTensor[] {
  const places = [...new Set(pairs.filter(isExperts).map(({ tensor }) => tensor.replace(/\.\d+\.\w+\.weight$/, '')))];
  return places.flatMap((place) =>
    [['gate_proj', 'up_proj'], ['down_proj']].flatMap((parts, within): SavedTensor[] => {
      const of = (expert: number, part: string) =>
        pairs.find(({ tensor }) => tensor === `${place}.${expert}.${part}.weight`);
      const { rows, columns } = of(0, parts[0]!)!;
      const experts = pairs.filter(({ tensor }) => tensor.startsWith(`${place}.`) && tensor.includes(parts[0]!)).length;
      const [ranks, outputs] = [rank * parts.length, rows * parts.length];
      const a = new Float32Array(experts * ranks * columns);
      const b = new Float32Array(outputs * ranks * experts);
      for (let expert = 0; expert < experts; expert++)
        for (const [index, part] of parts.entries()) {
          const pair = of(expert, part)!;
          a.set(pair.a, (expert * parts.length + index) * rank * columns);
          for (let row = 0; row < rows; row++)
            for (let j = 0; j < rank; j++)
              b[((index * rows + row) * ranks + index * rank + j) * experts + expert] = pair.b[row * rank + j]!;
        }
      const name = within === 0 ? `${place}.base_layer` : place;
      return [
        { name: `${name}.lora_A.weight`, shape: [experts * ranks, columns], data: a },
        { name: `${name}.lora_B.weight`, shape: [outputs, ranks * experts], data: b },
      ];
    }),
  );
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
  const contents = (of: readonly RandomPair[], half: (pair: RandomPair) => ReferenceTensor) =>
    ggufContents(config, new Map(of.map((pair) => [pair.tensor, half(pair)])));
  const ofB = ({ tensor, rows, columns, b }: RandomPair): ReferenceTensor => ({
    shape: [rows, rank],
    data: isOut(tensor) ? new Float32Array(rows * columns) : b,
  });
  const single = pairs.filter((pair) => !isExperts(pair));
  const stacked = pairs.filter(isExperts);
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
        if (isEmbedding(of))
          return [
            { ...tensor, name: `${tensor.name}.lora_a` },
            { name: `${tensor.name}.lora_b`, shape: [columns, rank], data: turned(a, rank, columns) },
          ];
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
