import type { DeepseekConfig } from './config.js';
import { isMoeLayer } from './config.js';
import type { MatrixPart, MatrixSpec, VectorSpec } from './weight_map.js';

/** Gate and up tiles must not share a 32-row tile: the fused SwiGLU reads tile t of each. */
const PAD = 32;

export interface DenseMlpMap {
  readonly gateUp: MatrixSpec;
  readonly down: MatrixSpec;
}

export interface MoeMap {
  readonly router: MatrixSpec;
  readonly correctionBias: VectorSpec | undefined;
  /** Expert by expert: gate rows, then up rows, each padded to 32. */
  readonly expertsGateUp: MatrixSpec;
  readonly expertsDown: MatrixSpec;
  readonly shared: DenseMlpMap | undefined;
}

export interface DeepseekLayerMap {
  readonly inputNorm: VectorSpec;
  /** q_proj or q_a_proj (padded to 32 rows), then kv_a_proj_with_mqa: the latent, then the rotary key. */
  readonly project: MatrixSpec;
  readonly projectBias: VectorSpec | undefined;
  readonly qNorm: VectorSpec | undefined;
  readonly qUp: MatrixSpec | undefined;
  readonly latentNorm: VectorSpec;
  /** kv_b_proj as stored: heads * (nope + v) rows of kvLoraRank; absorbed into a matrix a head when it is loaded. */
  readonly kvUp: MatrixSpec;
  readonly o: MatrixSpec;
  readonly oBias: VectorSpec | undefined;
  readonly postNorm: VectorSpec;
  readonly mlp: DenseMlpMap | MoeMap;
}

export interface DeepseekMap {
  readonly embedding: MatrixSpec;
  readonly layers: readonly DeepseekLayerMap[];
  readonly norm: VectorSpec;
  readonly head: MatrixSpec | undefined;
}

