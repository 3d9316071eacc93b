import type { GivenPictures } from './families.js';
import {
  addAll,
  causalAttention,
  type Lookup,
  lookupIn,
  matVec,
  rmsNorm,
  rotatePair,
  swiglu,
  type Vector,
  type WeightMap,
} from './math.js';

/** A config.json, as it stands. */
type Raw = Readonly<Record<string, unknown>>;

export const isRecurrentModel = ({ model_type: type }: Raw): boolean =>
  isQwen({ model_type: type }) || ['lfm2', 'lfm2_moe'].includes(String(type));

const isQwen = ({ model_type: type }: Raw): boolean =>
  ['qwen3_5_text', 'qwen3_5_moe_text', 'qwen3_next'].includes(String(type));

function number(raw: Raw, key: string, otherwise?: number): number {
  const value = raw[key] ?? otherwise;
  if (typeof value !== 'number') throw new Error(`reference: ${key} is ${JSON.stringify(value)}`);
  return value;
}

const sigmoid = (x: number): number => 1 / (1 + Math.exp(-x));
const silu = (x: number): number => x * sigmoid(x);
const plus = (weight: Float32Array, offset: number): Float32Array => weight.map((w) => w + offset);

/**
 * Logits [tokens.length][vocab_size] in float64 of LFM2, LFM2-MoE, Qwen3.5 and Qwen3-Next (transformers' models/lfm2, lfm2_moe,
 * qwen3_5, qwen3_5_moe, qwen3_next), token by token with every state written out; reads config.json by itself.
 */
export function recurrentLogits(
  raw: Raw,
  weights: WeightMap,
  tokens: readonly number[],
  pictures?: GivenPictures,
): Float64Array[] {
  const tied = raw['tie_word_embeddings'] ?? raw['model_type'] !== 'qwen3_5_text';
  const name = tied ? 'model.embed_tokens.weight' : 'lm_head.weight';
  const head = lookupIn(weights)(name, number(raw, 'vocab_size'), number(raw, 'hidden_size'));
  return recurrentStates(raw, weights, tokens, pictures).map((state) => matVec(head, state));
}

/** Of the same: the final hidden states behind the last norm, [tokens.length][hidden_size]. */
export function recurrentStates(
  raw: Raw,
  weights: WeightMap,
  tokens: readonly number[],
  pictures?: GivenPictures,
): Float64Array[] {
  const tensor = lookupIn(weights);
  const qwen = isQwen(raw);
  const [hidden, vocabulary] = [number(raw, 'hidden_size'), number(raw, 'vocab_size')];
  const eps = qwen ? number(raw, 'rms_norm_eps', 1e-6) : number(raw, 'norm_eps', 1e-5);
  const norm = (x: Vector, name: string): Vector =>
    rmsNorm(x, plus(tensor(`${name}.weight`, x.length), qwen ? 1 : 0), eps);
  const table = tensor('model.embed_tokens.weight', vocabulary, hidden);
  const x = tokens.map((token, position) =>
    Float64Array.from(pictures?.rows.get(position) ?? table.subarray(token * hidden, (token + 1) * hidden)),
  );
  for (let index = 0; index < number(raw, 'num_hidden_layers'); index++) {
    const at = `model.layers.${index}.`;
    const before = x.map((row) => norm(row, `${at}${qwen ? 'input_layernorm' : 'operator_norm'}`));
    addAll(x, mixed(raw, qwen, index, tensor, at, before, norm, pictures?.positionOf));
    const mlp = mlpOf(raw, qwen, index, tensor, at);
    addAll(
      x,
      x.map((row) => mlp(norm(row, `${at}${qwen ? 'post_attention_layernorm' : 'ffn_norm'}`))),
    );
  }
  return x.map((row) => norm(row, qwen ? 'model.norm' : 'model.embedding_norm'));
}

/**
 * What Qwen3.5's own head (`mtp.*`) proposes behind a text, greedily, in float64: of each token from the second on
 * fc [norm(embedding); norm(h)], with h the row before it behind the model's last norm, through a layer of attention; then of its own
 * tokens and rows.
 * @param first the head has seen of the text only tokens from here on
 */
