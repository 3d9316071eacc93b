import type { DeviceTraits, FastPath } from '../../../src/gpu/index.js';
import expertLinearTiled from '../../moe/expert_linear_tiled/expert_linear_tiled_fast.wgsl?raw';
import linearTiled from '../linear_tiled/linear_tiled_fast.wgsl?raw';
import type { PackedType } from '../pack.js';
import bytes from './bytes.wgsl?raw';
import bytesMxfp4 from './bytes_mxfp4.wgsl?raw';
import bytesQ4 from './bytes_q4.wgsl?raw';
import bytesQ8 from './bytes_q8.wgsl?raw';
import dotPacked from './dot_packed.wgsl?raw';
import half from './half.wgsl?raw';
import halfMatrix from './half_matrix.wgsl?raw';
import halfPlain from './half_plain.wgsl?raw';
import held from './held.wgsl?raw';
import pieces from './pieces.wgsl?raw';
import tile from './tile.wgsl?raw';

/** The texts of the kernels that have a fast form. */
const KERNELS = { linear_tiled: linearTiled, expert_linear_tiled: expertLinearTiled } as const;

/** Packed bytes of the types that have them. */
const UNIT_BYTES: Partial<Record<PackedType, string>> = { q8: bytesQ8, q4: bytesQ4, mxfp4: bytesMxfp4 };

/** What stages rows and weights, and multiplies them. */
function tileFragments(path: FastPath, type: PackedType): readonly string[] {
  if (path === 'dot4') return [tile, held, bytes, UNIT_BYTES[type]!, dotPacked, pieces];
  return path === 'f16' ? [tile, held, half, halfPlain, pieces] : [tile, half, halfMatrix, pieces];
}

/** What a kernel is made of that multiplies by a path. */
export interface FastTile {
  /** The kernel's own text last; fragments of its weights and outputs come before. */
  readonly wgsl: readonly string[];
  readonly constants: Readonly<Record<string, number | boolean>>;
  readonly fast: FastPath;
}

/** `kernel`: whose text; a tile of 32 or 64 rows x as many outputs. */
export function fastTile(
  kernel: keyof typeof KERNELS,
  path: FastPath,
  type: PackedType,
  { fast, unroll }: DeviceTraits,
  [rowTile, outTile]: readonly [number, number],
): FastTile {
  const [, ...shape] = /^matrix (\d+)x(\d+)x(\d+)$/.exec(path) ?? [];
  const [rows, outputs, depth] = shape.map(Number);
  const constants = {
    ROW_TILE: rowTile,
    OUT_TILE: outTile,
    // An invocation has 16 or 8 sums.
    THREADS: rows === undefined ? Math.max(128, (rowTile * outTile) / 16) : 4 * fast!.subgroup,
    PREFETCH: unroll,
    ...(rows !== undefined && { MATRIX_ROWS: rows, MATRIX_OUTS: outputs!, MATRIX_DEPTH: depth! }),
  };
  return { wgsl: [...tileFragments(path, type), KERNELS[kernel]], constants, fast: path };
}
