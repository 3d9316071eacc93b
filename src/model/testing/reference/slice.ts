import { roundWeights, type WeightType } from '../../../../shaders/linear/pack.js';
import type { RankShare, VocabShare } from '../../../placement/plan.js';
import type { ExpertsConfig, GqaConfig, MlaConfig, ModelConfig } from '../../config/model_config.js';
import type { WeightMap } from './math.js';

/**
 * What a rank's share of a layer must hold, straight from the definition of the plan and the checkpoint's tensors, row by row:
 * shares no code with the weight maps.
 */
export interface ExpectedMatrix {
  readonly type: WeightType;
  /** All columns of the checkpoint's rows (or zeros of padding). */
  readonly rows: readonly Float32Array[];
  /** Those that are packed. */
  readonly columns: readonly [begin: number, end: number];
  /** Elements of the activations that they meet. */
  readonly activations: number;
  /** Numbers of the checkpoint that it takes. */
  readonly numbers: number;
}

/** f32 values, zeros up to a multiple of 32 after them. */
interface ExpectedVector {
  readonly values: readonly number[];
  readonly numbers: number;
}

export type Expected = Readonly<Record<string, ExpectedMatrix | ExpectedVector>>;

/** The values that are multiplied by, row-major, and the bytes they take: tiles of 32 rows, blocks of 32 columns. */
export function packedValues({ type, rows, columns: [begin, end] }: ExpectedMatrix): Float32Array {
  const values = rows.flatMap((row) => [...roundWeights(type, row, 1, row.length).subarray(begin, end)]);
  return Float32Array.from(values);
}

const up32 = (value: number): number => Math.ceil(value / 32) * 32;
const BITS = { f32: 32, f16: 16, q8: 8 + 16 / 32, q4: 4 + 16 / 32 };

const packedBytes = ({ type, rows, columns: [begin, end] }: ExpectedMatrix): number =>
  (up32(rows.length) * up32(end - begin) * BITS[type]) / 8;

export const expectedBytes = (expected: Expected): number =>
  Object.values(expected).reduce(
    (sum, item) => sum + ('rows' in item ? packedBytes(item) : up32(item.values.length) * 4),
    0,
  );

const range = (first: number, end: number): number[] => Array.from({ length: end - first }, (_, i) => first + i);

/** Takes rows and columns of checkpoint tensors. */
class Checkpoint {
  constructor(
    readonly weights: WeightMap,
    readonly type: WeightType,
  ) {}

  row(tensor: string, row: number): Float32Array {
    const { shape, data } = this.weights.get(tensor)!;
    const width = shape[1] ?? 1;
    return data.subarray(row * width, (row + 1) * width);
  }

  vector(tensor: string, elements?: readonly number[]): ExpectedVector {
    const { data } = this.weights.get(tensor)!;
    const values = elements ? elements.map((i) => data[i]!) : [...data];
    return { values, numbers: values.length };
  }

  /** Rows of tensors, one list a tensor, each padded with zero rows. */
  stack(
    parts: readonly { tensor: string; rows: readonly number[]; padTo?: number }[],
    type = this.type,
  ): ExpectedMatrix {
    const width = this.weights.get(parts[0]!.tensor)!.shape[1]!;
    return {
      type,
      rows: parts.flatMap(({ tensor, rows, padTo = 1 }) => [
        ...rows.map((row) => this.row(tensor, row)),
        ...range(rows.length, Math.ceil(rows.length / padTo) * padTo).map(() => new Float32Array(width)),
      ]),
      columns: [0, width],
      activations: width,
      numbers: parts.reduce((sum, { rows }) => sum + rows.length * width, 0),
    };
  }

  /** All rows, the columns [begin, end) of a contraction: with the rest of the quantisation blocks that they cut. */
  columns(tensor: string, begin: number, end: number): ExpectedMatrix {
    const [height, width] = this.weights.get(tensor)!.shape as [number, number];
    const columns = [begin - (begin % 32), Math.min(up32(end), width)] as const;
    const whole = this.stack([{ tensor, rows: range(0, height) }]);
    return { ...whole, columns, activations: end - begin, numbers: height * (columns[1] - columns[0]) };
  }

  /** Gate, up and down of the MLP segments [first, end). */
  mlp(prefix: string, segments: readonly number[], name = ''): Expected {
    const width = this.weights.get(`${prefix}down_proj.weight`)!.shape[1]!;
    const start = (segment: number): number =>
      segment === 8 ? width : Math.floor(Math.floor((segment * width) / 8) / 32) * 32;
    if (segments.length === 0) return {};
    const [first, end] = [start(segments[0]!), start(segments.at(-1)! + 1)];
    if (first === end) return {};
    const rows = range(first, end);
    const bias = this.weights.has(`${prefix}gate_proj.bias`)
      ? ['gate', 'up'].map((half) => this.vector(`${prefix}${half}_proj.bias`, rows))
      : undefined;
    return {
      [`${name}gateUp`]: this.stack(
        ['gate', 'up'].map((half) => ({ tensor: `${prefix}${half}_proj.weight`, rows, padTo: 32 })),
      ),
      ...(bias && {
        [`${name}gateUpBias`]: {
          values: bias.flatMap(({ values }) => [...values, ...range(values.length, up32(values.length)).map(() => 0)]),
          numbers: 2 * rows.length,
        },
      }),
      [`${name}down`]: this.columns(`${prefix}down_proj.weight`, first, end),
    };
  }