export function headDrafts(
  raw: Raw,
  weights: WeightMap,
  tokens: readonly number[],
  count: number,
  first = 1,
): number[] {
  const tensor = lookupIn(weights);
  const [hidden, vocabulary] = [number(raw, 'hidden_size'), number(raw, 'vocab_size')];
  const norm = (x: Vector, name: string): Vector =>
    rmsNorm(x, plus(tensor(`${name}.weight`, x.length), 1), number(raw, 'rms_norm_eps', 1e-6));
  const table = tensor('model.embed_tokens.weight', vocabulary, hidden);
  const head = raw['tie_word_embeddings'] === true ? table : tensor('lm_head.weight', vocabulary, hidden);
  const fc = tensor('mtp.fc.weight', hidden, 2 * hidden);
  const joined = (token: number, h: Vector): Vector => {
    const embedded = Float64Array.from(table.subarray(token * hidden, (token + 1) * hidden));
    const both = [...norm(embedded, 'mtp.pre_fc_norm_embedding'), ...norm(h, 'mtp.pre_fc_norm_hidden')];
    return matVec(fc, Float64Array.from(both));
  };
  const states = recurrentStates(raw, weights, tokens);
  const inputs = tokens.slice(first).map((token, at) => joined(token, states[first - 1 + at]!));
  const mlp = mlpOf(raw, true, 0, tensor, 'mtp.layers.0.');
  const drafts: number[] = [];
  while (drafts.length < count) {
    const x = inputs.map((row) => Float64Array.from(row));
    const before = x.map((row) => norm(row, 'mtp.layers.0.input_layernorm'));
    addAll(x, attention(raw, true, tensor, 'mtp.layers.0.self_attn.', before, norm));
    addAll(
      x,
      x.map((row) => mlp(norm(row, 'mtp.layers.0.post_attention_layernorm'))),
    );
    const own = norm(x.at(-1)!, 'mtp.norm');
    const logits = matVec(head, own);
    const draft = logits.indexOf(Math.max(...logits));
    drafts.push(draft);
    inputs.push(joined(draft, own));
  }
  return drafts;
}

function mixed(
  raw: Raw,
  qwen: boolean,
  index: number,
  tensor: Lookup,
  at: string,
  rows: readonly Vector[],
  norm: (x: Vector, name: string) => Vector,
  positionOf?: GivenPictures['positionOf'],
): Vector[] {
  const types = raw['layer_types'] as readonly string[] | undefined;
  const listed = raw['full_attn_idxs'] as readonly number[] | undefined;
  const full = types
    ? types[index] === 'full_attention'
    : qwen
      ? (index + 1) % number(raw, 'full_attention_interval', 4) === 0
      : (listed?.includes(index) ?? true);
  if (full) return attention(raw, qwen, tensor, `${at}self_attn.`, rows, norm, positionOf);
  return qwen ? deltaNet(raw, tensor, `${at}linear_attn.`, rows) : shortConv(raw, tensor, `${at}conv.`, rows);
}

/** Each channel over the last `taps` rows, oldest tap first. */
function convolve(taps: number, weight: Float32Array, rows: readonly Vector[]): Vector[] {
  return rows.map((row, t) =>
    row.map((_, channel) => {
      let sum = 0;
      for (let j = 0; j < taps; j++) sum += weight[channel * taps + j]! * (rows[t - taps + 1 + j]?.[channel] ?? 0);
      return sum;
    }),
  );
}

function shortConv(raw: Raw, tensor: Lookup, at: string, rows: readonly Vector[]): Vector[] {
  const hidden = number(raw, 'hidden_size');
  const taps = number(raw, 'conv_L_cache', 3);
  const input = tensor(`${at}in_proj.weight`, 3 * hidden, hidden);
  const projected = rows.map((row) => matVec(input, row));
  const inputs = projected.map((row) => row.slice(0, hidden).map((b, i) => b * row[2 * hidden + i]!));
  const output = tensor(`${at}out_proj.weight`, hidden, hidden);
  return convolve(taps, tensor(`${at}conv.weight`, hidden, 1, taps), inputs).map((row, t) =>
    matVec(
      output,
      row.map((y, i) => y * projected[t]![hidden + i]!),
    ),
  );
}

