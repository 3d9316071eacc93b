import type { DeviceTraits } from '../../src/gpu/device.js';
import halvedUnits from '../lib/halved_units.wgsl?raw';
import byIntegers from '../lib/half_by_integers.wgsl?raw';
import byUnpacking from '../lib/half_by_unpacking.wgsl?raw';
import keptHalves from '../lib/kept_halves.wgsl?raw';
import keptIq4Xs from '../lib/kept_iq4_xs.wgsl?raw';
import keptMinima from '../lib/kept_minima.wgsl?raw';
import keptQ2K from '../lib/kept_q2_k.wgsl?raw';
import keptQ3K from '../lib/kept_q3_k.wgsl?raw';
import keptPairs from '../lib/kept_pairs.wgsl?raw';
import keptScale from '../lib/kept_scale.wgsl?raw';
import keptQ6K from '../lib/kept_q6_k.wgsl?raw';
import plainSum from '../lib/plain_sum.wgsl?raw';
import scaleQ4 from '../lib/scale_q4.wgsl?raw';
import scaleQ8 from '../lib/scale_q8.wgsl?raw';
import quantsQ4 from '../lib/quants_q4.wgsl?raw';
import quantsQ4Half from '../lib/quants_q4_f16.wgsl?raw';
import scaledSum from '../lib/scaled_sum.wgsl?raw';
import unitOf32 from '../lib/unit_of_32.wgsl?raw';
import wholeUnits from '../lib/whole_units.wgsl?raw';
import f16 from '../lib/weights_f16.wgsl?raw';
import f32 from '../lib/weights_f32.wgsl?raw';
import kept from '../lib/weights_kept.wgsl?raw';
import mxfp4 from '../lib/weights_mxfp4.wgsl?raw';
import q4 from '../lib/weights_q4.wgsl?raw';
import q8 from '../lib/weights_q8.wgsl?raw';
import { highWords, KEPT_BLOCKS, type KeptType, type PackedType, UNIT_ELEMENTS } from './pack.js';

/** Units of 32 elements, or 64 that are read in halves. */
const unitOf = (elements: number): string =>
  `const UNIT: u32 = ${elements}u;\nconst UNIT4: u32 = ${elements / 4}u;\n${unitOf32}`;
const q4Of = (quants: string): string => unitOf(32) + quants + q4 + scaledSum;

/** `lines` as weights_kept.wgsl says. @param uneven codes stand for IQ4's numbers */
function keptOf(type: KeptType, lines: string, uneven = false): string {
  const { elements, words, low, high } = KEPT_BLOCKS[type];
  const constants = `const BLOCK_UNITS = ${elements / UNIT_ELEMENTS[type]}u;
const BLOCK_WORDS = ${words}u;
const LOW = ${low}u;
const HIGH = ${high}u;
const HIGH_WORDS = ${highWords(KEPT_BLOCKS[type])}u;
const UNEVEN = ${uneven};
`;
  return unitOf(UNIT_ELEMENTS[type]) + constants + lines + keptScale + kept + plainSum;
}

/** Of blocks of 32 with one f16 or two; with one, the code that is zero. */
const halvesOf = (halves: 1 | 2, middle = 0): string =>
  `const HALVES = ${halves}u;\nconst MIDDLE = ${middle}.0;\n${byIntegers}${keptHalves}`;

const WEIGHTS: Readonly<Record<PackedType, string>> = {
  f32: f32 + plainSum,
  f16: f16 + plainSum,
  q8: q8 + scaledSum,
  q4: q4Of(quantsQ4),
  q2_k: keptOf('q2_k', byIntegers + keptQ2K),
  q3_k: keptOf('q3_k', byIntegers + keptQ3K),
  q4_k: keptOf('q4_k', keptPairs + keptMinima),
  q5_k: keptOf('q5_k', keptPairs + keptMinima),
  q6_k: keptOf('q6_k', keptPairs + keptQ6K),
  q4_1: keptOf('q4_1', halvesOf(2)),
  q5_0: keptOf('q5_0', halvesOf(1, 16)),
  q5_1: keptOf('q5_1', halvesOf(2)),
  iq4_nl: keptOf('iq4_nl', halvesOf(1), true),
  iq4_xs: keptOf('iq4_xs', keptIq4Xs, true),
  mxfp4: unitOf(32) + mxfp4 + scaledSum,
};

/** The f16 scales of q8 or q4. */
export const scalesWgsl = (type: 'q8' | 'q4', { flushesHalves = false }: DeviceTraits): string =>
  (flushesHalves ? byIntegers : byUnpacking) + (type === 'q8' ? scaleQ8 : scaleQ4);

/** How a kernel reads packed weights of a type. */
export function weightsWgsl(type: PackedType, traits: DeviceTraits): string {
  const units = UNIT_ELEMENTS[type] > 32 ? halvedUnits : wholeUnits;
  if (type !== 'q8' && type !== 'q4') return WEIGHTS[type] + units;
  const halves = type === 'q4' && traits.f16 && traits.tuning?.includes('halves');
  return scalesWgsl(type, traits) + (halves ? q4Of(quantsQ4Half) : WEIGHTS[type]) + units;
}
