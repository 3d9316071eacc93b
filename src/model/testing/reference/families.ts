import { addAll, type Lookup, lookupIn, matVec, rmsNorm, rotatePair, type Vector, type WeightMap } from './math.js';
import { encoderStates, isEncoder } from './encoders.js';
import { gemma4Logits, gemma4States, isGemma4 } from './gemma4.js';
import { mambaMixer } from './mamba.js';
import { isRecurrentModel, recurrentLogits, recurrentStates } from './recurrent.js';

/** A config.json, as it stands. */
type Raw = Readonly<Record<string, unknown>>;

/** What a layer does, by transformers' modelling files. */
interface Layer {
  /** Keys that a query sees, its own included. */
  readonly window: number;
  /** Radians a position of each pair, and what cos and sin are multiplied by; empty: not rotated. */
  readonly frequencies: readonly number[];
  readonly rotaryScale: number;
  readonly mlp: (x: Vector, prefix: string) => Vector;
  /** In place of attention. */
  readonly mixer?: (rows: readonly Vector[], prefix: string) => Vector[];
  /** What a query is multiplied by. */
  readonly temperature?: (position: number) => number;
}

type HalfNorms = readonly [before?: string | undefined, behind?: string];

interface Model {
  readonly layer: (index: number) => Layer;
  /** Norms multiply by `plus` + their weights. */
  readonly plus: number;
  readonly embeddingScale: number;
  readonly residualScale: number;
  readonly logitScale: number;
  readonly scale: number;
  readonly softcap?: number;
  readonly finalCap?: number;
  readonly qkNorm: boolean;
  /** The names of the norms before and behind each half; without 'mlp', attention and MLP are given the same. */
  readonly norms: { readonly attention: HalfNorms; readonly mlp?: HalfNorms };
  /** LayerNorm of this eps; otherwise RMSNorm. */
  readonly layerNorm?: { readonly eps: number; readonly biased: boolean };
  /** Of q and of k over all heads at once. */
  readonly wholeNorm?: boolean;
  /** Rows (2i, 2i + 1) of a head are turned together. */
  readonly paired?: boolean;
  /** On q, k and v alone. */
  readonly qkvBiased?: boolean;
  readonly fused: boolean;
  readonly tied: boolean;
  /** Biases on q, k, v and o; a sink a head. */
  readonly biased?: boolean;
  readonly sunk?: boolean;
  /** A query sees the keys behind it, too. */
  readonly bothWays?: boolean;
  readonly runs?: GivenPictures['runs'];
  readonly positionOf?: GivenPictures['positionOf'];
}

/** By position, what takes the place of a token's embedding; and runs [start, end) whose rows see each other. */
export interface GivenPictures {
  readonly rows: ReadonlyMap<number, Vector>;
  readonly runs?: readonly (readonly [start: number, end: number])[];
  /** What a row's pair turns by, where rows have three positions. */
  readonly positionOf?: (row: number, pair: number) => number;
  /** By position: what is added behind the first layers. */
  readonly added?: ReadonlyMap<number, readonly Vector[]>;
}

/**
 * Logits [tokens.length][vocab_size] in float64 from a config.json as it stands and a checkpoint's tensors: the equations of
 * transformers' models/FAMILY/modeling_FAMILY.py, read again for this file. Shares neither the
 * reading of configs nor the attention with what it is there to check.
 */
export function familyLogits(
  raw: Raw,
  weights: WeightMap,
  tokens: readonly number[],
  pictures?: GivenPictures,
): Float64Array[] {
  if (isRecurrentModel(raw)) return recurrentLogits(raw, weights, tokens, pictures);
  if (isGemma4(raw)) return gemma4Logits(raw, weights, tokens, pictures);
  const tensor = lookupIn(weights);
  const { tied, logitScale, finalCap } = modelOf(raw, tensor);
  const name = tied ? 'model.embed_tokens.weight' : 'lm_head.weight';
  const head = tensor(name, number(raw, 'vocab_size'), number(raw, 'hidden_size'));
  const states = familyStates(raw, weights, tokens, pictures);
  return states.map((state) => matVec(head, state).map((logit) => capped(logit * logitScale, finalCap)));
}

