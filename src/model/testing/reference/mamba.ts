import { type Lookup, matVec, rmsNorm, type Vector } from './math.js';

/** A config.json, as it stands. */
type Raw = Readonly<Record<string, unknown>>;

const silu = (x: number): number => x / (1 + Math.exp(-x));

function integer(raw: Raw, key: string, otherwise?: number): number {
  const value = raw[key] ?? otherwise;
  if (typeof value !== 'number') throw new Error(`reference: ${key} is ${JSON.stringify(value)}`);
  return value;
}

/**
 * Mamba-2 as transformers' models/bamba has it, which Granite 4's hybrids take: token by token with the state [head][p][n] written out.
 * The gate comes before the norm, which is over all heads, whatever the groups.
 * @param at before the names of its tensors
 */
export function mambaMixer(raw: Raw, tensor: Lookup, at: string, rows: readonly Vector[]): Vector[] {
  const hidden = integer(raw, 'hidden_size');
  const heads = integer(raw, 'mamba_n_heads', 128);
  const inner = integer(raw, 'mamba_expand', 2) * hidden;
  const width = inner / heads;
  const groups = integer(raw, 'mamba_n_groups', 1);
  const states = integer(raw, 'mamba_d_state', 256);
  const taps = integer(raw, 'mamba_d_conv', 4);
  const channels = inner + 2 * groups * states;
  const project = tensor(`${at}in_proj.weight`, inner + channels + heads, hidden);
  const output = tensor(`${at}out_proj.weight`, hidden, inner);
  const kernel = tensor(`${at}conv1d.weight`, channels, 1, taps);
  const bias = raw['mamba_conv_bias'] === false ? undefined : tensor(`${at}conv1d.bias`, channels);
  const [logs, skip, dtBias] = ['A_log', 'D', 'dt_bias'].map((name) => tensor(at + name, heads)) as [
    Float32Array,
    Float32Array,
    Float32Array,
  ];
  const weight = tensor(`${at}norm.weight`, inner);
  const projected = rows.map((row) => matVec(project, row));
  const memories = Array.from({ length: heads }, () => new Float64Array(width * states));
  return projected.map((row, t) => {
    const mixed = Float64Array.from({ length: channels }, (_, c) => {
      let sum = bias?.[c] ?? 0;
      for (let j = 0; j < taps; j++) {
        const past = projected[t - taps + 1 + j];
        if (past) sum += kernel[c * taps + j]! * past[inner + c]!;
      }
      return silu(sum);
    });
    const gated = new Float64Array(inner);
    for (let head = 0; head < heads; head++) {
      const step = row[inner + channels + head]! + dtBias[head]!;
      const dt = step > 30 ? step : Math.log1p(Math.exp(step));
      const decay = Math.exp(-Math.exp(logs[head]!) * dt);
      const [b, c] = [0, groups * states].map((of) => inner + of + Math.floor((head * groups) / heads) * states);
      const memory = memories[head]!;
      for (let p = 0; p < width; p++) {
        const x = mixed[head * width + p]!;
        let y = skip[head]! * x;
        for (let n = 0; n < states; n++) {
          const s = memory[p * states + n]! * decay + dt * x * mixed[b! + n]!;
          memory[p * states + n] = s;
          y += s * mixed[c! + n]!;
        }
        gated[head * width + p] = y * silu(row[head * width + p]!);
      }
    }
    return matVec(output, rmsNorm(gated, weight, integer(raw, 'rms_norm_eps', 1e-6)));
  });
}
