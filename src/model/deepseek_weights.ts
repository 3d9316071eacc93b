import { isQuantised, type WeightType } from '../../shaders/linear/pack.js';
import { ceilDiv } from '../base/math.js';
import type { Buffer, Device } from '../gpu/index.js';
import type { TensorReader } from '../loader/index.js';
import type { DeepseekConfig } from './config.js';
import { deepseekMap, deepseekSpecs, type DenseMlpMap, isMoe, type MoeMap } from './deepseek_map.js';
import type { Matrix } from './matrix.js';
import type { HeldSegments, RankSlice, Span } from './shape.js';
import { type LoadWeightsOptions, type VocabMatrix, WeightLoader } from './weight_loader.js';
import { type MatrixSpec, matrixType } from './weight_map.js';

export { isMoe } from './deepseek_map.js';

/** A SwiGLU, dense or of the shared experts. */
export interface DenseMlpWeights {
  /** Gate and up rows [downSegments.start, downSegments.end) of its width; undefined where they are none, as `down`. */
  readonly gateUp: Matrix | undefined;
  readonly down: Matrix | undefined;
  readonly downSegments: HeldSegments;
}

export interface MoeWeights {
  /** Whole on every rank, and kept in f32 whatever the weight type: routing decides which experts run. */
  readonly router: Matrix;
  readonly correctionBias: Buffer | undefined;
  /** The experts of the two matrices, by the model's numbers; undefined matrices where they are none. */
  readonly experts: Span;
  readonly expertsGateUp: Matrix | undefined;
  readonly expertsDown: Matrix | undefined;
  /** Undefined: the model has none. */
  readonly shared: DenseMlpWeights | undefined;
}

/** A rank's slice of a layer. Undefined: the model has none, or the rank none of it. Vectors that aren't cut are whole. */
export interface DeepseekLayerWeights {
  /** Of the layer in the model. */
  readonly index: number;
  /** By the model's numbers; may be empty where the rank holds attention segments, which MLA has 8 of whatever its heads. */
  readonly queryHeads: Span;
  readonly inputNorm: Buffer;
  /** With any attention segment: q of its heads (or the whole bottleneck) where it has heads, then the latent. */
  readonly project: Matrix | undefined;
  /** Element of a projected row where the latent and the rotary key start. */
  readonly latentOffset: number;
  readonly projectBias: Buffer | undefined;
  readonly qNorm: Buffer | undefined;
  readonly qUp: Matrix | undefined;
  readonly latentNorm: Buffer | undefined;
  /** W_UK^T, a group a query head: [kvLoraRank, nope]. */
  readonly absorb: Matrix | undefined;
  /** W_UV, a group a query head: [v, kvLoraRank], padded to 32 rows. */
  readonly valueUp: Matrix | undefined;
  readonly o: Matrix | undefined;
  /** The segments of o_proj's contraction that it holds, also where they are none (count 0) or have no heads. */
  readonly oSegments: HeldSegments;
  /** For whoever adds up all segments. */
  readonly oBias: Buffer | undefined;
  readonly postNorm: Buffer;
  readonly mlp: DenseMlpWeights | MoeWeights;
}

export interface DeepseekWeights {
  readonly type: WeightType;
  readonly embedding: VocabMatrix | undefined;
  /** Layers of which the rank holds weights, ascending. */
  readonly layers: readonly DeepseekLayerWeights[];
  /** Where the head is. */
  readonly norm: Buffer | undefined;
  /** The embedding itself when they are tied and the rank holds the same rows of both. */
  readonly head: VocabMatrix | undefined;
  readonly bytes: number;
  readonly parameters: number;
}

/** The type of kv_b_proj's two halves: under q8 and q4 both stay f16. */
export const absorbType = (type: WeightType): WeightType => (isQuantised(type) ? 'f16' : type);

/**
 * Loads a DeepSeek-family checkpoint: a rank's slice, or all of it.
 * @throws SplitkvError `format` for a missing or misshapen tensor, `limit` for an adapter too small, `aborted`.
 */
