import type { ExpertsConfig, DenseMlpConfig, ModelConfig } from '../../config/model_config.js';
import { type Lookup, matVec, swiglu, type Vector } from './math.js';
import { routeReference, type Routing } from './routing.js';

/** A layer's MLP of one row: gated, or experts with shared ones. */
export function layerMlp(
  config: ModelConfig,
  tensor: Lookup,
  layer: number,
  row: Vector,
  onRouting: (routing: Routing) => void,
): Vector {
  const prefix = `model.layers.${layer}.mlp.`;
  const part = config.layers[layer]!.mlp;
  return part.kind !== 'experts' ? mlp(tensor, prefix, row, part) : experts(part, tensor, prefix, row, onRouting);
}

function mlp(
  tensor: Lookup,
  prefix: string,
  x: Vector,
  { width, bias: biased = false }: Pick<DenseMlpConfig, 'width'> & { readonly bias?: boolean },
): Vector {
  const project = (name: string, input: Vector, rows: number) => {
    const bias = biased ? tensor(`${prefix}${name}.bias`, rows) : undefined;
    return matVec(tensor(`${prefix}${name}.weight`, rows, input.length), input, bias);
  };
  const inner = swiglu(project('gate_proj', x, width), project('up_proj', x, width));
  return project('down_proj', inner, x.length);
}

function experts(
  moe: ExpertsConfig,
  tensor: Lookup,
  prefix: string,
  x: Vector,
  onRouting: (routing: Routing) => void,
): Vector {
  const { numExperts, width, sharedWidth } = moe;
  const logits = matVec(tensor(`${prefix}gate.weight`, numExperts, x.length), x);
  const bias = moe.correctionBias ? tensor(`${prefix}gate.e_score_correction_bias`, numExperts) : undefined;
  const routing = routeReference(moe, logits, bias);
  onRouting(routing);
  const out =
    sharedWidth === 0 ? new Float64Array(x.length) : mlp(tensor, `${prefix}shared_experts.`, x, { width: sharedWidth });
  routing.experts.forEach((expert, i) => {
    const part = mlp(tensor, `${prefix}experts.${expert}.`, x, { width });
    for (let d = 0; d < out.length; d++) out[d]! += routing.weights[i]! * part[d]!;
  });
  return out;
}