/** Hugging Face tensor names and shapes of DeepSeek-V2, V3 and MiniCPM3. */
export function deepseekMap(config: DeepseekConfig): DeepseekMap {
  const { hiddenSize, vocabSize, numHeads, qLoraRank, kvLoraRank, qkNopeHeadDim, qkRopeHeadDim, vHeadDim, moe } =
    config;
  const matrix = (name: string, inFeatures: number, ...parts: MatrixPart[]): MatrixSpec => ({
    name,
    inFeatures,
    parts,
  });
  const vector = (name: string, tensor: string, length: number): VectorSpec => ({ name, parts: [{ tensor, length }] });
  const qRows = numHeads * (qkNopeHeadDim + qkRopeHeadDim);
  const qOrder = rotaryOrder(config, qkNopeHeadDim);
  const kvOrder = rotaryOrder(config, kvLoraRank);

  const dense = (name: string, prefix: string, width: number): DenseMlpMap => ({
    gateUp: matrix(
      `${name}gate_up`,
      hiddenSize,
      ...['gate', 'up'].map((half) => ({ tensor: `${prefix}${half}_proj.weight`, rows: width, padTo: PAD })),
    ),
    down: matrix(`${name}down`, width, { tensor: `${prefix}down_proj.weight`, rows: hiddenSize }),
  });

  const experts = (name: string, prefix: string): MoeMap => {
    const { numExperts, intermediateSize, numShared, correctionBias } = moe!;
    const each = Array.from({ length: numExperts }, (_, expert) => `${prefix}experts.${expert}.`);
    return {
      router: matrix(`${name}router`, hiddenSize, { tensor: `${prefix}gate.weight`, rows: numExperts }),
      correctionBias: correctionBias
        ? vector(`${name}correction_bias`, `${prefix}gate.e_score_correction_bias`, numExperts)
        : undefined,
      expertsGateUp: matrix(
        `${name}experts_gate_up`,
        hiddenSize,
        ...each.flatMap((expert) => [
          { tensor: `${expert}gate_proj.weight`, rows: intermediateSize, padTo: PAD },
          { tensor: `${expert}up_proj.weight`, rows: intermediateSize, padTo: PAD },
        ]),
      ),
      expertsDown: matrix(
        `${name}experts_down`,
        intermediateSize,
        ...each.map((expert) => ({ tensor: `${expert}down_proj.weight`, rows: hiddenSize, padTo: PAD })),
      ),
      shared:
        numShared > 0 ? dense(`${name}shared_`, `${prefix}shared_experts.`, numShared * intermediateSize) : undefined,
    };
  };

  const layerMap = (layer: number): DeepseekLayerMap => {
    const prefix = `model.layers.${layer}.`;
    const attention = `${prefix}self_attn.`;
    const name = `layers.${layer}.`;
    const kvA: MatrixPart = {
      tensor: `${attention}kv_a_proj_with_mqa.weight`,
      rows: kvLoraRank + qkRopeHeadDim,
      ...(kvOrder && { order: kvOrder }),
    };
    const q = (tensor: string): MatrixPart => ({
      tensor: `${attention}${tensor}`,
      rows: qRows,
      ...(qOrder && { order: qOrder }),
    });
    const first: MatrixPart =
      qLoraRank === null
        ? { ...q('q_proj.weight'), padTo: PAD }
        : { tensor: `${attention}q_a_proj.weight`, rows: qLoraRank, padTo: PAD };
    return {
      inputNorm: vector(`${name}input_norm`, `${prefix}input_layernorm.weight`, hiddenSize),
      project: matrix(`${name}project`, hiddenSize, first, kvA),
      projectBias: config.attentionBias ? projectBias(name, attention) : undefined,
      qNorm: qLoraRank === null ? undefined : vector(`${name}q_norm`, `${attention}q_a_layernorm.weight`, qLoraRank),
      qUp: qLoraRank === null ? undefined : matrix(`${name}q_up`, qLoraRank, q('q_b_proj.weight')),
      latentNorm: vector(`${name}latent_norm`, `${attention}kv_a_layernorm.weight`, kvLoraRank),
      kvUp: matrix(`${name}kv_up`, kvLoraRank, {
        tensor: `${attention}kv_b_proj.weight`,
        rows: numHeads * (qkNopeHeadDim + vHeadDim),
      }),
      o: matrix(`${name}o`, numHeads * vHeadDim, { tensor: `${attention}o_proj.weight`, rows: hiddenSize }),
      oBias: config.attentionBias ? vector(`${name}o_bias`, `${attention}o_proj.bias`, hiddenSize) : undefined,
      postNorm: vector(`${name}post_norm`, `${prefix}post_attention_layernorm.weight`, hiddenSize),
      mlp:
        moe && isMoeLayer(config, layer)
          ? experts(name, `${prefix}mlp.`)
          : dense(name, `${prefix}mlp.`, config.intermediateSize),
    };
  };

  const projectBias = (name: string, attention: string): VectorSpec => ({
    name: `${name}project_bias`,
    parts: [
      // q_proj has no bias, but its rows keep their place.
      ...(qLoraRank === null
        ? [{ length: qRows, padTo: PAD }]
        : [{ tensor: `${attention}q_a_proj.bias`, length: qLoraRank, padTo: PAD }]),
      {
        tensor: `${attention}kv_a_proj_with_mqa.bias`,
        length: kvLoraRank + qkRopeHeadDim,
        ...(kvOrder && { order: kvOrder }),
      },
    ],
  });

  return {
    embedding: matrix('embed_tokens', hiddenSize, { tensor: 'model.embed_tokens.weight', rows: vocabSize }),
    layers: Array.from({ length: config.numLayers }, (_, layer) => layerMap(layer)),
    norm: vector('norm', 'model.norm.weight', hiddenSize),
    head: config.tieWordEmbeddings
      ? undefined
      : matrix('lm_head', hiddenSize, { tensor: 'lm_head.weight', rows: vocabSize }),
  };
}

/**
 * Interleaved rotary rows put in halves: of every group of `plain` rows followed by qkRopeHeadDim rotary ones, the even rotary
 * rows first, then the odd ones, as transformers does to activations. Undefined where the checkpoint has halves already.
 */
function rotaryOrder({ ropeInterleaved, qkRopeHeadDim }: DeepseekConfig, plain: number): number[] | undefined {
  if (!ropeInterleaved) return undefined;
  const half = qkRopeHeadDim / 2;
  return Array.from({ length: plain + qkRopeHeadDim }, (_, row) => {
    if (row < plain) return row;
    const rotary = row - plain;
    return plain + (rotary < half ? 2 * rotary : 2 * (rotary - half) + 1);
  });
}
