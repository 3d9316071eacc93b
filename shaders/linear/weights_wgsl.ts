import type { DeviceTraits } from '../../src/gpu/device.js';
import byIntegers from '../lib/half_by_integers.wgsl?raw';
import byUnpacking from '../lib/half_by_unpacking.wgsl?raw';
import plainSum from '../lib/plain_sum.wgsl?raw';
import scaleQ4 from '../lib/scale_q4.wgsl?raw';
import scaleQ8 from '../lib/scale_q8.wgsl?raw';
import quantsQ4 from '../lib/quants_q4.wgsl?raw';
import quantsQ4Half from '../lib/quants_q4_f16.wgsl?raw';
import scaledSum from '../lib/scaled_sum.wgsl?raw';
import wholeUnits from '../lib/whole_units.wgsl?raw';
import f16 from '../lib/weights_f16.wgsl?raw';
import f32 from '../lib/weights_f32.wgsl?raw';
import mxfp4 from '../lib/weights_mxfp4.wgsl?raw';
import q4 from '../lib/weights_q4.wgsl?raw';
import q8 from '../lib/weights_q8.wgsl?raw';
import { keptPlanes } from './kept/kept.js';
import { isKept, type KeptType, type MatrixType } from './pack.js';
import { unitOf } from './unit_wgsl.js';

const q4Of = (quants: string): string => unitOf(32) + quants + q4 + scaledSum;

const WEIGHTS: Readonly<Record<Exclude<MatrixType, KeptType>, string>> = {
  f32: f32 + plainSum,
  f16: f16 + plainSum,
  q8: q8 + scaledSum,
  q4: q4Of(quantsQ4),
  mxfp4: unitOf(32) + mxfp4 + scaledSum,
};

/** The f16 scales of q8 or q4. */
export const scalesWgsl = (type: 'q8' | 'q4', { flushesHalves = false }: DeviceTraits): string =>
  (flushesHalves ? byIntegers : byUnpacking) + (type === 'q8' ? scaleQ8 : scaleQ4);

/** How a kernel reads packed weights of a type. */
export function weightsWgsl(type: MatrixType, traits: DeviceTraits): string {
  if (isKept(type)) return keptPlanes(type).wgsl;
  if (type !== 'q8' && type !== 'q4') return WEIGHTS[type] + wholeUnits;
  const halves = type === 'q4' && traits.f16 && traits.tuning?.includes('halves');
  return scalesWgsl(type, traits) + (halves ? q4Of(quantsQ4Half) : WEIGHTS[type]) + wholeUnits;
}
