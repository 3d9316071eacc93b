/** What only engines need whose sequences are dealt out to several places, loaded where the plan has such. */
import type { Owners } from '../../placement/index.js';
import { contextPolicy } from '../scheduler/adp/policy.js';
import { RankBalanceMeter } from './rank_balance.js';

export const placing = {
  contextPolicy,
  balanceMeter: (places: readonly number[], owners: Owners): RankBalanceMeter =>
    new RankBalanceMeter(places, owners.ranges(0).length),
};