function deltaNet(raw: Raw, tensor: Lookup, at: string, rows: readonly Vector[]): Vector[] {
  const hidden = number(raw, 'hidden_size');
  const [keyHeads, valueHeads] = [number(raw, 'linear_num_key_heads'), number(raw, 'linear_num_value_heads')];
  const [dk, dv] = [number(raw, 'linear_key_head_dim'), number(raw, 'linear_value_head_dim')];
  const taps = number(raw, 'linear_conv_kernel_dim', 4);
  const [keys, values] = [keyHeads * dk, valueHeads * dv];
  const project = (name: string, out: number): Vector[] => {
    const weight = tensor(`${at}${name}.weight`, out, hidden);
    return rows.map((row) => matVec(weight, row));
  };
  const ratio = valueHeads / keyHeads;
  /** Of rows with `widths` elements of each kind, key head by key head: those of one kind. */
  const unpacked = (rows: Vector[], widths: readonly number[], kind: number): Vector[] => {
    const each = widths.reduce((sum, width) => sum + width);
    const before = widths.slice(0, kind).reduce((sum, width) => sum + width, 0);
    return rows.map((row) => row.filter((_, i) => i % each >= before && i % each < before + widths[kind]!));
  };
  const next = raw['model_type'] === 'qwen3_next';
  const widths = [dk, dk, ratio * dv, ratio * dv];
  const fused = next ? project('in_proj_qkvz', 2 * (keys + values)) : [];
  const [q, k, v] = [0, 1, 2].map((kind) => unpacked(fused, widths, kind));
  const inputs = next
    ? fused.map((_, t) => Float64Array.from([...q![t]!, ...k![t]!, ...v![t]!]))
    : project('in_proj_qkv', 2 * keys + values);
  const qkv = convolve(taps, tensor(`${at}conv1d.weight`, 2 * keys + values, 1, taps), inputs).map((row) =>
    row.map(silu),
  );
  const z = next ? unpacked(fused, widths, 3) : project('in_proj_z', values);
  const gates = next ? project('in_proj_ba', 2 * valueHeads) : [];
  const [b, a] = next
    ? [0, 1].map((kind) => unpacked(gates, [ratio, ratio], kind))
    : [project('in_proj_b', valueHeads), project('in_proj_a', valueHeads)];
  const [logs, bias] = [tensor(`${at}A_log`, valueHeads), tensor(`${at}dt_bias`, valueHeads)];
  const [weight, output] = [tensor(`${at}norm.weight`, dv), tensor(`${at}out_proj.weight`, hidden, values)];
  const memories = Array.from({ length: valueHeads }, () => new Float64Array(dk * dv));
  return rows.map((_, t) => {
    const row = qkv[t]!;
    const out = new Float64Array(values);
    const unit = (first: number): Vector => {
      const head = row.slice(first, first + dk);
      const length = Math.sqrt(head.reduce((sum, value) => sum + value * value, 0) + 1e-6);
      return head.map((value) => value / length);
    };
    for (let head = 0; head < valueHeads; head++) {
      const from = Math.floor(head / ratio);
      const q = unit(from * dk).map((value) => value / Math.sqrt(dk));
      const k = unit(keys + from * dk);
      const v = row.slice(2 * keys + head * dv, 2 * keys + (head + 1) * dv);
      const dt = a![t]![head]! + bias[head]!;
      const decay = Math.exp(-Math.exp(logs[head]!) * (dt > 30 ? dt : Math.log1p(Math.exp(dt))));
      const rate = sigmoid(b![t]![head]!);
      const s = memories[head]!;
      const read = (by: Vector): Vector =>
        Float64Array.from({ length: dv }, (_unused, j) =>
          by.reduce((sum, value, i) => sum + value * s[i * dv + j]!, 0),
        );
      s.forEach((value, i) => (s[i] = value * decay));
      const found = read(k);
      for (let i = 0; i < dk; i++) for (let j = 0; j < dv; j++) s[i * dv + j]! += k[i]! * rate * (v[j]! - found[j]!);
      const normed = rmsNorm(read(q), weight, number(raw, 'rms_norm_eps', 1e-6));
      normed.forEach((value, j) => (out[head * dv + j] = value * silu(z[t]![head * dv + j]!)));
    }
    return matVec(output, out);
  });
}

function attention(
  raw: Raw,
  qwen: boolean,
  tensor: Lookup,
  at: string,
  rows: readonly Vector[],
  norm: (x: Vector, name: string) => Vector,
  positionOf: GivenPictures['positionOf'] = (row) => row,
): Vector[] {
  const hidden = number(raw, 'hidden_size');
  const heads = number(raw, 'num_attention_heads');
  const kvHeads = number(raw, 'num_key_value_heads');
  const dim = number(raw, 'head_dim', hidden / heads);
  const rotary = qwen ? Math.floor(dim * number(raw, 'partial_rotary_factor', 0.25)) : dim;
  const theta = number(raw, 'rope_theta', qwen ? 1e4 : 1e6);
  const project = (name: string, out: number): Vector[] => {
    const weight = tensor(`${at}${name}.weight`, out, hidden);
    return rows.map((row) => matVec(weight, row));
  };
  const turned = (row: Vector, name: string, position: number): Vector => {
    const out = new Float64Array(row.length);
    for (let first = 0; first < row.length; first += dim) {
      const head = norm(row.slice(first, first + dim), `${at}${name}${qwen ? '_norm' : '_layernorm'}`);
      for (let i = 0; i < rotary / 2; i++)
        rotatePair(head, i, i + rotary / 2, positionOf(position, i) * theta ** ((-2 * i) / rotary));
      out.set(head, first);
    }
    return out;
  };
  const both = project('q_proj', heads * dim * (qwen ? 2 : 1));
  const half = (row: Vector, which: number): Vector =>
    Float64Array.from({ length: heads * dim }, (_, i) => row[(2 * Math.floor(i / dim) + which) * dim + (i % dim)]!);
  const q = both.map((row, t) => turned(qwen ? half(row, 0) : row, 'q', t));
  const k = project('k_proj', kvHeads * dim).map((row, t) => turned(row, 'k', t));
  const v = project('v_proj', kvHeads * dim);
  const shape = { numHeads: heads, numKvHeads: kvHeads, qkDim: dim, vDim: dim, scale: dim ** -0.5 };
  const output = tensor(`${at}${qwen ? 'o_proj' : 'out_proj'}.weight`, hidden, heads * dim);
  return causalAttention(shape, q, k, v).map((row, t) =>
    matVec(output, qwen ? row.map((value, i) => value * sigmoid(half(both[t]!, 1)[i]!)) : row),
  );
}

