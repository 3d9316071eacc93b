import type { DeviceTraits } from '../../src/gpu/device.js';
import keptQ4K from '../lib/kept_q4_k.wgsl?raw';
import keptQ6K from '../lib/kept_q6_k.wgsl?raw';
import plainSum from '../lib/plain_sum.wgsl?raw';
import scaleQ4 from '../lib/scale_q4.wgsl?raw';
import scaleQ8 from '../lib/scale_q8.wgsl?raw';
import quantsQ4 from '../lib/quants_q4.wgsl?raw';
import quantsQ4Half from '../lib/quants_q4_f16.wgsl?raw';
import scaledSum from '../lib/scaled_sum.wgsl?raw';
import unitOf32 from '../lib/unit_of_32.wgsl?raw';
import f16 from '../lib/weights_f16.wgsl?raw';
import f32 from '../lib/weights_f32.wgsl?raw';
import kept from '../lib/weights_kept.wgsl?raw';
import mxfp4 from '../lib/weights_mxfp4.wgsl?raw';
import q4 from '../lib/weights_q4.wgsl?raw';
import q8 from '../lib/weights_q8.wgsl?raw';
import type { PackedType } from './pack.js';

const q4Of = (quants: string): string => unitOf32 + scaleQ4 + quants + q4 + scaledSum;

const WEIGHTS: Readonly<Record<PackedType, string>> = {
  f32: f32 + plainSum,
  f16: f16 + plainSum,
  q8: scaleQ8 + q8 + scaledSum,
  q4: q4Of(quantsQ4),
  q4_k: unitOf32 + keptQ4K + kept + plainSum,
  q6_k: unitOf32 + keptQ6K + kept + plainSum,
  mxfp4: unitOf32 + mxfp4 + scaledSum,
};

/** How a kernel reads packed weights of a type. */
export const weightsWgsl = (type: PackedType, { f16: hasHalves, tuning = '' }: DeviceTraits): string =>
  type === 'q4' && hasHalves && tuning.includes('halves') ? q4Of(quantsQ4Half) : WEIGHTS[type];
