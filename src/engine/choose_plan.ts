import { usageError } from '../base/errors.js';
import type { AdapterRequest } from '../gpu/index.js';
import type { ModelConfig } from '../model/config.js';
import { modelShape } from '../model/shape.js';
import { checkPlan, makePlan, parsePlan, type Plan } from '../placement/index.js';
import type { LoadOptions } from './api.js';

const PREFERENCES: readonly string[] = ['high-performance', 'low-power'] satisfies GPUPowerPreference[];

/** The plan that the options ask for, checked against the model, and an adapter for each of its ranks. */
export async function choosePlan(
  options: LoadOptions,
  config: ModelConfig,
): Promise<{ readonly plan: Plan; readonly adapters: readonly AdapterRequest[] }> {
  const shape = modelShape(config);
  const asked = options.plan ?? 'auto';
  const ranks = rankCount(options);
  let plan: Plan;
  if (typeof asked !== 'string') {
    plan = parsePlan(asked);
    if (options.ranks !== undefined && plan.worldSize !== ranks) {
      throw usageError(
        `the plan is for ${plan.worldSize} ranks, and ranks asks for ${ranks}: leave ranks out, or change it`,
      );
    }
  } else if (asked === 'auto') {
    plan = ranks === 1 ? makePlan('single', 1, shape) : makePlan('tp', ranks, shape);
  } else {
    plan = makePlan(asked, ranks, shape);
  }
  checkPlan(plan, shape);
  return { plan, adapters: adaptersOf(options, plan.worldSize) };
}

function rankCount({ ranks = 1 }: LoadOptions): number {
  const count = typeof ranks === 'number' ? ranks : ranks.length;
  if (!Number.isInteger(count) || count < 1 || count > 64) {
    throw usageError(`ranks ${count}: expected a number of ranks from 1 to 64, or a list of adapters`);
  }
  return count;
}

function adaptersOf(options: LoadOptions, count: number): AdapterRequest[] {
  const { ranks, adapter, powerPreference } = options;
  if (ranks === undefined || typeof ranks === 'number') {
    const same = {
      ...(powerPreference && { powerPreference }),
      ...(adapter !== undefined && { adapterName: adapter }),
    };
    return Array.from({ length: count }, () => same);
  }
  if (adapter !== undefined || powerPreference) {
    throw usageError('ranks names an adapter for each rank: leave adapter and powerPreference out');
  }
  return ranks.map((name) =>
    PREFERENCES.includes(name) ? { powerPreference: name as GPUPowerPreference } : { adapterName: name },
  );
}