/** Of the same: the final hidden states behind the last norm, [tokens.length][hidden_size]. */
export function familyStates(
  raw: Raw,
  weights: WeightMap,
  tokens: readonly number[],
  pictures?: GivenPictures,
): Float64Array[] {
  if (isEncoder(raw)) return encoderStates(raw, weights, tokens);
  if (isRecurrentModel(raw)) return recurrentStates(raw, weights, tokens);
  if (isGemma4(raw)) return gemma4States(raw, weights, tokens);
  const tensor = lookupIn(weights);
  const [hidden, vocabulary] = [number(raw, 'hidden_size'), number(raw, 'vocab_size')];
  const eps = number(raw, 'rms_norm_eps', 1e-6);
  const model = { ...modelOf(raw, tensor), runs: pictures?.runs, positionOf: pictures?.positionOf };
  const norm = (x: Vector, name: string | undefined): Vector => {
    if (name === undefined) return x;
    const weight = tensor(`${name}.weight`, x.length);
    if (model.layerNorm) {
      const bias = model.layerNorm.biased ? tensor(`${name}.bias`, x.length) : undefined;
      return centred(x, model.layerNorm.eps).map((value, i) => value * weight[i]! + (bias?.[i] ?? 0));
    }
    return rmsNorm(
      x,
      weight.map((w) => w + model.plus),
      eps,
    );
  };
  const table = tensor('model.embed_tokens.weight', vocabulary, hidden);
  const embedded = (token: number): Float64Array =>
    Float64Array.from(table.subarray(token * hidden, (token + 1) * hidden)).map((e) => e * model.embeddingScale);
  const x = tokens.map((token, position) => Float64Array.from(pictures?.rows.get(position) ?? embedded(token)));
  for (let index = 0; index < number(raw, 'num_hidden_layers'); index++) {
    const at = `model.layers.${index}.`;
    const layer = model.layer(index);
    const { attention: attends, mlp } = model.norms;
    const within = (name: string | undefined): string | undefined => name && at + name;
    const inputs = x.map((row) => norm(row, within(attends[0])));
    const attended = layer.mixer?.(inputs, at) ?? attention(raw, model, layer, tensor, `${at}self_attn.`, inputs, norm);
    addAll(
      x,
      attended.map((row) => norm(row, within(attends[1]))),
      model.residualScale,
    );
    const given = mlp ? x.map((row) => norm(row, within(mlp[0]))) : inputs;
    const outputs = given.map((row) => norm(layer.mlp(row, `${at}mlp.`), within(mlp?.[1])));
    addAll(x, outputs, model.residualScale);
    for (const [position, levels] of pictures?.added ?? [])
      levels[index]?.forEach((value, i) => (x[position]![i]! += value));
  }
  return x.map((row) => norm(row, 'model.norm'));
}

/** Less its mean, over its deviation. */
function centred(x: Vector, eps: number): Float64Array {
  const values = Float64Array.from(x);
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
  const variance = values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / values.length;
  return values.map((value) => (value - mean) / Math.sqrt(variance + eps));
}

const capped = (value: number, cap: number | undefined): number =>
  cap === undefined ? value : cap * Math.tanh(value / cap);

function number(raw: Raw, key: string, otherwise?: number): number {
  const value = raw[key] ?? otherwise;
  if (typeof value !== 'number') throw new Error(`reference: ${key} is ${JSON.stringify(value)}`);
  return value;
}

