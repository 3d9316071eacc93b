import { layerNorm } from '../../../shaders/norm/layer_norm/index.js';
import { rmsNorm, type RmsNormProblem } from '../../../shaders/norm/rms_norm/index.js';
import type { Buffer } from '../../gpu/index.js';
import type { NormConfig } from '../config/model_config.js';
import { allRows, type Loaded, type VectorSpec, wholeVector, zeroRows } from '../weights/weight_map.js';
import type { RankRecorder } from './world.js';

export interface NormSpec {
  readonly config: NormConfig;
  readonly weight: VectorSpec;
  readonly bias?: VectorSpec | undefined;
  /** True: sums that it is added to are times the element behind the weights. */
  readonly scaled?: true;
  /** True: with what it would be added to, it is of the sum. */
  readonly ofSum?: true;
}

export type Norm = Loaded<NormSpec>;

/** @param what names its buffers; @param name of its tensors, without `.weight` */
export const normSpec = (config: NormConfig, what: string, name: string, length: number): NormSpec => ({
  config,
  weight: wholeVector(what, `${name}.weight`, length, config.offset),
  bias: config.bias ? wholeVector(`${what}_bias`, `${name}.bias`, length) : undefined,
});

/** A norm that has no weights. */
export const plainNorm = (config: NormConfig, what: string, length: number): NormSpec => ({
  config,
  weight: { name: what, parts: [zeroRows(length)], plus: 1 },
});

/** `normSpec`'s, by whose sums' scale `name` (whole) is meant. */
export const scaledNorm = (norm: NormSpec, name: string): NormSpec => ({
  ...norm,
  weight: { ...norm.weight, parts: [...norm.weight.parts, allRows(name, 1)] },
  scaled: true,
});

/** Rows of x normalised into out; with `base` added to those rows of it, which may be out itself, or, `ofSum`, to x. */
export function recordNorm(
  recorder: RankRecorder,
  { config: { kind, eps }, weight, bias, scaled, ofSum }: Norm,
  rows: Omit<RmsNormProblem, 'eps' | 'residual' | 'apart' | 'scaled'>,
  x: Buffer,
  out: Buffer,
  base?: Buffer,
): void {
  const problem = { ...rows, eps, residual: base !== undefined && ofSum !== true };
  const apart = base === out ? undefined : base;
  if (kind === 'rms')
    recorder.dispatch(
      rmsNorm,
      { ...problem, apart: apart !== undefined, scaled: problem.residual && scaled },
      { x, weight, base: apart, out },
    );
  else
    recorder.dispatch(
      layerNorm,
      { ...problem, bias: bias !== undefined, ofSum: ofSum === true && base !== undefined },
      { x, weight, bias, out },
    );
}
