import type { ClusterRow, ClusterStudyOptions } from '../../cluster/cluster_study.js';

/** The table of a study, and what it was of. */
export function describeCluster(
  rows: readonly ClusterRow[],
  { replicas, gateways, requests, rate }: ClusterStudyOptions & Readonly<Record<string, unknown>>,
): string {
  const lines = [
    `${whole(replicas)} replicas, ${whole(gateways)} gateways, ${whole(requests)} requests, ${(rate as number).toPrecision(3)} a second`,
    '',
    row('', 'hit rate', 'balance', 'TTFT ms', 'p50', 'p99', 'tokens/s', 'busy', '429'),
    ...rows.map((each) =>
      row(
        each.policy,
        percent(each.hitRate),
        percent(each.balance),
        milliseconds(each.ttft.meanSeconds),
        milliseconds(each.ttft.p50Seconds),
        milliseconds(each.ttft.p99Seconds),
        whole(each.outputTokensPerSecond),
        percent(each.busy),
        percent(each.refused),
      ),
    ),
    '',
    'A simulation: nothing here is measured, and how fast a replica is was given. Without the first tenth of the requests.',
    `hit rate: prompt tokens that were cached; one cache without end would have ${percent(rows[0]!.mostHitRate)}. balance: mean of average`,
    'over most requests in a replica. busy: share of time in which replicas computed. 429: requests refused.',
  ];
  return `${lines.join('\n')}\n`;
}

const row = (name: string, ...values: readonly string[]): string =>
  name.padEnd(14) + values.map((value) => value.padStart(10)).join('');
const whole = (value: number): string => Math.round(value).toLocaleString('en-US');
const milliseconds = (seconds: number): string => whole(seconds * 1000);
const percent = (value: number): string => `${(value * 100).toFixed(1)}%`;