function attention(
  raw: Raw,
  {
    scale,
    softcap,
    qkNorm,
    fused,
    biased = false,
    qkvBiased = biased,
    sunk = false,
    wholeNorm,
    paired,
    bothWays,
    runs,
    positionOf = (row) => row,
  }: Model,
  { window, frequencies, rotaryScale, temperature = () => 1 }: Layer,
  tensor: Lookup,
  at: string,
  rows: readonly Vector[],
  norm: (x: Vector, name: string) => Vector,
): Vector[] {
  const hidden = number(raw, 'hidden_size');
  const heads = number(raw, 'num_attention_heads');
  const kvHeads = number(raw, 'num_key_value_heads', heads);
  const dim = number(raw, 'head_dim', hidden / heads);
  const [qRows, kvRows] = [heads * dim, kvHeads * dim];
  const plusBias = (x: Vector, name: string): Vector => {
    const bias = (name === 'o' ? biased : qkvBiased) ? tensor(`${at}${name}_proj.bias`, x.length) : undefined;
    return bias ? x.map((value, i) => value + bias[i]!) : x;
  };
  const sinks = sunk ? tensor(`${at}sinks`, heads) : undefined;
  const rowsOf = (name: string, first: number, count: number): ((x: Vector) => Vector) => {
    const whole = fused
      ? tensor(`${at}qkv_proj.weight`, qRows + 2 * kvRows, hidden).subarray(first * hidden, (first + count) * hidden)
      : tensor(`${at}${name}_proj.weight`, count, hidden);
    return (x) => plusBias(matVec(whole, x), name);
  };
  const turned = (x: Vector, name: string, position: number): Vector => {
    const out = new Float64Array(x.length);
    const all = wholeNorm ? norm(x, `${at}${name}_norm`) : x;
    for (let first = 0; first < x.length; first += dim) {
      const head = all.slice(first, first + dim);
      const normed = qkNorm ? norm(head, `${at}${name}_norm`) : head;
      const half = frequencies.length;
      frequencies.forEach((f, i) =>
        rotatePair(normed, paired ? 2 * i : i, paired ? 2 * i + 1 : i + half, positionOf(position, i) * f, rotaryScale),
      );
      out.set(normed, first);
    }
    return out;
  };
  const [toQ, toK, toV] = [
    rowsOf('q', 0, qRows),
    rowsOf('k', qRows, kvRows),
    rowsOf('v', qRows + kvRows, kvRows),
  ] as const;
  const k = rows.map((x, position) => turned(toK(x), 'k', position));
  const v = rows.map(toV);
  const out = tensor(`${at}o_proj.weight`, hidden, qRows);
  return rows.map((x, position) => {
    const q = turned(toQ(x), 'q', position).map((e) => e * temperature(position));
    const run = runs?.find(([start, end]) => position >= start && position < end);
    const last = bothWays ? position + window - 1 : (run?.[1] ?? position + 1) - 1;
    const seen = [...rows.keys()].filter((key) => key <= last && key > position - window);
    const mixed = new Float64Array(qRows);
    for (let head = 0; head < heads; head++) {
      const from = Math.floor(head / (heads / kvHeads)) * dim;
      const scores = seen.map((key) => {
        let sum = 0;
        for (let d = 0; d < dim; d++) sum += q[head * dim + d]! * k[key]![from + d]!;
        return capped(sum * scale, softcap);
      });
      const sink = sinks?.[head] ?? -Infinity;
      const largest = Math.max(sink, ...scores);
      const exps = scores.map((score) => Math.exp(score - largest));
      const total = exps.reduce((a, b) => a + b, Math.exp(sink - largest));
      for (const [i, key] of seen.entries()) {
        for (let d = 0; d < dim; d++) mixed[head * dim + d]! += (exps[i]! / total) * v[key]![from + d]!;
      }
    }
    return plusBias(matVec(out, mixed), 'o');
  });
}

const silu = (g: number): number => g / (1 + Math.exp(-g));
const geluTanh = (g: number): number => 0.5 * g * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (g + 0.044715 * g ** 3)));

function gated(tensor: Lookup, activation: (g: number) => number, width: number, fused = false) {
  return (x: Vector, at: string): Vector => {
    const rows = (name: string): Vector => matVec(tensor(`${at}${name}_proj.weight`, width, x.length), x);
    const both = fused ? matVec(tensor(`${at}gate_up_proj.weight`, 2 * width, x.length), x) : undefined;
    const [gate, up] = both ? [both.slice(0, width), both.slice(width)] : [rows('gate'), rows('up')];
    const inner = gate.map((g, i) => activation(g) * up[i]!);
    return matVec(tensor(`${at}down_proj.weight`, x.length, width), inner);
  };
}

/**
 * Granite 4's: gate and up in one matrix, under names beside `mlp`; beside it, in some, experts in stacks, the best by logits and softmax
 * over those.
 */
