import { ceilDiv } from '../../../src/base/math.js';
import type { DeviceTraits, FastPath } from '../../../src/gpu/index.js';
import expertLinearTiled from '../../moe/expert_linear_tiled/expert_linear_tiled_fast.wgsl?raw';
import linearTiled from '../linear_tiled/linear_tiled_fast.wgsl?raw';
import { BLOCK, type MatrixType, UNIT_ELEMENTS } from '../pack.js';
import wholeUnits from '../../lib/whole_units.wgsl?raw';
import { scalesWgsl } from '../weights_wgsl.js';
import byteBlock from './byte_block.wgsl?raw';
import bytes from './bytes.wgsl?raw';
import bytesMxfp4 from './bytes_mxfp4.wgsl?raw';
import bytesQ4 from './bytes_q4.wgsl?raw';
import bytesQ8 from './bytes_q8.wgsl?raw';
import decodeBytesWgsl from './decode_bytes.wgsl?raw';
import dotPacked from './dot_packed.wgsl?raw';
import half from './half.wgsl?raw';
import halfPlain from './half_plain.wgsl?raw';
import held from './held.wgsl?raw';
import matrix from './matrix.wgsl?raw';
import matrixHalfSums from './matrix_half_sums.wgsl?raw';
import matrixSums from './matrix_sums.wgsl?raw';
import pieces from './pieces.wgsl?raw';
import rowVec4s from './row_vec4s.wgsl?raw';
import rowsBytes from './rows_bytes.wgsl?raw';
import rowsF32 from './rows_f32.wgsl?raw';
import tile from './tile.wgsl?raw';
import writeBytes from './write_bytes.wgsl?raw';

/** The texts of the kernels that have a fast form. */
const KERNELS = { linear_tiled: linearTiled, expert_linear_tiled: expertLinearTiled } as const;

/** Packed bytes of the types that have them. */
const UNIT_BYTES: Partial<Record<MatrixType, string>> = { q8: bytesQ8, q4: bytesQ4, mxfp4: bytesMxfp4 };

/** A `FastPath` by matrix units: what is multiplied and summed, and rows x outputs x depth. */
const MATRIX = /^matrix (f16|f32|)\s?(\d+)x(\d+)x(\d+)$/;

/** What matrix.wgsl multiplies, and how WGSL names the feature, which has one of two names. */
function matrixElements(feature: string, element: 'f16' | 'f32'): string {
  const rule = `${feature.startsWith('chromium') ? 'chromium.' : ''}subgroup_matrix_uniformity`;
  const extensions = [feature.replaceAll('-', '_'), ...(element === 'f16' ? ['f16'] : [])];
  // A subgroup has a quarter by its number, which compilers can't see.
  return `enable ${extensions.join(', ')};\ndiagnostic(off, ${rule});\nalias Element = ${element};`;
}

/** What stages rows and weights, and multiplies them. `inBytes`: rows lie so. */
function tileFragments(path: FastPath, type: MatrixType, inBytes: boolean, feature?: string): readonly string[] {
  if (path === 'dot4') {
    const rows = inBytes ? [rowVec4s, rowsBytes] : [rowsF32];
    return [tile, held, byteBlock, ...rows, bytes, UNIT_BYTES[type]!, dotPacked, pieces];
  }
  if (path === 'f16') return [tile, held, half, halfPlain, pieces];
  const numbers = MATRIX.exec(path)?.[1];
  const units = [tile, half, matrixElements(feature!, numbers === 'f32' ? 'f32' : 'f16'), matrix];
  return [...units, ...(numbers === 'f16' ? [held, matrixHalfSums] : [matrixSums]), pieces];
}

/** What kernels have beside their own text that write rows in bytes. */
export const WRITE_BYTES = [byteBlock, rowVec4s, writeBytes] as const;

/** What takes the place of q8 or q4 weights' fragment for generated rows of so many elements, of which it multiplies bytes. */
export const decodeBytes = (
  type: 'q8' | 'q4',
  inFeatures: number,
  traits: DeviceTraits,
): Pick<FastTile, 'wgsl' | 'constants'> => ({
  wgsl: [scalesWgsl(type, traits), dotPacked, byteBlock, decodeBytesWgsl, wholeUnits],
  constants: { UNIT: UNIT_ELEMENTS[type], LESS: type === 'q8' ? 0 : 8, X_BLOCKS: ceilDiv(inFeatures, BLOCK) },
});

/** What a kernel is made of that multiplies by a path. */
export interface FastTile {
  /** The kernel's own text last; fragments of its weights and outputs come before. */
  readonly wgsl: readonly string[];
  readonly constants: Readonly<Record<string, number | boolean>>;
  readonly fast: FastPath;
}

/** `kernel`: whose text; a tile of 32 or 64 rows x as many outputs. `inBytes`: rows lie so. */
export function fastTile(
  kernel: keyof typeof KERNELS,
  path: FastPath,
  type: MatrixType,
  { fast, unroll }: DeviceTraits,
  [rowTile, outTile]: readonly [number, number],
  inBytes = false,
): FastTile {
  const [, numbers, ...shape] = MATRIX.exec(path) ?? [];
  const [rows, outputs, depth] = shape.map(Number);
  const constants = {
    ROW_TILE: rowTile,
    OUT_TILE: outTile,
    // An invocation has 16 or 8 sums.
    THREADS: rows === undefined ? Math.max(128, (rowTile * outTile) / 16) : 4 * fast!.subgroup,
    PREFETCH: unroll,
    ...(path !== 'dot4' && { HALVES: numbers !== 'f32' }),
    ...(rows !== undefined && { MATRIX_ROWS: rows, MATRIX_OUTS: outputs!, MATRIX_DEPTH: depth! }),
  };
  const fragments = tileFragments(path, type, inBytes, fast?.matrix);
  return { wgsl: [...fragments, KERNELS[kernel]], constants, fast: path };
}
