import { usageError } from '../../base/errors.js';
import type { Degrees } from '../../placement/index.js';
import type { LoadOptions } from '../contracts/api.js';

/** Degrees of parallelism among some options; undefined where none is given. */
export function degreesOf({
  tensor,
  token,
  sequence,
  pipeline,
  data,
}: Pick<LoadOptions, keyof Degrees>): Degrees | undefined {
  const degrees = { tensor, token, sequence, pipeline, data };
  return Object.values(degrees).some((degree) => degree !== undefined) ? degrees : undefined;
}

/** The options, with the plan and the ranks that their degrees name. @throws SplitkvError `usage` where these contradict each other */
export async function namedByDegrees<Options extends Pick<LoadOptions, keyof Degrees | 'plan' | 'ranks'>>(
  options: Options,
): Promise<Options> {
  const degrees = degreesOf(options);
  if (!degrees) return options;
  const { planOfDegrees, showDegrees } = await import('../../placement/make/degrees.js');
  const { plan, ranks } = options;
  if (plan !== undefined && typeof plan !== 'string') {
    throw usageError(`${showDegrees(degrees)} beside a plan that says who holds what by itself: leave one of them out`);
  }
  const { policy, worldSize } = planOfDegrees(degrees, plan, typeof ranks === 'object' ? ranks.length : ranks);
  return { ...options, plan: policy, ranks: ranks ?? worldSize };
}
