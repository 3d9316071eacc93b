import { formatBytes, grouped } from '../../base/math.js';
import type { PlanReport } from '../../index.js';

/** What is told before a download begins. */
export interface Preview {
  readonly facts: readonly (readonly [term: string, text: string])[];
  /** Why it won't run here; undefined where it will, as far as can be told. */
  readonly problem: string | undefined;
  /** What the button says. */
  readonly start: string;
}

/** A planner's report for people. */
export function previewOf(report: PlanReport): Preview {
  const { download, pick, misfit, why, machine } = report;
  const left = download ? Math.max(0, download.bytes - download.storedBytes) : undefined;
  const facts: (readonly [string, string])[] = [];
  if (download) facts.push(['Download', downloadText(download.bytes, download.storedBytes, download.complete)]);
  if (pick) {
    const memory = pick.memory.reduce((sum, { totalBytes }) => sum + totalBytes, 0);
    facts.push(
      ['GPU memory', `${formatBytes(memory)}${misfit === undefined ? ', which fits' : ', which does not fit'}`],
      ['Expected speed', `${rate(pick.tokensPerSecond)} tokens/s on ${adapterNames(machine.ranks)}`],
      ['Plan', planText(pick.policy, pick.worldSize)],
    );
  }
  facts.push(['Weights', `${report.weights}, context of ${grouped(report.contextLength)} tokens`]);
  return {
    facts,
    problem: pick ? misfit : why,
    start: left === undefined || left === 0 || download?.complete ? 'Start' : `Download ${formatBytes(left)} and start`,
  };
}

function downloadText(bytes: number, storedBytes: number, complete: boolean): string {
  if (complete) return `none: ${formatBytes(bytes)} are kept in this browser`;
  if (storedBytes === 0) return formatBytes(bytes);
  return `${formatBytes(bytes - storedBytes)}: ${formatBytes(storedBytes)} of ${formatBytes(bytes)} are kept from before`;
}

const adapterNames = (ranks: readonly { readonly name: string }[]): string =>
  [...new Set(ranks.map(({ name }) => name))].join(' and ');

const planText = (policy: string, worldSize: number): string =>
  worldSize === 1 ? 'one GPU does it all' : `${policy} on ${worldSize} ranks`;

const rate = (tokensPerSecond: number): string => tokensPerSecond.toFixed(tokensPerSecond < 10 ? 1 : 0);
