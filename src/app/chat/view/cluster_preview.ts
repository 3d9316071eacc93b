import type { LoadOptions } from '../../../index.js';
import { type ChatStrings, fill } from '../strings.js';
import type { Preview } from './preview.js';

/** Of a model that a cluster's ranks run: what it takes is seen there. @param cluster in words */
export function clusterPreview(
  { ranks = 1, plan = 'auto' }: LoadOptions,
  cluster: string,
  strings: ChatStrings,
): Preview {
  const names = typeof ranks === 'number' ? fill(strings.ranks_any, { ranks }) : ranks.join(', ');
  const policy = typeof plan === 'string' ? plan : plan.policy;
  return {
    facts: [
      [strings.fact_adapter, fill(strings.ranks_of, { ranks: names, cluster })],
      [strings.fact_plan, policy],
    ],
    problem: undefined,
    start: strings.start,
    remedies: [],
  };
}