  optional(name: string, tensor: string): Expected {
    return this.weights.has(tensor) ? { [name]: this.vector(tensor) } : {};
  }
}

/** What the share holds of layer `index`, by the names of the loaded weights (`shared.` and so on before nested ones). */
export function expectedLayer(
  config: ModelConfig,
  weights: WeightMap,
  type: WeightType,
  index: number,
  share: RankShare,
): Expected {
  const checkpoint = new Checkpoint(weights, type);
  const prefix = `model.layers.${index}.`;
  const { attention: of, mlp } = config.layers[index]!;
  return {
    inputNorm: checkpoint.vector(`${prefix}input_layernorm.weight`),
    postNorm: checkpoint.vector(`${prefix}post_attention_layernorm.weight`),
    ...checkpoint.optional('oBias', `${prefix}self_attn.o_proj.bias`),
    ...checkpoint.optional('downBias', `${prefix}mlp.down_proj.bias`),
    ...(share.heads.length === 0
      ? {}
      : of.kind === 'mla'
        ? latentAttention(of, checkpoint, `${prefix}self_attn.`, share)
        : attention(of as GqaConfig, checkpoint, `${prefix}self_attn.`, share)),
    ...(mlp.kind === 'experts'
      ? mixture(config.hiddenSize, mlp, checkpoint, `${prefix}mlp.`, share)
      : checkpoint.mlp(`${prefix}mlp.`, share.mlp)),
  };
}

function attention(
  { headDim, heads: numHeads, kvHeads: numKvHeads }: GqaConfig,
  checkpoint: Checkpoint,
  prefix: string,
  { heads }: RankShare,
): Expected {
  const group = numHeads / numKvHeads;
  const runs: number[][] = [];
  for (const head of heads) {
    const run = runs.at(-1);
    if (run?.at(-1) === head - 1) run.push(head);
    else runs.push([head]);
  }
  const kvRows = heads.flatMap((head) => range(head * headDim, (head + 1) * headDim));
  const qRows = heads.flatMap((head) => range(head * group * headDim, (head + 1) * group * headDim));
  const parts = [
    { tensor: `${prefix}q_proj`, rows: qRows },
    { tensor: `${prefix}k_proj`, rows: kvRows },
    { tensor: `${prefix}v_proj`, rows: kvRows },
  ];
  const biases = parts.map(({ tensor, rows }) =>
    checkpoint.weights.has(`${tensor}.bias`) ? checkpoint.vector(`${tensor}.bias`, rows) : undefined,
  );
  return {
    qkv: checkpoint.stack(parts.map(({ tensor, rows }) => ({ tensor: `${tensor}.weight`, rows }))),
    ...(biases[0] && {
      qkvBias: {
        values: biases.flatMap((bias) => bias!.values),
        numbers: biases.reduce((sum, bias) => sum + bias!.numbers, 0),
      },
    }),
    ...checkpoint.optional('qNorm', `${prefix}q_norm.weight`),
    ...checkpoint.optional('kNorm', `${prefix}k_norm.weight`),
    ...Object.fromEntries(
      runs.map((run) => {
        const [first, end] = [run[0]!, run.at(-1)! + 1].map((head) => head * group * headDim);
        const name = runs.length === 1 ? 'o' : `o.${run[0]!}`;
        return [name, checkpoint.columns(`${prefix}o_proj.weight`, first!, end!)];
      }),
    ),
  };
}

