import type { FastPath } from './device.js';

const SUBGROUP_MATRIX = 'chromium-experimental-subgroup-matrix';
/** Of WGSL, which says so apart from an adapter's features. */
const DOT4 = 'packed_4x8_integer_dot_product';
/** A tile's quarters are of 16 or 32 rows and outputs, and 32 columns are staged at once. */
const SIDES = [8, 16];
const DEPTHS = [8, 16, 32];
/** The largest subgroup of which four are a workgroup everywhere. */
const MOST_LANES = 64;

/** As Chrome tells it, and Dawn. */
interface MatrixConfig {
  readonly componentType: string;
  readonly resultComponentType: string;
  readonly M: number;
  readonly N: number;
  readonly K: number;
}

type MatrixInfo = Partial<GPUAdapterInfo> & { readonly subgroupMatrixConfigs?: Iterable<MatrixConfig> };

/** How an adapter can multiply prompts where they needn't be exact, by its features: the best way first. */
export function fastPathsOf(
  { features, info }: Pick<GPUAdapter, 'features' | 'info'>,
  language: Pick<WGSLLanguageFeatures, 'has'> | undefined,
): FastPath[] {
  const f16 = features.has('shader-f16');
  const matrix = f16 ? matrixOf(features, info as MatrixInfo) : undefined;
  // Apple's GPUs have no such instruction: browsers spell the products out there, and f16 is faster.
  const dot4 = language?.has(DOT4) === true && info.vendor !== 'apple';
  return [...(matrix ? [matrix] : []), ...(dot4 ? ['dot4' as const] : []), ...(f16 ? ['f16' as const] : [])];
}

/** The largest product of f16 with f32 sums that a tile can be cut into. */
function matrixOf(features: GPUAdapter['features'], info: MatrixInfo): FastPath | undefined {
  if (!features.has(SUBGROUP_MATRIX) || !features.has('subgroups')) return undefined;
  if ((info.subgroupMaxSize ?? Infinity) > MOST_LANES) return undefined;
  const shapes = [...(info.subgroupMatrixConfigs ?? [])]
    .filter(({ componentType, resultComponentType }) => componentType === 'f16' && resultComponentType === 'f32')
    .filter(({ M, N, K }) => SIDES.includes(M) && SIDES.includes(N) && DEPTHS.includes(K))
    .sort((a, b) => b.M * b.N * b.K - a.M * a.N * a.K || b.M - a.M || b.N - a.N);
  const [best] = shapes;
  return best && `matrix ${best.M}x${best.N}x${best.K}`;
}