function graniteMlp(raw: Raw, tensor: Lookup): (x: Vector, at: string) => Vector {
  const glu = (x: Vector, gateUp: Float32Array, down: Float32Array): Vector => {
    const both = matVec(gateUp, x);
    const width = both.length / 2;
    return matVec(
      down,
      both.slice(0, width).map((g, i) => silu(g) * both[width + i]!),
    );
  };
  const shared = number(raw, 'shared_intermediate_size', 0);
  const [count, width] = [number(raw, 'num_local_experts', 8), number(raw, 'intermediate_size')];
  return (x, at) => {
    const of = at.replace('.mlp.', '.shared_mlp.');
    const beside = (): Vector =>
      glu(
        x,
        tensor(`${of}input_linear.weight`, 2 * shared, x.length),
        tensor(`${of}output_linear.weight`, x.length, shared),
      );
    const out = [shared > 0 ? beside() : new Float64Array(x.length)];
    if (count === 0) return out[0]!;
    const moe = at.replace('.mlp.', '.block_sparse_moe.');
    const logits = matVec(tensor(`${moe}router.layer.weight`, count, x.length), x);
    const best = [...logits.keys()].toSorted((a, b) => logits[b]! - logits[a]!);
    const chosen = best.slice(0, number(raw, 'num_experts_per_tok', 2));
    const exps = chosen.map((e) => Math.exp(logits[e]! - logits[chosen[0]!]!));
    const total = exps.reduce((a, b) => a + b);
    const gateUps = tensor(`${moe}input_linear.weight`, count, 2 * width, x.length);
    const downs = tensor(`${moe}output_linear.weight`, count, x.length, width);
    for (const [i, e] of chosen.entries()) {
      const size = width * x.length;
      const each = glu(x, gateUps.subarray(2 * e * size, 2 * (e + 1) * size), downs.subarray(e * size, (e + 1) * size));
      addAll(out, [each], exps[i]! / total);
    }
    return out[0]!;
  };
}

/** Softmax over all experts, the best, divided by their sum where norm_topk_prob. */
function softmaxExperts(
  raw: Raw,
  tensor: Lookup,
  count = number(raw, 'num_experts'),
  expert = gated(tensor, silu, number(raw, 'moe_intermediate_size')),
): (x: Vector, at: string) => Vector {
  return (x, at) => {
    const logits = matVec(tensor(`${at}gate.weight`, count, x.length), x);
    const largest = Math.max(...logits);
    const exps = logits.map((logit) => Math.exp(logit - largest));
    const total = exps.reduce((a, b) => a + b);
    const best = [...exps.keys()].toSorted((a, b) => exps[b]! - exps[a]!);
    const chosen = best.slice(0, number(raw, 'num_experts_per_tok'));
    const kept = raw['norm_topk_prob'] === true ? chosen.reduce((sum, e) => sum + exps[e]!, 0) : total;
    const out = new Float64Array(x.length);
    for (const e of chosen) addAll([out], [expert(x, `${at}experts.${e}.`)], exps[e]! / kept);
    return out;
  };
}

/** gpt-oss's: the best by logits, softmax over those; g = min(gate, limit), u = clamp(up), (u + 1) g sigmoid(alpha g). */
function clampedExperts(raw: Raw, tensor: Lookup): (x: Vector, at: string) => Vector {
  const count = number(raw, 'num_local_experts');
  const width = number(raw, 'intermediate_size');
  const [alpha, limit] = [number(raw, 'swiglu_alpha', 1.702), number(raw, 'swiglu_limit', 7)];
  const linear = (name: string, rows: number, x: Vector): Vector => {
    const bias = tensor(`${name}.bias`, rows);
    return matVec(tensor(`${name}.weight`, rows, x.length), x).map((value, i) => value + bias[i]!);
  };
  return (x, at) => {
    const logits = linear(`${at}router`, count, x);
    const best = [...logits.keys()].toSorted((a, b) => logits[b]! - logits[a]!);
    const chosen = best.slice(0, number(raw, 'num_experts_per_tok'));
    const exps = chosen.map((e) => Math.exp(logits[e]! - logits[chosen[0]!]!));
    const total = exps.reduce((a, b) => a + b);
    const out = new Float64Array(x.length);
    for (const [i, e] of chosen.entries()) {
      const own = `${at}experts.${e}.`;
      const up = linear(`${own}up_proj`, width, x);
      const inner = linear(`${own}gate_proj`, width, x).map((gate, k) => {
        const g = Math.min(gate, limit);
        return ((Math.min(limit, Math.max(-limit, up[k]!)) + 1) * g) / (1 + Math.exp(-alpha * g));
      });
      addAll([out], [linear(`${own}down_proj`, x.length, inner)], exps[i]! / total);
    }
    return out;
  };
}

