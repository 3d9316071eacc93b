import {
  arrange,
  type Arrangement,
  type ArrangementProblem,
  busiestTotal,
  copyLimit,
  type LayerPlacement,
  makespan,
  type Placement,
  type Profile,
  rankLoads,
  utilisation,
} from '../arrangement/index.js';
import { type CopySharing, LANE_ENTRIES, lanesThatPay } from '../placement/index.js';
import { alignedTable } from '../base/aligned_table.js';

/** An arrangement for people: before and after, how near it is to the best, and who holds what in each layer. */
export function describeArrangement(
  { model, kv_budget: budget }: Profile,
  problem: ArrangementProblem,
  found: Arrangement,
  seconds: number,
  sharing: CopySharing | undefined,
): string {
  const { loads, ranks } = problem;
  const { memory: _memory, ...unlimited } = problem;
  const before = arrange({ ...unlimited, mode: 'static' }).placement;
  const row = (name: string, placement: Placement): string[] => {
    const [slowest, total] = [makespan(loads, placement, ranks), busiestTotal(loads, placement, ranks)];
    const shown = [slowest, utilisation(loads, ranks, slowest), total, utilisation(loads, ranks, total)];
    return [name, ...shown.map((value, i) => (i % 2 === 0 ? amount(value) : value.toFixed(3)))];
  };
  const summary = alignedTable(
    [
      ['', 'makespan', 'utilisation', 'busiest in total', 'utilisation in total'],
      row('static', before),
      ...(found.mode === 'static' ? [] : [row(found.mode, found.placement)]),
      ['lower bound', amount(found.lowerBound)],
    ],
    1,
  );
  const proof = found.optimal
    ? 'no makespan is lower within these limits'
    : `at most ${(found.gap * 100).toPrecision(2)}% above the lowest makespan within these limits`;
  return [
    `${model}, KV budget ${budget}: ${loads.length} layers of ${loads[0]!.length} kv heads on ${ranks} ranks`,
    `mode ${found.mode}, objective ${found.objective}, ${limitsText(problem)}`,
    '',
    summary,
    `${proof}; copies ${found.copies}; ${seconds.toFixed(2)} s`,
    ...copiesText(problem, found, sharing),
    '',
    layerTable(problem, before, found.placement),
  ].join('\n');
}

/** What runs of the copies, where requests run side by side and where they don't. */
function copiesText(
  { loads, ranks }: ArrangementProblem,
  found: Arrangement,
  sharing: CopySharing | undefined,
): string[] {
  if (found.copies === 0 || sharing !== undefined) return [];
  const { copied, shared, pays } = lanesThatPay(found.placement, ranks, loads);
  const alone = pays
    ? `with these loads it has the chunks of long heads shared out in ${shared} of the ${copied} layers with copies`
    : `with these loads each head is whole on one of its ranks (chunks of it, where it keeps ${LANE_ENTRIES} entries or more)`;
  return [`copies share out requests that run side by side. One at a time: ${alone}, unless --sharing says otherwise`];
}

function limitsText(problem: ArrangementProblem): string {
  const { memory, batch } = problem;
  const copies = copyLimit(problem);
  return [
    copies === Infinity ? 'copies as memory allows' : `at most ${copies} ${copies === 1 ? 'copy' : 'copies'} per layer`,
    memory === undefined ? 'no limit of memory' : `${memory} heads per rank`,
    batch === undefined ? 'real shares' : `shares of 1/${batch}`,
  ].join(', ');
}

/** Of each layer the utilisation before and after, and each rank's heads: "3" a whole head, "3:0.25" a quarter of its requests. */
function layerTable({ loads, ranks }: ArrangementProblem, before: Placement, after: Placement): string {
  const names = Array.from({ length: ranks }, (_, rank) => `rank ${rank}`);
  const used = (layer: number, heads: LayerPlacement): string =>
    utilisation([loads[layer]!], ranks, Math.max(...rankLoads(loads[layer]!, heads, ranks))).toFixed(3);
  const rows = after.map((heads, layer) => {
    const lists = names.map((): string[] => []);
    for (const [head, copies] of heads.entries()) {
      for (const { rank, share } of copies) {
        lists[rank]!.push(copies.length === 1 ? `${head}` : `${head}:${Number(share.toFixed(3))}`);
      }
    }
    return [`${layer}`, used(layer, before[layer]!), used(layer, heads), ...lists.map((list) => list.join(' ') || '-')];
  });
  return alignedTable([['layer', 'static', 'arranged', ...names], ...rows], 3 + ranks);
}

const amount = (value: number): string => (value >= 100 ? value.toFixed(1) : value.toPrecision(4));
