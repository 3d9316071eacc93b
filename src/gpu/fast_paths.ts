import type { DeviceTraits, FastPath } from './device.js';

/** One feature by its two names: the one that is known to work first. */
const MATRIX_FEATURES = ['chromium-experimental-subgroup-matrix', 'subgroup-matrix'];
/** Of WGSL, which says so apart from an adapter's features. */
const DOT4 = 'packed_4x8_integer_dot_product';
/** A tile's quarters are of 16 or 32 rows and outputs, and 32 columns are staged at once. */
const SIDES = [8, 16];
const DEPTHS = [8, 16, 32];
/** The largest subgroup of which four are a workgroup everywhere. */
const MOST_LANES = 64;

interface MatrixConfig {
  readonly componentType: string;
  readonly resultComponentType: string;
  readonly M: number;
  readonly N: number;
  readonly K: number;
}

type MatrixInfo = Partial<GPUAdapterInfo> & { readonly subgroupMatrixConfigs?: Iterable<MatrixConfig> };

/** How an adapter can multiply prompts where they needn't be exact, by its features: the best way first. */
export function fastTraits(
  { features, info }: Pick<GPUAdapter, 'features' | 'info'>,
  language: Pick<WGSLLanguageFeatures, 'has'> | undefined,
): NonNullable<DeviceTraits['fast']> {
  const f16 = features.has('shader-f16');
  const matrix = features.has('subgroups') ? MATRIX_FEATURES.find((name) => features.has(name)) : undefined;
  // Apple's GPUs have no such instruction: browsers spell the products out there, and f16 is faster.
  const dot4 = language?.has(DOT4) === true && info.vendor !== 'apple';
  const paths: FastPath[] = [
    ...(matrix === undefined ? [] : matrixPaths(info as MatrixInfo, f16)),
    ...(dot4 ? ['dot4' as const] : []),
    ...(f16 ? ['f16' as const] : []),
  ];
  return { paths, subgroup: info.subgroupMaxSize, matrix };
}

/** Numbers and sums of matrix units, the best first: f32 sums lose nothing, and f32 numbers as little. */
const MATRIX_KINDS = [
  ['f16', 'f32', ''],
  ['f32', 'f32', 'f32 '],
  ['f16', 'f16', 'f16 '],
] as const;

/** Of each kind the largest product that a tile can be cut into. */
function matrixPaths({ subgroupMaxSize = Infinity, subgroupMatrixConfigs = [] }: MatrixInfo, f16: boolean): FastPath[] {
  if (subgroupMaxSize > MOST_LANES) return [];
  const fitting = [...subgroupMatrixConfigs]
    .filter(({ M, N, K }) => SIDES.includes(M) && SIDES.includes(N) && DEPTHS.includes(K))
    .sort((a, b) => b.M * b.N * b.K - a.M * a.N * a.K || b.M - a.M || b.N - a.N);
  return MATRIX_KINDS.flatMap(([numbers, sums, name]) => {
    const best = fitting.find((each) => each.componentType === numbers && each.resultComponentType === sums);
    return best && (numbers === 'f32' || f16) ? [`matrix ${name}${best.M}x${best.N}x${best.K}` as const] : [];
  });
}