function mlpOf(raw: Raw, qwen: boolean, index: number, tensor: Lookup, at: string): (x: Vector) => Vector {
  const hidden = number(raw, 'hidden_size');
  const gated = (prefix: string, width: number): ((x: Vector) => Vector) => {
    const [gate, up, down] = qwen ? ['gate_proj', 'up_proj', 'down_proj'] : ['w1', 'w3', 'w2'];
    const of = (name: string | undefined, ...shape: number[]) => tensor(`${prefix}${name}.weight`, ...shape);
    return (x) =>
      matVec(of(down, hidden, width), swiglu(matVec(of(gate, width, hidden), x), matVec(of(up, width, hidden), x)));
  };
  if (qwen) {
    const only = (raw['mlp_only_layers'] as readonly number[] | undefined) ?? [];
    const dense = only.includes(index) || (index + 1) % number(raw, 'decoder_sparse_step', 1) !== 0;
    return dense || raw['model_type'] === 'qwen3_5_text'
      ? gated(`${at}mlp.`, number(raw, 'intermediate_size'))
      : softmaxExperts(raw, tensor, `${at}mlp.`, gated);
  }
  const moe = raw['model_type'] === 'lfm2_moe';
  const stated = number(raw, 'intermediate_size');
  if (!moe) {
    const step = number(raw, 'block_multiple_of', 256);
    const adjusted = step * Math.ceil(Math.floor((2 * stated) / 3) / step);
    return gated(`${at}feed_forward.`, raw['block_auto_adjust_ff_dim'] === false ? stated : adjusted);
  }
  if (index < number(raw, 'num_dense_layers', 2)) return gated(`${at}feed_forward.`, stated);
  const experts = number(raw, 'num_experts');
  const router = tensor(`${at}feed_forward.gate.weight`, experts, hidden);
  const bias = tensor(`${at}feed_forward.expert_bias`, experts);
  return (x) => {
    const scores = matVec(router, x).map(sigmoid);
    const chosen = [...scores.keys()]
      .toSorted((one, other) => scores[other]! + bias[other]! - scores[one]! - bias[one]!)
      .slice(0, number(raw, 'num_experts_per_tok'));
    const total = chosen.reduce((sum, expert) => sum + scores[expert]!, 0) + 1e-6;
    const out = new Float64Array(hidden);
    for (const expert of chosen) {
      const own = gated(`${at}feed_forward.experts.${expert}.`, number(raw, 'moe_intermediate_size'))(x);
      own.forEach((value, i) => (out[i]! += (value * scores[expert]!) / total));
    }
    return out;
  };
}

/** The best by softmax, their weights divided by their sum, and a shared one times the sigmoid of its gate. */
function softmaxExperts(
  raw: Raw,
  tensor: Lookup,
  at: string,
  gated: (prefix: string, width: number) => (x: Vector) => Vector,
): (x: Vector) => Vector {
  const hidden = number(raw, 'hidden_size');
  const router = tensor(`${at}gate.weight`, number(raw, 'num_experts'), hidden);
  const gate = tensor(`${at}shared_expert_gate.weight`, 1, hidden);
  const shared = gated(`${at}shared_expert.`, number(raw, 'shared_expert_intermediate_size'));
  return (x) => {
    const exps = matVec(router, x).map(Math.exp);
    const chosen = [...exps.keys()]
      .toSorted((one, other) => exps[other]! - exps[one]!)
      .slice(0, number(raw, 'num_experts_per_tok'));
    const kept = raw['norm_topk_prob'] === false ? [...exps.keys()] : chosen;
    const total = kept.reduce((sum, expert) => sum + exps[expert]!, 0);
    const opened = sigmoid(matVec(gate, x)[0]!);
    const out = shared(x).map((value) => value * opened);
    for (const expert of chosen) {
      const own = gated(`${at}experts.${expert}.`, number(raw, 'moe_intermediate_size'))(x);
      own.forEach((value, i) => (out[i]! += (value * exps[expert]!) / total));
    }
    return out;
  };
}