interface Yarn {
  readonly factor: number;
  readonly beta_fast?: number;
  readonly beta_slow?: number;
  readonly llama_4_scaling_beta?: number;
}

const bases = (theta: number, dims: number): number[] =>
  Array.from({ length: dims / 2 }, (_, i) => theta ** ((-2 * i) / dims));

const before = { attention: ['input_layernorm'], mlp: ['post_attention_layernorm'] } as const;
const sandwich = {
  attention: ['input_layernorm', 'post_attention_layernorm'],
  mlp: ['pre_feedforward_layernorm', 'post_feedforward_layernorm'],
} as const;

function modelOf(raw: Raw, tensor: Lookup): Model {
  const heads = number(raw, 'num_attention_heads');
  const dim = number(raw, 'head_dim', number(raw, 'hidden_size') / heads);
  const width = number(raw, 'intermediate_size');
  const plain = {
    plus: 0,
    embeddingScale: 1,
    residualScale: 1,
    logitScale: 1,
    scale: dim ** -0.5,
    qkNorm: false,
    norms: before,
    fused: false,
    tied: raw['tie_word_embeddings'] === true,
  };
  const types = raw['layer_types'] as readonly string[] | undefined;
  const window = number(raw, 'sliding_window', Infinity);
  switch (raw['model_type']) {
    case 'gemma3_text': {
      const own = raw['rope_parameters'] as Record<string, Record<string, number | string>> | undefined;
      const linear = own?.['full_attention'] ?? (raw['rope_scaling'] as Raw | undefined) ?? {};
      const theta = (own?.['full_attention']?.['rope_theta'] as number) ?? number(raw, 'rope_theta', 1e6);
      const local = (own?.['sliding_attention']?.['rope_theta'] as number) ?? number(raw, 'rope_local_base_freq', 1e4);
      const factor = (linear['factor'] as number | undefined) ?? 1;
      const pattern = number(raw, 'sliding_window_pattern', 6);
      // Gemma3TextConfig halves the window, and adds the own token.
      const bothWays = raw['use_bidirectional_attention'] === true;
      const near = bothWays ? Math.floor(window / 2) + 1 : window;
      const mlp = gated(tensor, geluTanh, width);
      return {
        ...plain,
        plus: 1,
        bothWays,
        embeddingScale: Math.sqrt(number(raw, 'hidden_size')),
        scale: number(raw, 'query_pre_attn_scalar', 256) ** -0.5,
        qkNorm: true,
        norms: sandwich,
        tied: raw['tie_word_embeddings'] !== false,
        layer: (index) => {
          const slides = types ? types[index] === 'sliding_attention' : (index + 1) % pattern !== 0;
          return {
            window: slides ? near : Infinity,
            frequencies: slides ? bases(local, dim) : bases(theta, dim).map((f) => f / factor),
            rotaryScale: 1,
            mlp,
          };
        },
      };
    }
    case 'gemma': {
      const mlp = gated(tensor, geluTanh, width);
      return {
        ...plain,
        plus: 1,
        embeddingScale: Math.sqrt(number(raw, 'hidden_size')),
        tied: raw['tie_word_embeddings'] !== false,
        layer: () => ({ window, frequencies: bases(number(raw, 'rope_theta', 1e4), dim), rotaryScale: 1, mlp }),
      };
    }
    case 'gemma2': {
      const mlp = gated(tensor, geluTanh, width);
      return {
        ...plain,
        plus: 1,
        embeddingScale: Math.sqrt(number(raw, 'hidden_size')),
        scale: number(raw, 'query_pre_attn_scalar', 256) ** -0.5,
        softcap: number(raw, 'attn_logit_softcapping', 50),
        finalCap: number(raw, 'final_logit_softcapping', 30),
        norms: sandwich,
        tied: raw['tie_word_embeddings'] !== false,
        layer: (index) => ({
          window: (types ? types[index] === 'sliding_attention' : index % 2 === 0) ? window : Infinity,
          frequencies: bases(number(raw, 'rope_theta', 1e4), dim),
          rotaryScale: 1,
          mlp,
        }),
      };
    }
    case 'smollm3': {
      const mlp = gated(tensor, silu, width);
      const list = raw['no_rope_layers'] as readonly number[] | undefined;
      const interval = number(raw, 'no_rope_layer_interval', 4);
      return {
        ...plain,
        tied: raw['tie_word_embeddings'] !== false,
        layer: (index) => {
          const rotates = list ? list[index] === 1 : (index + 1) % interval !== 0;
          const slides =
            raw['use_sliding_window'] === true && (types ? types[index] === 'sliding_attention' : !rotates);
          return {
            window: slides ? window : Infinity,
            frequencies: rotates ? bases(number(raw, 'rope_theta', 2e6), dim) : [],
            rotaryScale: 1,
            mlp,
          };
        },
      };
    }
    case 'phi3': {
      const mlp = gated(tensor, silu, width, true);
      const rotary = Math.floor(dim * number(raw, 'partial_rotary_factor', 1));
      const scaling = raw['rope_scaling'] as Record<string, number[]> | undefined;
      const original = number(raw, 'original_max_position_embeddings', 4096);
      const ratio = number(raw, 'max_position_embeddings') / original;
      // The caller's sequences are shorter than the context that is allocated, which chooses the list.
      const divisors = ratio > 1 ? scaling?.['long_factor'] : scaling?.['short_factor'];
      const rotaryScale = scaling && ratio > 1 ? Math.sqrt(1 + Math.log(ratio) / Math.log(original)) : 1;
      return {
        ...plain,
        fused: true,
        layer: () => ({
          window,
          frequencies: bases(number(raw, 'rope_theta', 1e4), rotary).map((f, i) => f / (divisors?.[i] ?? 1)),
          rotaryScale,
          mlp,
        }),
      };
    }
    case 'qwen3_vl_text':
    case 'qwen2_5_vl_text': {
      const mlp = gated(tensor, silu, width);
      const frequencies = bases(number(raw, 'rope_theta', 1e4), dim);
      const kind = raw['model_type'] === 'qwen3_vl_text' ? { qkNorm: true } : { qkvBiased: true };
      return { ...plain, ...kind, layer: () => ({ window: Infinity, frequencies, rotaryScale: 1, mlp }) };
    }
    case 'qwen3_vl_moe_text':
    case 'qwen3_moe': {
      const dense = gated(tensor, silu, width);
      const experts = softmaxExperts(
        raw['model_type'] === 'qwen3_moe' ? raw : { ...raw, norm_topk_prob: true },
        tensor,
      );
      const only = (raw['mlp_only_layers'] as readonly number[] | undefined) ?? [];
      const step = number(raw, 'decoder_sparse_step', 1);
      return {
        ...plain,
        qkNorm: true,
        layer: (index) => ({
          window: Infinity,
          frequencies: bases(number(raw, 'rope_theta', 1e4), dim),
          rotaryScale: 1,
          mlp: only.includes(index) || (index + 1) % step !== 0 ? dense : experts,
        }),
      };
    }
    case 'mixtral': {
      const names: Readonly<Record<string, string>> = { gate: 'w1', up: 'w3', down: 'w2' };
      const renamed: Lookup = (name, ...shape) =>
        tensor(
          name
            .replace('.mlp.', '.block_sparse_moe.')
            .replace(/(\.\d+)\.(\w+)_proj/, (_, at: string, part: string) => `${at}.${names[part]}`),
          ...shape,
        );
      const count = number(raw, 'num_local_experts', 8);
      const mlp = softmaxExperts({ ...raw, norm_topk_prob: true }, renamed, count, gated(renamed, silu, width));
      const frequencies = bases(number(raw, 'rope_theta', 1e4), dim);
      return { ...plain, layer: () => ({ window, frequencies, rotaryScale: 1, mlp }) };
    }
    case 'qwen3': // with YaRN
    case 'ministral3': {
      const rope = raw['rope_parameters'] as Record<string, number>;
      const theta = rope['rope_theta']!;
      const {
        factor,
        beta_fast: fast = 32,
        beta_slow: slow = 1,
        llama_4_scaling_beta: beta = 0,
      } = rope as never as Yarn;
      const original = rope['original_max_position_embeddings']!;
      // Pairs that turn often in the trained context stay, those that don't turn once are slowed down, in between by a ramp.
      const pairAt = (turns: number): number =>
        (dim * Math.log(original / (turns * 2 * Math.PI))) / (2 * Math.log(theta));
      const [from, to] = [Math.max(0, Math.floor(pairAt(fast))), Math.min(dim - 1, Math.ceil(pairAt(slow)))];
      const frequencies = bases(theta, dim).map((f, i) => {
        const slowed = Math.min(1, Math.max(0, (i - from) / Math.max(to - from, 1e-3)));
        return f * (1 - slowed) + (f / factor) * slowed;
      });
      const mscale = (m: number): number => 1 + 0.1 * m * Math.log(factor);
      const rotaryScale = mscale(rope['mscale'] ?? 1) / mscale(rope['mscale_all_dim'] ?? 0);
      const mlp = gated(tensor, silu, width);
      const temperature = (position: number): number => 1 + beta * Math.log(1 + Math.floor(position / original));
      return {
        ...plain,
        qkNorm: raw['model_type'] === 'qwen3',
        layer: () => ({ window, frequencies, rotaryScale, mlp, temperature }),
      };
    }
    case 'gpt_oss': {
      const rope = (raw['rope_parameters'] ?? raw['rope_scaling'] ?? {}) as Record<string, number | boolean>;
      const theta = (rope['rope_theta'] as number | undefined) ?? number(raw, 'rope_theta', 150000);
      const { factor = 32, beta_fast: fast = 32, beta_slow: slow = 1 } = rope as never as Partial<Yarn>;
      const original = (rope['original_max_position_embeddings'] as number | undefined) ?? 4096;
      const pairAt = (turns: number): number =>
        (dim * Math.log(original / (turns * 2 * Math.PI))) / (2 * Math.log(theta));
      const whole = rope['truncate'] !== false && rope['factor'] !== undefined;
      const from = Math.max(0, whole ? Math.floor(pairAt(fast)) : pairAt(fast));
      const to = Math.min(dim - 1, whole ? Math.ceil(pairAt(slow)) : pairAt(slow));
      const frequencies = bases(theta, dim).map((f, i) => {
        const slowed = Math.min(1, Math.max(0, (i - from) / Math.max(to - from, 1e-3)));
        return f * (1 - slowed) + (f / factor) * slowed;
      });
      const mlp = clampedExperts(raw, tensor);
      return {
        ...plain,
        biased: raw['attention_bias'] !== false,
        sunk: true,
        layer: (index) => ({
          window: (types ? types[index] === 'sliding_attention' : index % 2 === 0) ? window : Infinity,
          frequencies,
          rotaryScale: 1 + 0.1 * Math.log(factor),
          mlp,
        }),
      };
    }
    case 'olmo2':
    case 'olmo3': {
      const nested = raw['rope_parameters'] as Record<string, Record<string, number>> | undefined;
      const yarn = (nested?.['full_attention'] ?? nested ?? raw['rope_scaling'] ?? {}) as never as Record<
        string,
        number
      >;
      const theta = yarn['rope_theta'] ?? number(raw, 'rope_theta', 1e4);
      const stretched = raw['model_type'] === 'olmo3' && yarn['factor'] !== undefined;
      const { factor, beta_fast: fast = 32, beta_slow: slow = 1 } = yarn as never as Yarn;
      const original = yarn['original_max_position_embeddings']!;
      const pairAt = (turns: number): number =>
        (dim * Math.log(original / (turns * 2 * Math.PI))) / (2 * Math.log(theta));
      const [from, to] = [Math.max(0, Math.floor(pairAt(fast))), Math.min(dim - 1, Math.ceil(pairAt(slow)))];
      const plainTurns = bases(theta, dim);
      const sliding = bases(nested?.['sliding_attention']?.['rope_theta'] ?? theta, dim);
      const slowTurns = plainTurns.map((f, i) => {
        const slowed = Math.min(1, Math.max(0, (i - from) / Math.max(to - from, 1e-3)));
        return f * (1 - slowed) + (f / factor) * slowed;
      });
      const mlp = gated(tensor, silu, width);
      return {
        ...plain,
        norms: { attention: [undefined, 'post_attention_layernorm'], mlp: [undefined, 'post_feedforward_layernorm'] },
        wholeNorm: true,
        biased: raw['attention_bias'] === true,
        layer: (index) => {
          const slides =
            raw['model_type'] === 'olmo3' && (types ? types[index] === 'sliding_attention' : (index + 1) % 4 !== 0);
          const slow = stretched && !slides;
          return {
            window: slides ? number(raw, 'sliding_window', 4096) : Infinity,
            frequencies: slides ? sliding : slow ? slowTurns : plainTurns,
            rotaryScale: slow ? (yarn['attention_factor'] ?? 1 + 0.1 * Math.log(factor)) : 1,
            mlp,
          };
        },
      };
    }
    case 'starcoder2': {
      const biased = raw['use_bias'] !== false;
      const linear = (name: string, rows: number, x: Vector): Vector => {
        const bias = biased ? tensor(`${name}.bias`, rows) : undefined;
        return matVec(tensor(`${name}.weight`, rows, x.length), x).map((value, i) => value + (bias?.[i] ?? 0));
      };
      const frequencies = bases(number(raw, 'rope_theta', 1e4), dim);
      const mlp = (x: Vector, at: string): Vector =>
        linear(`${at}c_proj`, x.length, linear(`${at}c_fc`, width, x).map(geluTanh));
      return {
        ...plain,
        layerNorm: { eps: number(raw, 'norm_epsilon', 1e-5), biased: true },
        biased,
        tied: raw['tie_word_embeddings'] !== false,
        layer: () => ({ window, frequencies, rotaryScale: 1, mlp }),
      };
    }
    case 'glm4': {
      const part = number(raw, 'partial_rotary_factor', 0.5);
      const frequencies = bases(number(raw, 'rope_theta', 1e4), Math.floor(dim * part));
      const mlp = gated(tensor, silu, width, true);
      return {
        ...plain,
        norms: {
          attention: ['input_layernorm', 'post_self_attn_layernorm'],
          mlp: ['post_attention_layernorm', 'post_mlp_layernorm'],
        },
        paired: true,
        qkvBiased: raw['attention_bias'] === true,
        layer: () => ({ window: Infinity, frequencies, rotaryScale: 1, mlp }),
      };
    }
    case 'cohere2': {
      const frequencies = bases(number(raw, 'rope_theta', 1e4), dim);
      const pattern = number(raw, 'sliding_window_pattern', number(raw, '_sliding_window_pattern', 4));
      const mlp = gated(tensor, silu, width);
      return {
        ...plain,
        norms: { attention: ['input_layernorm'] },
        layerNorm: { eps: number(raw, 'layer_norm_eps', 1e-5), biased: false },
        paired: true,
        biased: raw['attention_bias'] === true,
        tied: raw['tie_word_embeddings'] !== false,
        logitScale: number(raw, 'logit_scale', 0.0625),
        layer: (index) => {
          const slides = types ? types[index] === 'sliding_attention' : (index + 1) % pattern !== 0;
          return slides
            ? { window: number(raw, 'sliding_window', 4096), frequencies, rotaryScale: 1, mlp }
            : { window: Infinity, frequencies: [], rotaryScale: 1, mlp };
        },
      };
    }
    case 'granite':
    case 'granitemoe':
    case 'granitemoeshared':
    case 'granitemoehybrid': {
      const hybrid = raw['model_type'] === 'granitemoehybrid';
      const mlp = raw['model_type'] !== 'granite' ? graniteMlp(raw, tensor) : gated(tensor, silu, width);
      const mixer = (rows: readonly Vector[], at: string): Vector[] => mambaMixer(raw, tensor, `${at}mamba.`, rows);
      const rotates = !hybrid || raw['position_embedding_type'] === 'rope';
      return {
        ...plain,
        embeddingScale: number(raw, 'embedding_multiplier', 1),
        residualScale: number(raw, 'residual_multiplier', 1),
        logitScale: 1 / number(raw, 'logits_scaling', 1),
        scale: number(raw, 'attention_multiplier', 1),
        layer: (index) => ({
          window: Infinity,
          frequencies: rotates ? bases(number(raw, 'rope_theta', 1e4), dim) : [],
          rotaryScale: 1,
          mlp,
          ...((types ?? (raw['layers_block_type'] as readonly string[] | undefined))?.[index] === 'mamba' && { mixer }),
        }),
      };
    }
    default:
      throw new Error(`reference: no model_type ${JSON.stringify(raw['model_type'])}`);
  }
}
