/**
 * Room: prompts' matrices with precision 'fast'. tile.wgsl says what a multiply fragment gives; half.wgsl and bytes.wgsl
 * stage rows and weights for it. Here is which of them runs; fragments.ts puts them together. Read tile.wgsl next.
 */

import { SplitkvError } from '../../../src/base/errors.js';
import type { DeviceTraits, FastPath } from '../../../src/gpu/index.js';
import { isQuantised, type PackedType } from '../pack.js';

type Fragments = typeof import('./fragments.js');

let fragments: Fragments | undefined;

/** Most models are never loaded with precision 'fast': its WGSL is loaded when one is, before programs are recorded. */
export async function loadFast(): Promise<void> {
  fragments ??= await import('./fragments.js');
}

/** How prompts are multiplied by weights of this type; undefined: exactly. f32 weights, routers' among them, are never rounded. */
export const fastPath = ({ software, fast }: DeviceTraits, type: PackedType): FastPath | undefined =>
  software || type === 'f32' ? undefined : fast?.paths.find((path) => path !== 'dot4' || isQuantised(type));

/** As `fastTile` of fragments.ts. */
export const fastTile: Fragments['fastTile'] = (kernel, ...rest) => {
  if (!fragments) throw new SplitkvError('internal', `${kernel}: precision 'fast' without loadFast`);
  return fragments.fastTile(kernel, ...rest);
};
