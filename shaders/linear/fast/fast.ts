/**
 * Room: prompts' matrices with precision 'fast'. tile.wgsl says what a multiply fragment gives; half.wgsl and bytes.wgsl
 * stage rows and weights for it. Here is which of them runs; fragments.ts puts them together. Read tile.wgsl next.
 */

import { SplitkvError } from '../../../src/base/errors.js';
import { ceilDiv } from '../../../src/base/math.js';
import type { DeviceTraits, FastPath } from '../../../src/gpu/index.js';
import { BLOCK, isKept, isQuantised, type MatrixType } from '../pack.js';
import type { LinearProblem } from '../problem.js';
import { inBlocks } from '../segments.js';

type Fragments = typeof import('./fragments.js');

let fragments: Fragments | undefined;

/** Most models are never loaded with precision 'fast': its WGSL is loaded when one is, before programs are recorded. */
export async function loadFast(): Promise<void> {
  fragments ??= await import('./fragments.js');
}

/**
 * How prompts are multiplied by weights of this type; undefined: exactly. f32 weights, routers' among them, are never rounded, nor are
 * those that are kept as a file has them.
 */
export const fastPath = ({ software, fast }: DeviceTraits, type: MatrixType): FastPath | undefined =>
  software || type === 'f32' || isKept(type)
    ? undefined
    : fast?.paths.find((path) => path !== 'dot4' || isQuantised(type));

/**
 * Whether rows may lie in bytes that prompts are multiplied of: where no segment cuts a block of 32, so that no rank's block is a part of
 * another's. Whoever writes them rounds once what each tile would have to.
 */
export function takesBytes(
  traits: DeviceTraits,
  problem: Pick<LinearProblem, 'type' | 'inFeatures' | 'modelInFeatures' | 'segments' | 'xStride' | 'xOffset'>,
): boolean {
  const { type, inFeatures, modelInFeatures = inFeatures, segments, xStride, xOffset = 0 } = problem;
  if (fastPath(traits, type) !== 'dot4') return false;
  const isWhole = [modelInFeatures, xStride, xOffset].every((element) => element % BLOCK === 0);
  return isWhole && inBlocks(segments, modelInFeatures);
}

const loaded = (kernel: string): Fragments => {
  if (!fragments) throw new SplitkvError('internal', `${kernel}: precision 'fast' without loadFast`);
  return fragments;
};

/** As `fastTile` of fragments.ts. */
export const fastTile: Fragments['fastTile'] = (kernel, ...rest) => loaded(kernel).fastTile(kernel, ...rest);

/** What a kernel has beside its own text that writes rows in bytes. */
export const writeBytes = (kernel: string): readonly string[] => loaded(kernel).WRITE_BYTES;

/** Whether generated rows are multiplied in bytes by weights of this type (decode_bytes.wgsl). */
export const decodesBytes = ({ software, fast }: DeviceTraits, type: MatrixType): type is 'q8' | 'q4' =>
  !software && (type === 'q8' || type === 'q4') && fast?.paths.includes('dot4') === true;

/** Of workgroup memory, for a row of `inFeatures` in bytes. */
export const rowBytes = (inFeatures: number): number => ceilDiv(inFeatures, BLOCK) * (BLOCK + 8);

/** As `decodeBytes` of fragments.ts. */
export const decodeBytes: Fragments['decodeBytes'] = (...given) => loaded('linear').decodeBytes(...given);
