import { geluErf } from '../../../../shaders/linear/reference.js';
import { addAll, type Lookup, lookupIn, matVec, rotatePair, type Vector, type WeightMap } from './math.js';

type Raw = Readonly<Record<string, unknown>>;

export const isEncoder = (raw: Raw): boolean =>
  ['bert', 'roberta', 'xlm-roberta', 'modernbert'].includes(String(raw['model_type']));

/**
 * Hidden states [tokens.length][hidden_size] in float64 from a config.json and a checkpoint's tensors: the equations of transformers'
 * modeling_bert.py, modeling_xlm_roberta.py and modeling_modernbert.py. A token's segment stands above the lower 24 bits of its id.
 */
export function encoderStates(raw: Raw, weights: WeightMap, tokens: readonly number[]): Float64Array[] {
  const tensor = lookupIn(weights);
  return raw['model_type'] === 'modernbert' ? modernbert(raw, tensor, tokens) : bert(raw, tensor, tokens);
}

const numberOf = (raw: Raw, key: string, otherwise?: number): number => {
  const value = raw[key] ?? otherwise;
  if (typeof value !== 'number') throw new Error(`reference: ${key} is ${JSON.stringify(value)}`);
  return value;
};

/** (x - mean) / sqrt(variance + eps) * w + b. */
function layerNorm(tensor: Lookup, name: string, x: Vector, eps: number, biased: boolean): Vector {
  const weight = tensor(`${name}.weight`, x.length);
  const bias = biased ? tensor(`${name}.bias`, x.length) : undefined;
  const mean = x.reduce((sum, value) => sum + value, 0) / x.length;
  const variance = x.reduce((sum, value) => sum + (value - mean) ** 2, 0) / x.length;
  return x.map((value, i) => ((value - mean) / Math.sqrt(variance + eps)) * weight[i]! + (bias?.[i] ?? 0));
}

const rowOf = (table: Float32Array, row: number, width: number): Vector =>
  Float64Array.from(table.subarray(row * width, (row + 1) * width));

/** Softmax attention of every row over the rows that it sees; q, k and v of [heads][dim]. */
function attend(
  [q, k, v]: readonly (readonly Vector[])[],
  heads: number,
  sees: (query: number, key: number) => boolean = () => true,
): Vector[] {
  return q!.map((query, position) => {
    const dim = query.length / heads;
    const out = new Float64Array(query.length);
    const seen = [...k!.keys()].filter((key) => sees(position, key));
    for (let head = 0; head < heads; head++) {
      const own = query.subarray(head * dim, (head + 1) * dim);
      const scores = seen.map(
        (key) => own.reduce((sum, e, d) => sum + e * k![key]![head * dim + d]!, 0) / Math.sqrt(dim),
      );
      const largest = Math.max(...scores);
      const total = scores.reduce((sum, score) => sum + Math.exp(score - largest), 0);
      for (const [i, key] of seen.entries()) {
        const weight = Math.exp(scores[i]! - largest) / total;
        for (let d = 0; d < dim; d++) out[head * dim + d]! += weight * v![key]![head * dim + d]!;
      }
    }
    return out;
  });
}

