import { Random } from '../../src/base/random.js';
import type { Profile } from '../../src/arrangement/index.js';

const FLOOR = 0.2;
const SPREAD = 0.8;
const BUDGET = 1024;

/** A made-up profile: what heads keep is lognormal, with a floor of a fifth of the mean, as per-head compression leaves it. */
export function exampleProfile(layers: number, heads: number, seed: number): Profile {
  const random = new Random(seed);
  const layer = (): number[] => {
    const shares = Array.from({ length: heads }, () => Math.exp(SPREAD * random.normal()));
    const total = shares.reduce((sum, share) => sum + share, 0);
    return shares.map((share) => Math.round(BUDGET * (FLOOR + ((1 - FLOOR) * heads * share) / total)));
  };
  return { model: 'made up', kv_budget: BUDGET, layers: Array.from({ length: layers }, layer) };
}
