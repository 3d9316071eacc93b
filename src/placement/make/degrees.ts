import { usageError } from '../../base/errors.js';
import { count } from '../../base/lists.js';
import type { Feature } from '../check/capabilities.js';
import { isArranged, parsePolicy, readPolicyName } from './policy.js';

/**
 * Degrees of parallelism, as people give them in place of a plan: over how many ranks each kind of it goes. What is left out is 1. Their
 * product is the number of ranks; those above 1 name the plan.
 *
 *   tensor    weight groups, which have different heads and columns            tp
 *   token     ranks that sequences are shared out to, for each root: it, and KV-only ranks      token
 *   sequence  ranks that split the chunks of each sequence                     sp
 *   pipeline  stages of layers                                                 pp
 *   data      groups of ranks with requests of their own, over which experts are spread          adp
 */
export interface Degrees {
  readonly tensor?: number | undefined;
  readonly token?: number | undefined;
  readonly sequence?: number | undefined;
  readonly pipeline?: number | undefined;
  readonly data?: number | undefined;
}

/** Each with its word in a policy's name, and what a plan of it has. */
const DEGREES = {
  pipeline: ['pp', 'stages'],
  data: ['adp', 'adp'],
  tensor: ['tp', 'cutHeads'],
  token: ['token', 'token'],
  sequence: ['sp', 'splitChunks'],
} as const satisfies Readonly<Record<keyof Degrees, readonly [word: string, feature: Feature]>>;
const NAMES = Object.keys(DEGREES) as (keyof typeof DEGREES)[];

/** "tensor 2 x token 3". */
export const showDegrees = (degrees: Degrees): string =>
  NAMES.filter((name) => degrees[name] !== undefined)
    .map((name) => `${name} ${degrees[name]}`)
    .join(' x ');

const product = (degrees: Degrees): number => NAMES.reduce((ranks, name) => ranks * (degrees[name] ?? 1), 1);

export interface AskedPlan {
  readonly policy: string;
  readonly worldSize: number;
}

/**
 * The policy and ranks that degrees name: alone, or beside a policy, whose parts they then are of, and ranks, which must be as many.
 * `makePlan(policy, worldSize, shape, degrees)` makes the plan.
 * @throws SplitkvError `usage` where they contradict each other
 */
export function planOfDegrees(degrees: Degrees, plan?: string, ranks?: number): AskedPlan {
  const given = showDegrees(degrees);
  const above = NAMES.filter((name) => (degrees[name] ?? 1) > 1);
  const all = product(degrees);
  if (plan === undefined) {
    const policy = parsePolicy(above.map((name) => DEGREES[name][0]).join(' x ') || 'single').name;
    if (ranks !== undefined && ranks !== all) {
      throw usageError(
        `${given}: that is plan '${policy}' on ${count(all, 'rank')}, and ranks asks for ${ranks}: leave ranks out, or change a degree`,
      );
    }
    return { policy, worldSize: all };
  }
  if (plan.trim().toLowerCase() === 'auto') {
    throw usageError(`${given}: degrees name a plan, and plan 'auto' is the planner's choice: leave one of them out`);
  }
  const { name: policy, features } = readPolicyName(plan);
  const foreign = above.find((name) => !features.includes(DEGREES[name][1]));
  if (foreign !== undefined) {
    throw usageError(
      `plan '${policy}' with ${foreign} ${degrees[foreign]}: it has no '${DEGREES[foreign][0]}' in it; leave ${foreign} out, or name the ` +
        `plan '${[...policy.split(' x ').filter((word) => word !== 'single'), DEGREES[foreign][0]].join(' x ')}'`,
    );
  }
  if (ranks !== undefined) return { policy, worldSize: ranks };
  // Every part of the policy must be told, or how many ranks share out what isn't.
  const parts = NAMES.filter((name) => features.includes(DEGREES[name][1]));
  const open = parts.filter((name) => degrees[name] === undefined);
  if (open.length > 0 || parts.length === 0 || isArranged(policy)) {
    throw usageError(
      `plan '${policy}' with ${given}: say how many ranks there are, by ranks${open.length > 0 ? ` or by ${open.join(' and ')}` : ''}`,
    );
  }
  return { policy, worldSize: all };
}
