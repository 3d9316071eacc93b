import { Random } from '../../base/random.js';
import { sum } from '../../base/lists.js';

/** Ada-KV's alpha: the part of the budget that every head gets alike. */
const FLOOR = 0.2;
const SIGMA = 0.8;

/** Kept entries of a layer's heads: lognormal(0.8), of which 20% of the mean goes to every head alike, as Ada-KV's floor does. */
function lognormalLayer(random: Random, numHeads: number, mean = 1): number[] {
  const raw = Array.from({ length: numHeads }, () => Math.exp(SIGMA * random.normal()));
  const average = sum(raw) / numHeads;
  return raw.map((load) => (mean * ((1 - FLOOR) * load + FLOOR * average)) / average);
}

export function lognormalLoads(seed: number, numLayers: number, numHeads: number): number[][] {
  const random = new Random(seed);
  return Array.from({ length: numLayers }, () => lognormalLayer(random, numHeads));
}