function latentAttention(config: MlaConfig, checkpoint: Checkpoint, prefix: string, share: RankShare): Expected {
  const { heads: numHeads, qLoraRank, kvLoraRank: latent, qkNopeHeadDim: nope, qkRopeHeadDim: rope, vHeadDim } = config;
  const groupStart = (group: number): number => Math.floor((group * numHeads) / 8);
  const heads = share.heads.flatMap((group) => range(groupStart(group), groupStart(group + 1)));
  // Checkpoints with pairs (2i, 2i + 1) of rotary rows: the even ones, then the odd ones.
  const rotary = (first: number): number[] =>
    config.rope.interleaved
      ? [...range(0, rope / 2).map((i) => first + 2 * i), ...range(0, rope / 2).map((i) => first + 2 * i + 1)]
      : range(first, first + rope);
  const qRows = heads.flatMap((head) => {
    const first = head * (nope + rope);
    return [...range(first, first + nope), ...rotary(first + nope)];
  });
  const kvRows = [...range(0, latent), ...rotary(latent)];
  const bottleneck = qLoraRank === null ? [] : range(0, qLoraRank);
  const q =
    heads.length === 0
      ? []
      : qLoraRank === null
        ? [{ tensor: `${prefix}q_proj.weight`, rows: qRows, padTo: 32 }]
        : [{ tensor: `${prefix}q_a_proj.weight`, rows: bottleneck, padTo: 32 }];
  const withLatent = {
    project: checkpoint.stack([...q, { tensor: `${prefix}kv_a_proj_with_mqa.weight`, rows: kvRows }]),
    norms: norms(),
    ...projectBias(),
  };
  if (heads.length === 0) return withLatent;

  // q.(U c) = (U^T q).c with U the head's first `nope` rows; the other rows make its values.
  const kvB = `${prefix}kv_b_proj.weight`;
  const kvBRow = (head: number, row: number): Float32Array => checkpoint.row(kvB, head * (nope + vHeadDim) + row);
  const halves = checkpoint.type === 'f32' ? 'f32' : 'f16';
  const half = (rows: Float32Array[], width: number, perHead: number): ExpectedMatrix => ({
    type: halves,
    rows,
    columns: [0, width],
    activations: width,
    numbers: heads.length * perHead,
  });
  return {
    ...withLatent,
    ...(qLoraRank !== null && {
      qUp: checkpoint.stack([{ tensor: `${prefix}q_b_proj.weight`, rows: qRows }]),
    }),
    absorb: half(
      heads.flatMap((head) =>
        range(0, latent).map((r) => Float32Array.from(range(0, nope), (n) => kvBRow(head, n)[r]!)),
      ),
      nope,
      nope * latent,
    ),
    valueUp: half(
      heads.flatMap((head) =>
        range(0, up32(vHeadDim)).map((v) => (v < vHeadDim ? kvBRow(head, nope + v) : new Float32Array(latent))),
      ),
      latent,
      vHeadDim * latent,
    ),
    o: checkpoint.columns(`${prefix}o_proj.weight`, heads[0]! * vHeadDim, (heads.at(-1)! + 1) * vHeadDim),
  };

  /** The bottleneck's, zeros up to a multiple of 64, and the latent's. */
  function norms(): ExpectedVector {
    const own = checkpoint.vector(`${prefix}kv_a_layernorm.weight`);
    if (qLoraRank === null || heads.length === 0) return own;
    const { values } = checkpoint.vector(`${prefix}q_a_layernorm.weight`);
    const padding = range(values.length, Math.ceil(values.length / 64) * 64).map(() => 0);
    return { values: [...values, ...padding, ...own.values], numbers: values.length + own.numbers };
  }

  function projectBias(): Expected {
    if (!config.bias) return {};
    const kv = checkpoint.vector(`${prefix}kv_a_proj_with_mqa.bias`, kvRows);
    const own = q.length > 0 && qLoraRank !== null ? checkpoint.vector(`${prefix}q_a_proj.bias`) : undefined;
    const before = q.length === 0 ? 0 : up32(q[0]!.rows.length);
    return {
      projectBias: {
        values: [...range(0, before).map((i) => own?.values[i] ?? 0), ...kv.values],
        numbers: (own?.numbers ?? 0) + kv.numbers,
      },
    };
  }
}

function mixture(
  hiddenSize: number,
  config: ExpertsConfig,
  checkpoint: Checkpoint,
  prefix: string,
  { experts, mlp }: RankShare,
): Expected {
  const { numExperts, width, sharedWidth } = config;
  const expert = (number: number, name: string, rows: number) => ({
    tensor: `${prefix}experts.${number}.${name}_proj.weight`,
    rows: range(0, rows),
    padTo: 32,
  });
  return {
    router: checkpoint.stack([{ tensor: `${prefix}gate.weight`, rows: range(0, numExperts) }], 'f32'),
    ...checkpoint.optional('correctionBias', `${prefix}gate.e_score_correction_bias`),
    ...(experts.length > 0 && {
      expertsGateUp: checkpoint.stack(
        experts.flatMap((number) => ['gate', 'up'].map((half) => expert(number, half, width))),
      ),
      expertsDown: checkpoint.stack(experts.map((number) => expert(number, 'down', hiddenSize))),
    }),
    ...(sharedWidth > 0 && checkpoint.mlp(`${prefix}shared_experts.`, mlp, 'shared.')),
  };
}

/** The embedding's and the head's rows on a rank, and the final norm beside the head. */
export function expectedVocabulary(
  config: ModelConfig,
  weights: WeightMap,
  type: WeightType,
  embedding: VocabShare | undefined,
  head: VocabShare | undefined,
): Expected {
  const checkpoint = new Checkpoint(weights, type);
  const table = 'model.embed_tokens.weight';
  const rows = (tensor: string, { rows: [first, end] }: VocabShare): ExpectedMatrix =>
    checkpoint.stack([{ tensor, rows: range(first, end) }]);
  const same = config.tieWordEmbeddings && embedding?.rows.join() === head?.rows.join();
  return {
    ...(embedding && { embedding: rows(table, embedding) }),
    ...(head && { norm: checkpoint.vector('model.norm.weight') }),
    ...(head && !same && { head: rows(config.tieWordEmbeddings ? table : 'lm_head.weight', head) }),
  };
}
