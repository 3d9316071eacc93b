import type { HistogramCounts } from '../index.js';

type Labels = Readonly<Record<string, string>>;
export type Sample = readonly [labels: Labels, value: number];

/** One metric in Prometheus's text format, version 0.0.4. */
const metric =
  (type: 'counter' | 'gauge') =>
  (name: string, help: string, samples: number | readonly Sample[]): string => {
    const list: readonly Sample[] = typeof samples === 'number' ? [[{}, samples]] : samples;
    return head(name, type, help) + list.map(([labels, value]) => `${name}${labelText(labels)} ${value}\n`).join('');
  };
export const counter = metric('counter');
export const gauge = metric('gauge');

/** A histogram in the same format, or several with labels. */
export function histogramText(
  name: string,
  help: string,
  histograms: HistogramCounts | readonly (readonly [labels: Labels, counts: HistogramCounts])[],
): string {
  const list = 'bounds' in histograms ? [[{}, histograms] as const] : histograms;
  const texts = list.map(([labels, { bounds, counts, count, sum }]) => {
    const bucket = (le: string, value: number): string => `${name}_bucket${labelText({ ...labels, le })} ${value}\n`;
    const buckets = bounds.map((bound, index) => bucket(String(bound), counts[index]!)).join('');
    const own = labelText(labels);
    return `${buckets}${bucket('+Inf', count)}${name}_sum${own} ${sum}\n${name}_count${own} ${count}\n`;
  });
  return head(name, 'histogram', help) + texts.join('');
}

const head = (name: string, type: string, help: string): string => `# HELP ${name} ${help}\n# TYPE ${name} ${type}\n`;

function labelText(labels: Labels): string {
  const pairs = Object.entries(labels).map(
    ([key, value]) => `${key}="${value.replace(/[\\"]/g, '\\$&').replaceAll('\n', '\\n')}"`,
  );
  return pairs.length === 0 ? '' : `{${pairs.join(',')}}`;
}
