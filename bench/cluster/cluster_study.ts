import { type ClusterOptions, ClusterRun } from './simulate_cluster.js';
import type { ClusterFigures } from './cluster_meter.js';
import type { PolicyName } from './routers.js';
import type { PrefixSource } from './prefix_source.js';

export interface ClusterRow extends ClusterFigures {
  readonly policy: PolicyName;
}

export type ClusterStudyOptions = Omit<ClusterOptions, 'policy'>;

/** Runs policies on the same requests. `makeSource` gives them anew for each; `onProgress` is called now and then. */
export async function studyCluster(
  policies: readonly PolicyName[],
  makeSource: () => PrefixSource,
  options: ClusterStudyOptions,
  onProgress: (policy: PolicyName, arrived: number) => void | Promise<void> = () => {},
): Promise<readonly ClusterRow[]> {
  const rows: ClusterRow[] = [];
  for (const policy of policies) {
    const run = new ClusterRun(makeSource(), { ...options, policy });
    do await onProgress(policy, run.arrived);
    while (run.advance(PROGRESS_REQUESTS));
    rows.push({ policy, ...run.figures });
  }
  return rows;
}

const PROGRESS_REQUESTS = 5000;
