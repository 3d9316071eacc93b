import { escapeHtml } from './html.js';
import { decimals } from '../table.js';
import type { BarChart, Chart, LineChart, Point } from './charts.js';

const WIDTH = 760;
const COLOURS = 6;

/** A chart as SVG; its colours are the page's custom properties. */
export const chartSvg = (chart: Chart): string => (chart.kind === 'bars' ? barsSvg(chart) : linesSvg(chart));

const told = ({ name, estimate: { value, low, high }, samples }: Point, unit: string): string =>
  `<title>${escapeHtml(`${name}: ${decimals(value)} ${unit} (95%: ${decimals(low)} to ${decimals(high)}; ${samples.length} samples)`)}</title>`;

/** Round numbers from 0 to at least the largest of all samples, about five of them. */
function ticks(samples: readonly number[]): number[] {
  const most = Math.max(0, ...samples) || 1;
  const rough = most / 5;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= rough)!;
  const count = Math.ceil(most / step - 1e-9);
  return Array.from({ length: count + 1 }, (_, i) => Number((i * step).toPrecision(12)));
}

function barsSvg({ title, unit, bars, most = 0 }: BarChart): string {
  const [left, right, top, row] = [300, 76, 8, 24];
  const marks = ticks([most, ...bars.flatMap(({ samples }) => samples)]);
  const x = (value: number): number => left + ((WIDTH - left - right) * value) / marks.at(-1)!;
  const bottom = top + bars.length * row;
  const height = bottom + 24;
  const at = (value: number): string => x(value).toFixed(1);
  const lines = bars.map((bar, index) => {
    const y = top + index * row + row / 2;
    const { value, low, high } = bar.estimate;
    return [
      `<g>${told(bar, unit)}`,
      `<text class="label" x="${left - 8}" y="${y + 4}" text-anchor="end">${escapeHtml(shortened(bar.name, 46))}</text>`,
      `<rect class="bar" x="${left}" y="${y - 7}" width="${Math.max(1, x(value) - left).toFixed(1)}" height="14" rx="2"/>`,
      ...bar.samples.map((sample) => `<circle class="sample" cx="${at(sample)}" cy="${y}" r="2"/>`),
      `<path class="whisker" d="M${at(low)} ${y - 4}v8M${at(high)} ${y - 4}v8M${at(low)} ${y}H${at(high)}"/>`,
      `<text class="value" x="${(x(Math.max(high, ...bar.samples)) + 6).toFixed(1)}" y="${y + 4}">${decimals(value)}</text></g>`,
    ].join('');
  });
  const grid = marks.map(
    (mark) =>
      `<path class="grid" d="M${at(mark)} ${top}V${bottom}"/><text class="tick" x="${at(mark)}" y="${bottom + 16}" text-anchor="middle">${mark}</text>`,
  );
  return svg(height, `${title}, ${unit}`, [...grid, ...lines]);
}

function linesSvg({ title, unit, xName, lines }: LineChart): string {
  const [left, right, top, bottom, height] = [64, 24, 12, 292, 332];
  const all = lines.flatMap(({ points }) => points);
  const marks = ticks(all.flatMap(({ samples }) => samples));
  const places = [...new Set(all.map(({ x }) => x))].toSorted((a, b) => a - b);
  const [first, last] = [Math.log2(places[0]!), Math.log2(places.at(-1)!)];
  const inner = [left + 32, WIDTH - right - 32] as const;
  const x = (value: number): number =>
    last === first
      ? (inner[0] + inner[1]) / 2
      : inner[0] + ((inner[1] - inner[0]) * (Math.log2(value) - first)) / (last - first);
  const y = (value: number): string => (bottom - ((bottom - top) * value) / marks.at(-1)!).toFixed(1);
  const grid = [
    ...marks.map(
      (mark) =>
        `<path class="grid" d="M${left} ${y(mark)}H${WIDTH - right}"/><text class="tick" x="${left - 8}" y="${Number(y(mark)) + 4}" text-anchor="end">${mark}</text>`,
    ),
    ...places.map(
      (place) =>
        `<text class="tick" x="${x(place).toFixed(1)}" y="${bottom + 18}" text-anchor="middle">${place}</text>`,
    ),
    `<text class="tick" x="${(left + WIDTH - right) / 2}" y="${height - 4}" text-anchor="middle">${escapeHtml(xName)}</text>`,
  ];
  const drawn = lines.map(({ name, points }, index) => {
    // Beside each other, so that no interval hides another.
    const aside = 7 * (index - (lines.length - 1) / 2);
    const placed = (value: number): string => (x(value) + aside).toFixed(1);
    const dots = points.map((point) => {
      const { value, low, high } = point.estimate;
      const at = placed(point.x);
      return [
        `<g>${told({ ...point, name: `${name}, ${xName} ${point.x}` }, unit)}`,
        ...point.samples.map((sample) => `<circle class="sample" cx="${at}" cy="${y(sample)}" r="2"/>`),
        `<path class="whisker" d="M${at} ${y(low)}V${y(high)}"/><circle class="dot" cx="${at}" cy="${y(value)}" r="4.5"/></g>`,
      ].join('');
    });
    const path = points
      .map((point, i) => `${i === 0 ? 'M' : 'L'}${placed(point.x)} ${y(point.estimate.value)}`)
      .join('');
    return `<g class="series${index % COLOURS}"><path class="line" d="${path}"/>${dots.join('')}</g>`;
  });
  return svg(height, `${title}, ${unit}`, [...grid, ...drawn]);
}

const svg = (height: number, label: string, parts: readonly string[]): string =>
  `<svg viewBox="0 0 ${WIDTH} ${height}" role="img" aria-label="${escapeHtml(label)}">${parts.join('')}</svg>`;

const shortened = (text: string, most: number): string => (text.length <= most ? text : `${text.slice(0, most - 1)}…`);

/** What the colours of a chart's lines mean; empty for one line or for bars. */
export function legendHtml(chart: Chart): string {
  if (chart.kind === 'bars' || chart.lines.length < 2) return '';
  const entries = chart.lines.map(({ name }, index) => `<li class="series${index % COLOURS}">${escapeHtml(name)}</li>`);
  return `<ul class="legend">${entries.join('')}</ul>`;
}
