import scaledSum from '../lib/scaled_sum.wgsl?raw';
import unitOf32 from '../lib/unit_of_32.wgsl?raw';
import f16 from '../lib/weights_f16.wgsl?raw';
import f32 from '../lib/weights_f32.wgsl?raw';
import q4 from '../lib/weights_q4.wgsl?raw';
import q8 from '../lib/weights_q8.wgsl?raw';
import type { WeightType } from './pack.js';

/** Weights of 4 bits, with what all of them share. */
export const fourBits = (weights: string): string => unitOf32 + weights + scaledSum;

/** How a kernel reads packed weights of each type. */
export const WEIGHTS_WGSL: Readonly<Record<WeightType, string>> = {
  f32,
  f16,
  q8: q8 + scaledSum,
  q4: fourBits(q4),
};
