import type { Region } from '../../../distributed/communicator.js';
import type { Buffer } from '../../../gpu/index.js';

/** Attention states that aren't merged yet: o, and (m, l), f32. */
export interface States {
  readonly o: Buffer;
  readonly ml: Buffer;
}

/**
 * Where lane states of some query heads lie in a buffer: [bundle][lanes][rows][bundleHeads], a bundle being heads that travel together.
 */
export interface StateLayout {
  /** The first state, counted in states. */
  readonly base: number;
  readonly bundles: number;
  readonly bundleHeads: number;
  /** There is room for. */
  readonly lanes: number;
  readonly rows: number;
}

export const stateCount = ({ bundles, bundleHeads, lanes, rows }: Omit<StateLayout, 'base'>): number =>
  bundles * bundleHeads * lanes * rows;

/** Bytes of `rows` rows from `firstRow` on, of the first `lanes` lanes of some bundles; `dim`: elements of o. */
export function stateRegions(
  { o, ml }: States,
  dim: number,
  layout: StateLayout,
  part: {
    readonly firstBundle: number;
    readonly bundles: number;
    readonly lanes: number;
    readonly firstRow: number;
    readonly rows: number;
  },
): Region[] {
  const { base, bundleHeads, lanes: room } = layout;
  const { firstBundle, bundles, lanes, firstRow, rows } = part;
  const run = (bundle: number, lane: number, count: number) => ({
    first: base + ((bundle * room + lane) * layout.rows + firstRow) * bundleHeads,
    count: count * bundleHeads,
  });
  const all = Array.from({ length: bundles }, (_, i) => firstBundle + i);
  const whole = rows === layout.rows;
  const runs =
    whole && lanes === room
      ? [run(firstBundle, 0, bundles * room * rows)]
      : whole
        ? all.map((bundle) => run(bundle, 0, lanes * rows))
        : all.flatMap((bundle) => Array.from({ length: lanes }, (_, lane) => run(bundle, lane, rows)));
  const of = (buffer: Buffer, width: number): Region[] =>
    runs.map(({ first, count }) => ({ buffer, offset: first * width * 4, size: count * width * 4 }));
  return [...of(o, dim), ...of(ml, 2)];
}
