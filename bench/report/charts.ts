import type { SuiteDocument, Measurement } from '../document.js';
import { type Estimate, medianEstimate } from '../statistics.js';
import type { KernelResult } from '../suites/kernels.js';
import { settingText } from '../table.js';

/** One number with its interval and what it was made from. */
export interface Point {
  readonly name: string;
  readonly estimate: Estimate;
  readonly samples: readonly number[];
}

/** A number by another, on a logarithmic axis; a line for each other setting. */
export interface LineChart {
  readonly kind: 'lines';
  readonly title: string;
  readonly unit: string;
  readonly xName: string;
  readonly lines: readonly { readonly name: string; readonly points: readonly (Point & { readonly x: number })[] }[];
}

export interface BarChart {
  readonly kind: 'bars';
  readonly title: string;
  readonly unit: string;
  readonly bars: readonly Point[];
  /** Where the axis must reach: 100 for shares. */
  readonly most?: number;
}

export type Chart = LineChart | BarChart;

/** More bars than this are cut into charts by their first setting. */
const MOST_BARS = 24;

/** The plots of a document: one a metric, or several where it has many settings. */
export function chartsOf(document: Pick<SuiteDocument, 'suite' | 'results' | 'measurements'>): Chart[] {
  if (document.suite === 'kernels') return kernelCharts((document.results ?? []) as readonly KernelResult[]);
  const measurements = document.measurements ?? [];
  const metrics = new Map<string, Measurement[]>();
  for (const measurement of measurements) {
    const key = `${measurement.metric}, ${measurement.unit}`;
    metrics.set(key, [...(metrics.get(key) ?? []), measurement]);
  }
  return [...metrics.values()].flatMap(metricCharts);
}

function metricCharts(measurements: readonly Measurement[]): Chart[] {
  const { metric, unit } = measurements[0]!;
  const told = distinguishing(measurements);
  const x = told.find((name) => measurements.every(({ setting }) => typeof setting[name] === 'number'));
  if (x !== undefined)
    return [
      lineChart(
        measurements,
        metric,
        unit,
        x,
        told.filter((name) => name !== x),
      ),
    ];
  const [first] = told;
  if (measurements.length <= MOST_BARS || first === undefined) return [barChart(measurements, metric, unit, told)];
  const groups = new Map<string | number, Measurement[]>();
  for (const measurement of measurements) {
    const value = measurement.setting[first]!;
    groups.set(value, [...(groups.get(value) ?? []), measurement]);
  }
  return [...groups].map(([value, own]) => barChart(own, `${metric}: ${value}`, unit, told.slice(1)));
}

/** Names of the settings that aren't the same everywhere. */
function distinguishing(measurements: readonly Measurement[]): string[] {
  const names = [...new Set(measurements.flatMap(({ setting }) => Object.keys(setting)))];
  return names.filter((name) => new Set(measurements.map(({ setting }) => setting[name])).size > 1);
}

const nameOf = ({ setting, metric }: Measurement, told: readonly string[]): string =>
  settingText(Object.fromEntries(told.filter((name) => name in setting).map((name) => [name, setting[name]!]))) ||
  metric;

const pointOf = (measurement: Measurement, told: readonly string[]): Point => ({
  name: nameOf(measurement, told),
  estimate: medianEstimate(measurement.samples),
  samples: measurement.samples,
});

const barChart = (
  measurements: readonly Measurement[],
  title: string,
  unit: string,
  told: readonly string[],
): BarChart => ({
  kind: 'bars',
  title,
  unit,
  bars: measurements.map((measurement) => pointOf(measurement, told)),
});

function lineChart(
  measurements: readonly Measurement[],
  title: string,
  unit: string,
  x: string,
  told: readonly string[],
): LineChart {
  const lines = new Map<string, (Point & { readonly x: number })[]>();
  for (const measurement of measurements) {
    const point = pointOf(measurement, told);
    const at = Number(measurement.setting[x]);
    lines.set(point.name, [...(lines.get(point.name) ?? []), { ...point, x: at }]);
  }
  return {
    kind: 'lines',
    title,
    unit,
    xName: x.replaceAll('_', ' '),
    lines: [...lines].map(([name, points]) => ({ name, points: points.toSorted((a, b) => a.x - b.x) })),
  };
}

/** How near each case comes to what the adapter can do: by memory or by arithmetic, whichever holds it up more. */
function kernelCharts(results: readonly KernelResult[]): Chart[] {
  const kernels = [...new Set(results.map(({ kernel }) => kernel))];
  return kernels.map((kernel) => ({
    kind: 'bars',
    title: kernel,
    unit: "% of the adapter's copy bandwidth or multiply-adds, whichever is nearer",
    most: 100,
    bars: results
      .filter((result) => result.kernel === kernel)
      .map(({ case: name, us, samples, copy_share: copy, fma_share: fma }) => {
        const shares = samples.map((sample) => (100 * Math.max(copy, fma) * us) / sample);
        const bound = copy >= fma ? 'memory' : 'arithmetic';
        return { name: `${name} (${bound})`, estimate: medianEstimate(shares), samples: shares };
      }),
  }));
}
