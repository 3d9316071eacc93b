import type { HistogramCounts } from '../index.js';

type Labels = Readonly<Record<string, string>>;
export type Sample = readonly [labels: Labels, value: number];

/** One metric in Prometheus's text format, version 0.0.4. */
export function metricText(
  name: string,
  type: 'counter' | 'gauge',
  help: string,
  samples: number | readonly Sample[],
): string {
  const list: readonly Sample[] = typeof samples === 'number' ? [[{}, samples]] : samples;
  return head(name, type, help) + list.map(([labels, value]) => `${name}${labelText(labels)} ${value}\n`).join('');
}

/** A histogram in the same format. */
export function histogramText(name: string, help: string, { bounds, counts, count, sum }: HistogramCounts): string {
  const buckets = bounds.map((bound, index) => `${name}_bucket{le="${bound}"} ${counts[index]}\n`).join('');
  return `${head(name, 'histogram', help)}${buckets}${name}_bucket{le="+Inf"} ${count}\n${name}_sum ${sum}\n${name}_count ${count}\n`;
}

const head = (name: string, type: string, help: string): string => `# HELP ${name} ${help}\n# TYPE ${name} ${type}\n`;

function labelText(labels: Labels): string {
  const pairs = Object.entries(labels).map(([key, value]) => `${key}="${value.replace(/[\\"]/g, '\\$&')}"`);
  return pairs.length === 0 ? '' : `{${pairs.join(',')}}`;
}