export async function loadDeepseekWeights(
  device: Device,
  config: DeepseekConfig,
  reader: TensorReader,
  type: WeightType,
  options: LoadWeightsOptions & { readonly slice?: RankSlice | undefined } = {},
): Promise<DeepseekWeights> {
  const map = deepseekMap(config, options.slice);
  const loader = new WeightLoader(device, reader, type, deepseekSpecs(map), options);
  const embedding = await loader.vocab(map.embedding);
  const layers: DeepseekLayerWeights[] = [];
  for (const layer of map.layers) {
    layers.push({
      index: layer.index,
      queryHeads: layer.queryHeads,
      inputNorm: await loader.vector(layer.inputNorm),
      project: await loader.matrix(layer.project),
      latentOffset: layer.latentOffset,
      projectBias: await loader.vector(layer.projectBias),
      qNorm: await loader.vector(layer.qNorm),
      qUp: await loader.matrix(layer.qUp),
      latentNorm: await loader.vector(layer.latentNorm),
      ...(await absorbed(loader, config, layer.kvUp)),
      o: await loader.matrix(layer.o),
      oSegments: layer.oSegments,
      oBias: await loader.vector(layer.oBias),
      postNorm: await loader.vector(layer.postNorm),
      mlp: isMoe<DenseMlpMap, MoeMap>(layer.mlp)
        ? await moe(loader, config, layer.mlp)
        : await dense(loader, layer.mlp),
    });
  }
  const norm = await loader.vector(map.norm);
  const head = map.head === map.embedding ? embedding : await loader.vocab(map.head);
  return { type, embedding, layers, norm, head, bytes: loader.bytes, parameters: loader.parameters };
}

async function dense(loader: WeightLoader, map: DenseMlpMap): Promise<DenseMlpWeights> {
  return {
    gateUp: await loader.matrix(map.gateUp, { whole: true }),
    down: await loader.matrix(map.down),
    downSegments: map.downSegments,
  };
}

async function moe(loader: WeightLoader, config: DeepseekConfig, map: MoeMap): Promise<MoeWeights> {
  const tiles = ceilDiv(config.moe!.intermediateSize, 32);
  return {
    router: await loader.matrix(map.router),
    correctionBias: await loader.vector(map.correctionBias),
    experts: map.experts,
    // Shards hold whole experts.
    expertsGateUp: await loader.matrix(map.expertsGateUp, { granule: 2 * tiles }),
    expertsDown: await loader.matrix(map.expertsDown, { granule: ceilDiv(config.hiddenSize, 32) }),
    shared: map.shared && (await dense(loader, map.shared)),
  };
}

/**
 * kv_b_proj cut into W_UK and W_UV a head, W_UK transposed: q_nope . (W_UK c) = (W_UK^T q_nope) . c, so keys needn't be expanded.
 */
async function absorbed(
  loader: WeightLoader,
  { qkNopeHeadDim: nope, vHeadDim, kvLoraRank: rank }: DeepseekConfig,
  kvUp: MatrixSpec | undefined,
): Promise<Pick<DeepseekLayerWeights, 'absorb' | 'valueUp'>> {
  if (!kvUp) return { absorb: undefined, valueUp: undefined };
  const padded = ceilDiv(vHeadDim, 32) * 32;
  const type = matrixType(kvUp, loader.type);
  const [absorb, valueUp] = [
    await loader.packer(kvUp.packedAs![0]!, type),
    await loader.packer(kvUp.packedAs![1]!, type),
  ];
  const { tensor, firstRow, rows } = kvUp.parts[0]!;
  const headRows = nope + vHeadDim;
  for (let row = firstRow; row < firstRow + rows; row += headRows) {
    const stored = await loader.rows(tensor, row, row + headRows);
    const transposed = new Float32Array(rank * nope);
    for (let n = 0; n < nope; n++) for (let r = 0; r < rank; r++) transposed[r * nope + n] = stored[n * rank + r]!;
    await absorb.append(transposed);
    const values = new Float32Array(padded * rank);
    values.set(stored.subarray(nope * rank));
    await valueUp.append(values);
  }
  return { absorb: absorb.matrix, valueUp: valueUp.matrix };
}
