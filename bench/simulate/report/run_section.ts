import type { LoggedIteration } from '../simulate.js';
import { type Bin, binned } from './bins.js';
import { chart, type Point } from './chart.js';

const BINS = 360;
const ZOOM = 240;
const SIZE = { width: 540, height: 210 };

/** Ranges that the charts of all runs share, so that they can be compared. */
export interface Scale {
  readonly iterations: number;
  readonly tokens: number;
  readonly zoomTokens: number;
}

export interface RunCharts {
  readonly bins: readonly Bin[];
  readonly zoomStart: number;
  readonly zoom: readonly LoggedIteration[];
}

/** Bins of a run, and a few of its iterations one by one, from the middle of those that still have contexts. */
export function runCharts(log: readonly LoggedIteration[]): RunCharts {
  const lastContext = log.findLastIndex(({ contextTokens }) => contextTokens > 0);
  const zoomStart = Math.max(0, Math.floor((lastContext - ZOOM) / 2));
  return { bins: binned(log, BINS), zoomStart, zoom: log.slice(zoomStart, zoomStart + ZOOM) };
}

export const scaleOf = (runs: readonly RunCharts[]): Scale => ({
  iterations: Math.max(...runs.map(({ bins }) => 2 * bins.at(-1)!.iteration - (bins.at(-2)?.iteration ?? 0))),
  tokens: Math.max(...runs.flatMap(({ bins }) => bins.map(({ most }) => most))) * 1.03,
  zoomTokens: Math.max(...runs.flatMap(({ zoom }) => zoom.map(({ tokens }) => Math.max(...tokens)))) * 1.03,
});

/** The charts of one run. */
export function runSection(title: string, { bins, zoomStart, zoom }: RunCharts, scale: Scale): string {
  const along = (of: (bin: Bin) => number): Point[] => bins.map((bin) => [bin.iteration, of(bin)]);
  const band = (low: (bin: Bin) => number, high: (bin: Bin) => number): Point[] => [
    ...along(high),
    ...along(low).toReversed(),
  ];
  const iterations = { label: 'iteration', range: [0, scale.iterations] as const };
  const tokens = chart({
    ...SIZE,
    title: `${title}: tokens of a rank over iterations`,
    x: iterations,
    y: { label: 'tokens of a rank', range: [0, scale.tokens] },
    marks: [
      {
        kind: 'band',
        style: 'blue',
        points: band(
          (bin) => bin.least,
          (bin) => bin.most,
        ),
      },
      { kind: 'line', style: 'blue', points: along((bin) => bin.average) },
    ],
  });
  const balance = chart({
    ...SIZE,
    title: `${title}: balance ratio over iterations`,
    x: iterations,
    y: { label: 'balance ratio', range: [0, 1] },
    marks: [
      {
        kind: 'band',
        style: 'orange',
        points: band(
          (bin) => bin.balanceLow,
          (bin) => bin.balanceHigh,
        ),
      },
      { kind: 'line', style: 'orange', points: along((bin) => bin.balance) },
    ],
  });
  const ranks = zoom[0]?.tokens.length ?? 0;
  const close = chart({
    width: 1100,
    height: 210,
    title: `${title}: tokens of each rank, iteration by iteration`,
    x: { label: 'iteration', range: [zoomStart, zoomStart + Math.max(1, zoom.length - 1)] },
    y: { label: 'tokens', range: [0, scale.zoomTokens] },
    marks: Array.from({ length: ranks }, (_, rank) => ({
      kind: 'line' as const,
      style: 'blue thin',
      points: zoom.map(({ tokens: each }, index): Point => [zoomStart + index, each[rank]!]),
    })),
  });
  return `<h3>${title}</h3><div class="pair">${tokens}${balance}</div>${close}`;
}