function bert(raw: Raw, tensor: Lookup, tokens: readonly number[]): Vector[] {
  const [hidden, heads] = [numberOf(raw, 'hidden_size'), numberOf(raw, 'num_attention_heads')];
  const [positions, types] = [numberOf(raw, 'max_position_embeddings'), numberOf(raw, 'type_vocab_size', 2)];
  const width = numberOf(raw, 'intermediate_size');
  const eps = numberOf(raw, 'layer_norm_eps', 1e-12);
  const first = raw['model_type'] === 'bert' ? 0 : numberOf(raw, 'pad_token_id', 1) + 1;
  const linear = (name: string, x: Vector, rows: number): Vector =>
    matVec(tensor(`${name}.weight`, rows, x.length), x, tensor(`${name}.bias`, rows));
  const norm = (name: string, x: Vector): Vector => layerNorm(tensor, name, x, eps, true);
  const words = tensor('embeddings.word_embeddings.weight', numberOf(raw, 'vocab_size'), hidden);
  const places = tensor('embeddings.position_embeddings.weight', positions, hidden);
  const segments = tensor('embeddings.token_type_embeddings.weight', types, hidden);
  let x = tokens.map((token, position) => {
    const sum = rowOf(words, token % 2 ** 24, hidden);
    addAll([sum], [rowOf(segments, Math.floor(token / 2 ** 24), hidden)]);
    addAll([sum], [rowOf(places, position + first, hidden)]);
    return norm('embeddings.LayerNorm', sum);
  });
  for (let layer = 0; layer < numberOf(raw, 'num_hidden_layers'); layer++) {
    const at = `encoder.layer.${layer}`;
    const parts = ['query', 'key', 'value'].map((part) =>
      x.map((row) => linear(`${at}.attention.self.${part}`, row, hidden)),
    );
    const attended = attend(parts, heads).map((row) => linear(`${at}.attention.output.dense`, row, hidden));
    addAll(attended, x);
    const normed = attended.map((row) => norm(`${at}.attention.output.LayerNorm`, row));
    x = normed.map((row) => {
      const inner = linear(`${at}.intermediate.dense`, row, width).map(geluErf);
      const out = linear(`${at}.output.dense`, inner, hidden);
      addAll([out], [row]);
      return norm(`${at}.output.LayerNorm`, out);
    });
  }
  return x;
}

function modernbert(raw: Raw, tensor: Lookup, tokens: readonly number[]): Vector[] {
  const [hidden, heads] = [numberOf(raw, 'hidden_size'), numberOf(raw, 'num_attention_heads')];
  const width = numberOf(raw, 'intermediate_size');
  const eps = numberOf(raw, 'norm_eps', 1e-5);
  const every = numberOf(raw, 'global_attn_every_n_layers', 3);
  const half = Math.floor(numberOf(raw, 'local_attention', 128) / 2);
  const linear = (name: string, x: Vector, rows: number): Vector => matVec(tensor(`${name}.weight`, rows, x.length), x);
  const norm = (name: string, x: Vector): Vector => layerNorm(tensor, name, x, eps, false);
  const words = tensor('model.embeddings.tok_embeddings.weight', numberOf(raw, 'vocab_size'), hidden);
  const x = tokens.map((token) => norm('model.embeddings.norm', rowOf(words, token, hidden)));
  const dim = hidden / heads;
  for (let layer = 0; layer < numberOf(raw, 'num_hidden_layers'); layer++) {
    const at = `model.layers.${layer}`;
    const isGlobal = layer % every === 0;
    const theta = isGlobal ? numberOf(raw, 'global_rope_theta', 160_000) : numberOf(raw, 'local_rope_theta', 10_000);
    const all = x.map((row) => linear(`${at}.attn.Wqkv`, layer === 0 ? row : norm(`${at}.attn_norm`, row), 3 * hidden));
    const parts = [0, 1, 2].map((part) => all.map((row) => row.slice(part * hidden, (part + 1) * hidden)));
    for (const rows of parts.slice(0, 2))
      for (const [position, row] of rows.entries())
        for (let head = 0; head < heads; head++)
          for (let i = 0; i < dim / 2; i++)
            rotatePair(row, head * dim + i, head * dim + i + dim / 2, position * theta ** ((-2 * i) / dim));
    const sees = (query: number, key: number): boolean => isGlobal || Math.abs(query - key) <= half;
    addAll(
      x,
      attend(parts, heads, sees).map((row) => linear(`${at}.attn.Wo`, row, hidden)),
    );
    addAll(
      x,
      x.map((row) => {
        const both = linear(`${at}.mlp.Wi`, norm(`${at}.mlp_norm`, row), 2 * width);
        return linear(
          `${at}.mlp.Wo`,
          both.slice(0, width).map((g, i) => geluErf(g) * both[width + i]!),
          hidden,
        );
      }),
    );
  }
  return x.map((row) => norm('model.final_norm', row));
}
