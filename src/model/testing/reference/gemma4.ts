import { addAll, type Lookup, lookupIn, matVec, rmsNorm, rotatePair, type Vector, type WeightMap } from './math.js';

/** A config.json, as it stands. */
type Raw = Readonly<Record<string, unknown>>;

type Heads = Vector[];
type Runs = readonly (readonly [start: number, end: number])[];

/** By position, what takes the place of an embedding; runs whose rows see each other in layers with a window. */
export interface Gemma4Pictures {
  readonly rows: ReadonlyMap<number, Vector>;
  readonly runs?: Runs;
  /** Mistakes: in all layers, and another token's inputs for each layer. */
  readonly runsInAll?: boolean;
  readonly padding?: number;
}

export const isGemma4 = ({ model_type: type }: Raw): boolean => type === 'gemma4_text';

function number(raw: Raw, key: string, otherwise?: number): number {
  const value = raw[key] ?? otherwise;
  if (typeof value !== 'number') throw new Error(`reference: ${key} is ${JSON.stringify(value)}`);
  return value;
}

const geluTanh = (g: number): number => 0.5 * g * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (g + 0.044715 * g ** 3)));

/** Cut in pieces of `size`. */
const pieces = (x: Vector, size: number): Vector[] =>
  Array.from({ length: x.length / size }, (_, i) => x.slice(i * size, (i + 1) * size));

/**
 * Logits [tokens.length][vocab_size] in float64 of Gemma 4's text model (transformers' models/gemma4), position by position, without a
 * cache; reads config.json by itself.
 */
export function gemma4Logits(
  raw: Raw,
  weights: WeightMap,
  tokens: readonly number[],
  pictures?: Gemma4Pictures,
): Float64Array[] {
  const name = raw['tie_word_embeddings'] === false ? 'lm_head.weight' : 'model.embed_tokens.weight';
  const head = lookupIn(weights)(name, number(raw, 'vocab_size'), number(raw, 'hidden_size'));
  const cap = raw['final_logit_softcapping'] as number | null | undefined;
  return gemma4States(raw, weights, tokens, pictures).map((state) =>
    matVec(head, state).map((logit) => (cap ? cap * Math.tanh(logit / cap) : logit)),
  );
}

