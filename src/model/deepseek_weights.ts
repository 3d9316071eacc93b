import type { WeightType } from '../../shaders/linear/pack.js';
import { ceilDiv } from '../base/math.js';
import type { Buffer, Device } from '../gpu/index.js';
import type { TensorReader } from '../loader/index.js';
import type { DeepseekConfig } from './config.js';
import { type DeepseekLayerMap, deepseekMap, type DenseMlpMap, type MoeMap } from './deepseek_map.js';
import type { Matrix } from './matrix.js';
import { type LoadWeightsOptions, WeightLoader } from './weight_loader.js';
import type { MatrixSpec, VectorSpec } from './weight_map.js';

export interface DenseMlpWeights {
  readonly gateUp: Matrix;
  readonly down: Matrix;
}

export interface MoeWeights {
  /** Kept in f32 whatever the weight type: routing decides which experts run. */
  readonly router: Matrix;
  readonly correctionBias: Buffer | undefined;
  readonly expertsGateUp: Matrix;
  readonly expertsDown: Matrix;
  readonly shared: DenseMlpWeights | undefined;
}

export interface DeepseekLayerWeights {
  readonly inputNorm: Buffer;
  readonly project: Matrix;
  readonly projectBias: Buffer | undefined;
  readonly qNorm: Buffer | undefined;
  readonly qUp: Matrix | undefined;
  readonly latentNorm: Buffer;
  /** W_UK^T, a group a head: [kvLoraRank, nope]. */
  readonly absorb: Matrix;
  /** W_UV, a group a head: [v, kvLoraRank], padded to 32 rows. */
  readonly valueUp: Matrix;
  readonly o: Matrix;
  readonly oBias: Buffer | undefined;
  readonly postNorm: Buffer;
  readonly mlp: DenseMlpWeights | MoeWeights;
}

export interface DeepseekWeights {
  readonly type: WeightType;
  readonly embedding: Matrix;
  readonly layers: readonly DeepseekLayerWeights[];
  readonly norm: Buffer;
  readonly head: Matrix;
  readonly bytes: number;
  readonly parameters: number;
}

export const isMoe = <D, M extends object>(mlp: D | M): mlp is M =>
  typeof mlp === 'object' && mlp !== null && 'router' in mlp;

/**
 * The type of kv_b_proj's two halves. Absorbing transposes one of them, so blocks of 32 along its rows would round other groups
 * of weights than the checkpoint's rows have: under q8 and q4 both stay f16.
 */
export const absorbType = (type: WeightType): WeightType => (type === 'f32' ? 'f32' : 'f16');

/**
 * Loads a DeepSeek-family checkpoint.
 * @throws SplitkvError `format` for a missing or misshapen tensor, `limit` for an adapter too small, `aborted`.
 */
export async function loadDeepseekWeights(
  device: Device,
  config: DeepseekConfig,
  reader: TensorReader,
  type: WeightType,
  options: LoadWeightsOptions = {},
): Promise<DeepseekWeights> {
  const map = deepseekMap(config);
  const loader = new WeightLoader(device, reader, type, allSpecs(map), options);
  const embedding = await loader.matrix(map.embedding);
  const layers: DeepseekLayerWeights[] = [];
  for (const layer of map.layers) {
    layers.push({
      inputNorm: await loader.vector(layer.inputNorm),
      project: await loader.matrix(layer.project),
      projectBias: await loader.vector(layer.projectBias),
      qNorm: await loader.vector(layer.qNorm),
      qUp: layer.qUp && (await loader.matrix(layer.qUp)),
      latentNorm: await loader.vector(layer.latentNorm),
      ...(await absorbed(loader, config, layer, absorbType(type))),
      o: await loader.matrix(layer.o),
      oBias: await loader.vector(layer.oBias),
      postNorm: await loader.vector(layer.postNorm),
      mlp: isMoe<DenseMlpMap, MoeMap>(layer.mlp)
        ? await experts(loader, config, layer.mlp)
        : await dense(loader, layer.mlp),
    });
  }
  const norm = await loader.vector(map.norm);
  const head = map.head ? await loader.matrix(map.head) : embedding;
  return { type, embedding, layers, norm, head, bytes: loader.bytes, parameters: loader.parameters };
}

function allSpecs(map: ReturnType<typeof deepseekMap>): (MatrixSpec | VectorSpec | undefined)[] {
  const mlpSpecs = (mlp: DenseMlpMap | MoeMap): (MatrixSpec | VectorSpec | undefined)[] =>
    isMoe<DenseMlpMap, MoeMap>(mlp)
      ? [mlp.router, mlp.correctionBias, mlp.expertsGateUp, mlp.expertsDown, mlp.shared?.gateUp, mlp.shared?.down]
      : [mlp.gateUp, mlp.down];
  return [
    map.embedding,
    ...map.layers.flatMap(({ mlp, ...attention }) => [...Object.values(attention), ...mlpSpecs(mlp)]),
    map.norm,
    map.head,
  ];
}

async function dense(loader: WeightLoader, map: DenseMlpMap): Promise<DenseMlpWeights> {
  return { gateUp: await loader.matrix(map.gateUp, { whole: true }), down: await loader.matrix(map.down) };
}

async function experts(loader: WeightLoader, { moe, hiddenSize }: DeepseekConfig, map: MoeMap): Promise<MoeWeights> {
  const tiles = ceilDiv(moe!.intermediateSize, 32);
  return {
    router: await loader.matrix(map.router, { type: 'f32' }),
    correctionBias: await loader.vector(map.correctionBias),
    // Shards hold whole experts.
    expertsGateUp: await loader.matrix(map.expertsGateUp, { granule: 2 * tiles }),
    expertsDown: await loader.matrix(map.expertsDown, { granule: ceilDiv(hiddenSize, 32) }),
    shared: map.shared && (await dense(loader, map.shared)),
  };
}

/**
 * kv_b_proj cut into W_UK and W_UV a head, W_UK transposed: q_nope . (W_UK c) = (W_UK^T q_nope) . c, so keys needn't be expanded.
 */
async function absorbed(
  loader: WeightLoader,
  { numHeads, qkNopeHeadDim: nope, vHeadDim, kvLoraRank: rank }: DeepseekConfig,
  { kvUp }: DeepseekLayerMap,
  type: WeightType,
): Promise<{ absorb: Matrix; valueUp: Matrix }> {
  const padded = ceilDiv(vHeadDim, 32) * 32;
  const absorb = await loader.packer(`${kvUp.name} absorbed`, type, numHeads * rank, nope);
  const valueUp = await loader.packer(`${kvUp.name} values`, type, numHeads * padded, rank);
  const { tensor } = kvUp.parts[0]!;
  const rows = nope + vHeadDim;
  for (let head = 0; head < numHeads; head++) {
    const stored = await loader.rows(tensor, head * rows, (head + 1) * rows);
    const transposed = new Float32Array(rank * nope);
    for (let n = 0; n < nope; n++) for (let r = 0; r < rank; r++) transposed[r * nope + n] = stored[n * rank + r]!;
    await absorb.append(transposed);
    const values = new Float32Array(padded * rank);
    values.set(stored.subarray(nope * rank));
    await valueUp.append(values);
  }
  return { absorb: absorb.matrix, valueUp: valueUp.matrix };
}
