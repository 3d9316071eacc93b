import { escapeHtml } from '../../report/html.js';
/** A small line chart as inline SVG. Colours are classes, so that the page's style decides them, in light and in dark. */

export type Point = readonly [x: number, y: number];

export interface Mark {
  readonly kind: 'line' | 'band' | 'dots';
  /** Class of the mark: a colour of the page. */
  readonly style: string;
  /** A band goes along its upper edge and back along its lower one. */
  readonly points: readonly Point[];
  /** Of each dot. */
  readonly labels?: readonly string[];
}

export interface ChartOptions {
  readonly title: string;
  readonly width: number;
  readonly height: number;
  readonly x: { readonly label: string; readonly range: readonly [number, number] };
  readonly y: { readonly label: string; readonly range: readonly [number, number] };
  readonly marks: readonly Mark[];
}

const MARGIN = { left: 68, right: 14, top: 10, bottom: 40 };

export function chart(options: ChartOptions): string {
  const { title, width, height, x, y, marks } = options;
  const inner = { width: width - MARGIN.left - MARGIN.right, height: height - MARGIN.top - MARGIN.bottom };
  const place = ([px, py]: Point): Point => [
    MARGIN.left + ((px - x.range[0]) / (x.range[1] - x.range[0])) * inner.width,
    MARGIN.top + (1 - (py - y.range[0]) / (y.range[1] - y.range[0])) * inner.height,
  ];
  const bottom = MARGIN.top + inner.height;
  const parts: string[] = [];
  for (const tick of ticks(y.range, 4)) {
    const [, py] = place([x.range[0], tick]);
    parts.push(
      `<line class="grid" x1="${MARGIN.left}" y1="${fixed(py)}" x2="${MARGIN.left + inner.width}" y2="${fixed(py)}"/>`,
      `<text class="tick" x="${MARGIN.left - 7}" y="${fixed(py + 3.5)}" text-anchor="end">${number(tick)}</text>`,
    );
  }
  for (const tick of ticks(x.range, 6)) {
    const [px] = place([tick, y.range[0]]);
    parts.push(`<text class="tick" x="${fixed(px)}" y="${bottom + 15}" text-anchor="middle">${number(tick)}</text>`);
  }
  parts.push(
    `<line class="axis" x1="${MARGIN.left}" y1="${bottom}" x2="${MARGIN.left + inner.width}" y2="${bottom}"/>`,
    `<text class="label" x="${MARGIN.left + inner.width / 2}" y="${height - 6}" text-anchor="middle">${escapeHtml(x.label)}</text>`,
    `<text class="label" transform="translate(12 ${MARGIN.top + inner.height / 2}) rotate(-90)" text-anchor="middle">${escapeHtml(y.label)}</text>`,
    ...marks.map((mark) => draw(mark, place)),
  );
  return `<svg viewBox="0 0 ${width} ${height}" role="img" aria-label="${escapeHtml(title)}"><title>${escapeHtml(title)}</title>${parts.join('')}</svg>`;
}

function draw({ kind, style, points, labels = [] }: Mark, place: (point: Point) => Point): string {
  const placed = points.map(place);
  const path = placed.map(([px, py]) => `${fixed(px)},${fixed(py)}`).join(' ');
  if (kind === 'line') return `<polyline class="line ${style}" points="${path}"/>`;
  if (kind === 'band') return `<polygon class="band ${style}" points="${path}"/>`;
  const taken: Point[] = [];
  return placed
    .map(([px, py], index) => {
      const circle = `<circle class="dot ${style}" cx="${fixed(px)}" cy="${fixed(py)}" r="4"/>`;
      const text = labels[index];
      if (text === undefined) return circle;
      const [x, y] = freePlace([px + 7, py + 3.5], text.length * 6, taken);
      return `${circle}<text class="dot-label" x="${fixed(x)}" y="${fixed(y)}">${escapeHtml(text)}</text>`;
    })
    .join('');
}

const LABEL_HEIGHT = 12;

/** Where a label meets none of those before it: beside its dot, or a line or more below. */
function freePlace([x, y]: Point, width: number, taken: Point[]): Point {
  let free: Point = [x, y];
  const meets = ([tx, ty]: Point): boolean => Math.abs(tx - free[0]) < width && Math.abs(ty - free[1]) < LABEL_HEIGHT;
  while (taken.some(meets)) free = [x, free[1] + LABEL_HEIGHT];
  taken.push(free);
  return free;
}

/** Round numbers within a range, about so many. */
export function ticks([low, high]: readonly [number, number], about: number): number[] {
  const rough = (high - low) / about;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((size) => size >= rough * 0.999)!;
  const result: number[] = [];
  for (let tick = (Math.ceil(low / step - 1e-9) || 0) * step; tick <= high + step * 1e-9; tick += step)
    result.push(tick);
  return result;
}

const number = (value: number): string => Number(value.toPrecision(6)).toLocaleString('en-US');

const fixed = (value: number): string => String(Math.round(value * 10) / 10);