/** Of the same: the final hidden states behind the last norm, [tokens.length][hidden_size]. */
export function gemma4States(
  raw: Raw,
  weights: WeightMap,
  tokens: readonly number[],
  pictures?: Gemma4Pictures,
): Float64Array[] {
  const tensor = lookupIn(weights);
  const [hidden, vocabulary] = [number(raw, 'hidden_size'), number(raw, 'vocab_size')];
  const layers = number(raw, 'num_hidden_layers');
  const eps = number(raw, 'rms_norm_eps', 1e-6);
  const plain = (x: Vector): Vector => rmsNorm(x, new Float32Array(x.length).fill(1), eps);
  const norm = (x: Vector, name: string): Vector => rmsNorm(x, tensor(`${name}.weight`, x.length), eps);
  const rowOf = (table: Float32Array, row: number, width: number, scale: number): Vector =>
    Float64Array.from(table.subarray(row * width, (row + 1) * width)).map((value) => value * scale);
  const table = tensor('model.embed_tokens.weight', vocabulary, hidden);
  const given = pictures?.rows;
  const x = tokens.map((token, position) =>
    Float64Array.from(given?.get(position) ?? rowOf(table, token, hidden, Math.sqrt(hidden))),
  );

  const own = number(raw, 'hidden_size_per_layer_input', 256);
  const padding = pictures?.padding ?? 0;
  const padded = tokens.map((token, position) => (given?.has(position) ? padding : token));
  const perLayer = own === 0 ? undefined : perLayerInputs(raw, tensor, padded, x, own, layers, norm);

  const types = raw['layer_types'] as readonly string[] | undefined;
  const typeOf = (index: number): string =>
    index === layers - 1 ? 'full' : (types?.[index] ?? ((index + 1) % 6 === 0 ? 'full' : 'sliding')).replace(/_.*/, '');
  const firstShared = layers - number(raw, 'num_kv_shared_layers', 0);
  /** The last keys and values of each type that were projected. */
  const kept = new Map<string, { k: Heads[]; v: Heads[] }>();
  for (let index = 0; index < layers; index++) {
    const at = `model.layers.${index}.`;
    const type = typeOf(index);
    const attend = attention(raw, tensor, `${at}self_attn.`, type === 'full', norm, plain);
    const inputs = x.map((row) => norm(row, `${at}input_layernorm`));
    if (index < firstShared) kept.set(type, attend.keysAndValues(inputs));
    const runs = type === 'full' && !pictures?.runsInAll ? [] : (pictures?.runs ?? []);
    const attended = attend.outputs(inputs, kept.get(type)!, runs);
    addAll(
      x,
      attended.map((row) => norm(row, `${at}post_attention_layernorm`)),
    );
    const wide = raw['use_double_wide_mlp'] === true && index >= firstShared ? 2 : 1;
    const width = number(raw, 'intermediate_size') * wide;
    const mlp = x.map((row) => {
      const dense = gated(tensor, `${at}mlp.`, width, norm(row, `${at}pre_feedforward_layernorm`));
      if (raw['enable_moe_block'] !== true) return dense;
      const out = norm(dense, `${at}post_feedforward_layernorm_1`);
      const routed = experts(raw, tensor, at, plain(row), norm(row, `${at}pre_feedforward_layernorm_2`));
      addAll([out], [norm(routed, `${at}post_feedforward_layernorm_2`)]);
      return out;
    });
    addAll(
      x,
      mlp.map((row) => norm(row, `${at}post_feedforward_layernorm`)),
    );
    if (perLayer) {
      const added = x.map((row, position) => {
        const gate = matVec(tensor(`${at}per_layer_input_gate.weight`, own, hidden), row);
        const inner = gate.map((g, i) => geluTanh(g) * perLayer[position]![index]![i]!);
        const out = matVec(tensor(`${at}per_layer_projection.weight`, hidden, own), inner);
        return norm(out, `${at}post_per_layer_input_norm`);
      });
      addAll(x, added);
    }
    const [scalar] = tensor(`${at}layer_scalar`, 1);
    for (const row of x) row.forEach((value, i) => (row[i] = value * scalar!));
  }
  return x.map((row) => norm(row, 'model.norm'));
}

/** By token, then by layer: a row of the table for the token, and what is projected of its embedding. */
function perLayerInputs(
  raw: Raw,
  tensor: Lookup,
  tokens: readonly number[],
  x: readonly Vector[],
  own: number,
  layers: number,
  norm: (x: Vector, name: string) => Vector,
): Vector[][] {
  const hidden = number(raw, 'hidden_size');
  const rows = number(raw, 'vocab_size_per_layer_input', 262144);
  const table = tensor('model.embed_tokens_per_layer.weight', rows, layers * own);
  const projection = tensor('model.per_layer_model_projection.weight', layers * own, hidden);
  return tokens.map((token, position) => {
    const projected = pieces(
      matVec(projection, x[position]!).map((value) => value / Math.sqrt(hidden)),
      own,
    );
    return projected.map((piece, layer) => {
      const first = token * layers * own + layer * own;
      return norm(piece, 'model.per_layer_projection_norm').map(
        (value, i) => (value + table[first + i]! * Math.sqrt(own)) / Math.SQRT2,
      );
    });
  });
}

