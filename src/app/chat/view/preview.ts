import { sum } from '../../../base/lists.js';
import { formatBytes, grouped } from '../../../base/math.js';
import type { LoadOptions, ModelInfo, PlanReport } from '../../../index.js';
import { type Remedy, smallerRemedy } from '../explain.js';
import { SAY, type Say } from '../strings.js';

export interface Preview {
  readonly facts: readonly (readonly [term: string, text: string])[];
  /** Why it won't run here; undefined where it will, as far as can be told. */
  readonly problem: string | undefined;
  /** What the button says; undefined where starting is sure to fail. */
  readonly start: string | undefined;
  /** Where it won't run as asked: what was checked to run. */
  readonly remedies: readonly Remedy[];
}

/**
 * A planner's report for people.
 * @param load what it was asked about
 * @param smaller options with which it was checked to fit
 */
export function previewOf(
  report: PlanReport,
  say: Say = SAY,
  load: LoadOptions = {},
  smaller: readonly LoadOptions[] = [],
): Preview {
  const { download, pick, misfit, why, machine } = report;
  const left = download ? Math.max(0, download.bytes - download.storedBytes) : undefined;
  const facts: (readonly [string, string])[] = [];
  if (download) {
    facts.push([say('fact_download'), downloadText(download.bytes, download.storedBytes, download.complete, say)]);
  }
  if (pick) {
    const memory = sum(pick.memory.map(({ totalBytes }) => totalBytes));
    const rate = pick.tokensPerSecond.toFixed(pick.tokensPerSecond < 10 ? 1 : 0);
    const adapters = [...new Set(machine.ranks.map(({ name }) => name))].join(' + ');
    facts.push(
      [say('fact_memory'), say(misfit === undefined ? 'fits' : 'fits_not', { bytes: formatBytes(memory) })],
      [say('fact_expected'), say('expected', { rate, adapters })],
      [say('fact_plan'), planText(pick.policy, pick.worldSize, say)],
    );
  }
  const lack = pick ? undefined : leastLack(report);
  if (lack) facts.push([say('fact_memory'), say('lacks', lack)]);
  const tokens = grouped(report.contextLength);
  facts.push([say('fact_weights'), say('weights_and_context', { weights: report.weights, tokens })]);
  const start =
    left === undefined || left === 0 || download?.complete
      ? say('start')
      : say('start_download', { bytes: formatBytes(left) });
  const problem = pick ? misfit : why;
  return {
    facts,
    problem,
    start: problem === undefined ? start : pick && say('anyway', { start }),
    remedies: smaller.map((options) => smallerRemedy(options, load, say)),
  };
}

/** Of a model that a cluster's ranks run: what it takes is seen there. */
export function clusterPreview({ ranks = 1, plan = 'auto', cluster }: LoadOptions, say: Say): Preview {
  const names = typeof ranks === 'number' ? say('ranks_any', { ranks }) : ranks.join(', ');
  const where = say('ranks_of', { ranks: names, cluster: cluster ? clusterText(cluster) : '' });
  const facts = [
    [say('fact_adapter'), where],
    [say('fact_plan'), typeof plan === 'string' ? plan : plan.policy],
  ] as const;
  return { facts, problem: undefined, start: say('start'), remedies: [] };
}

export function clusterText({ name = 'main', servers }: NonNullable<LoadOptions['cluster']>): string {
  const hosts = [servers ?? []].flat().map((server) => (URL.canParse(server) ? new URL(server).host : server));
  return `${name} (${hosts.join(', ')})`;
}

/** The folder or file that a URL ends with. @throws URIError where it is no text */
export const lastPart = ({ pathname, host }: URL): string =>
  decodeURIComponent(pathname.split('/').filter(Boolean).at(-1) ?? host);

/** Adapters, each with the names of the cluster's ranks on it. */
export function ranksText(ranks: ModelInfo['ranks']): string {
  const adapters = [...new Set(ranks.map(({ adapter }) => adapter))];
  return adapters
    .map((adapter) => {
      const names = ranks.flatMap((rank) => (rank.adapter === adapter && rank.name !== undefined ? [rank.name] : []));
      return names.length === 0 ? adapter : `${names.join(', ')}: ${adapter}`;
    })
    .join(' + ');
}

/** What the plan that lacks least needs on its tightest rank, and how much of it there isn't. */
function leastLack({ candidates, machine }: PlanReport): Record<'bytes' | 'missing', string> | undefined {
  const lacks = candidates.flatMap((candidate) => {
    if (!candidate.plan) return [];
    const ranks = candidate.memory.map(({ rank, totalBytes }) => {
      const budget = machine.ranks[rank]?.budgetBytes ?? Infinity;
      return { bytes: totalBytes, missing: totalBytes - budget };
    });
    return ranks.toSorted((a, b) => b.missing - a.missing).slice(0, 1);
  });
  const least = lacks.toSorted((a, b) => a.missing - b.missing)[0];
  if (!least || least.missing <= 0) return undefined;
  return { bytes: formatBytes(least.bytes), missing: formatBytes(least.missing) };
}

function downloadText(bytes: number, storedBytes: number, complete: boolean, say: Say): string {
  if (complete) return say('download_none', { bytes: formatBytes(bytes) });
  if (storedBytes === 0) return formatBytes(bytes);
  const [rest, stored] = [formatBytes(bytes - storedBytes), formatBytes(storedBytes)];
  return say('download_rest', { rest, stored, bytes: formatBytes(bytes) });
}

export const planText = (policy: string, ranks: number, say: Say): string =>
  ranks === 1 ? say('fact_plan_one') : say('fact_plan_ranks', { policy, ranks });

/** "12 MiB of 300 MiB, 5.2 MiB/s, about 55 s left"; without a speed that isn't known */
export function progressText(
  loadedBytes: number,
  totalBytes: number,
  bytesPerSecond: number | undefined,
  say: Say = SAY,
): string {
  const parts = [say('progress', { loaded: formatBytes(loadedBytes), total: formatBytes(totalBytes) })];
  if (bytesPerSecond !== undefined) {
    parts.push(say('progress_speed', { speed: formatBytes(Math.round(bytesPerSecond)) }));
    const time = duration((totalBytes - loadedBytes) / bytesPerSecond, say);
    if (loadedBytes < totalBytes) parts.push(say('progress_left', { time }));
  }
  return parts.join(', ');
}

/** "8 s", "3 min", "2 h" */
export function duration(seconds: number, say: Say = SAY): string {
  if (seconds < 90) return say('seconds', { n: Math.max(1, Math.round(seconds)) });
  if (seconds < 90 * 60) return say('minutes', { n: Math.round(seconds / 60) });
  return say('hours', { n: Math.round(seconds / 3600) });
}