/** Attention of a layer. Keys and values are [position][kv head][dim]. */
function attention(
  raw: Raw,
  tensor: Lookup,
  at: string,
  full: boolean,
  norm: (x: Vector, name: string) => Vector,
  plain: (x: Vector) => Vector,
) {
  const [hidden, heads] = [number(raw, 'hidden_size'), number(raw, 'num_attention_heads')];
  const dim = full ? number(raw, 'global_head_dim', 512) : number(raw, 'head_dim', 256);
  const keysAreValues = full && raw['attention_k_eq_v'] === true;
  const fewHeads = keysAreValues ? (raw['num_global_key_value_heads'] as number | null | undefined) : undefined;
  const kvHeads = fewHeads ?? number(raw, 'num_key_value_heads', 4);
  const ropes = raw['rope_parameters'] as Record<string, Record<string, number>> | undefined;
  const rope = ropes?.[full ? 'full_attention' : 'sliding_attention'];
  const theta = rope?.['rope_theta'] ?? (full ? 1e6 : 1e4);
  // Pair i is (i, i + dim / 2) of the whole head; those beyond a part of them stand still.
  const pairs = Math.floor(((full ? (rope?.['partial_rotary_factor'] ?? 0.25) : 1) * dim) / 2);
  const turn = (head: Vector, position: number): Vector => {
    const out = head.slice();
    for (let i = 0; i < pairs; i++) rotatePair(out, i, i + dim / 2, position * theta ** ((-2 * i) / dim));
    return out;
  };
  const project = (name: string, count: number, x: Vector): Vector[] =>
    pieces(matVec(tensor(`${at}${name}_proj.weight`, count * dim, hidden), x), dim);
  const window = full ? Infinity : number(raw, 'sliding_window', 512);
  return {
    keysAndValues: (rows: readonly Vector[]): { k: Heads[]; v: Heads[] } => ({
      k: rows.map((x, position) => project('k', kvHeads, x).map((head) => turn(norm(head, `${at}k_norm`), position))),
      v: rows.map((x) => project(keysAreValues ? 'k' : 'v', kvHeads, x).map(plain)),
    }),
    outputs: (rows: readonly Vector[], { k, v }: { k: Heads[]; v: Heads[] }, runs: Runs): Vector[] =>
      rows.map((x, position) => {
        const mixed = project('q', heads, x).flatMap((head, index) => {
          const q = turn(norm(head, `${at}q_norm`), position);
          const kvHead = Math.floor(index / (heads / kvHeads));
          const first = Math.max(0, position - window + 1);
          const [, end = 0] = runs.find(([start, stop]) => start <= position && position < stop) ?? [];
          const scores = k
            .slice(first, Math.max(position + 1, end))
            .map((keys) => keys[kvHead]!.reduce((sum, value, d) => sum + value * q[d]!, 0));
          const largest = Math.max(...scores);
          const exps = scores.map((score) => Math.exp(score - largest));
          const total = exps.reduce((a, b) => a + b);
          const out = new Float64Array(dim);
          exps.forEach((weight, i) => addAll([out], [v[first + i]![kvHead]!], weight / total));
          return [...out];
        });
        return matVec(tensor(`${at}o_proj.weight`, hidden, heads * dim), Float64Array.from(mixed));
      }),
  };
}

function gated(tensor: Lookup, at: string, width: number, x: Vector): Vector {
  const [gate, up] = ['gate', 'up'].map((name) => matVec(tensor(`${at}${name}_proj.weight`, width, x.length), x));
  const inner = gate!.map((g, i) => geluTanh(g) * up![i]!);
  return matVec(tensor(`${at}down_proj.weight`, x.length, width), inner);
}

/** @param seen by the router: the residual stream, normalised; @param x by the experts */
function experts(raw: Raw, tensor: Lookup, at: string, seen: Vector, x: Vector): Vector {
  const count = number(raw, 'num_experts');
  const scale = tensor(`${at}router.scale`, x.length);
  const logits = matVec(
    tensor(`${at}router.proj.weight`, count, x.length),
    seen.map((value, i) => (value * scale[i]!) / Math.sqrt(x.length)),
  );
  const largest = Math.max(...logits);
  const exps = logits.map((logit) => Math.exp(logit - largest));
  const chosen = [...exps.keys()].toSorted((a, b) => exps[b]! - exps[a]!).slice(0, number(raw, 'top_k_experts'));
  const total = chosen.reduce((sum, expert) => sum + exps[expert]!, 0);
  const each = tensor(`${at}router.per_expert_scale`, count);
  const out = new Float64Array(x.length);
  for (const expert of chosen) {
    const given = gated(tensor, `${at}experts.${expert}.`, number(raw, 'moe_intermediate_size'), x);
    addAll([out], [given], (exps[expert]! / total) * each[expert]!);
  }
  return out;
}
