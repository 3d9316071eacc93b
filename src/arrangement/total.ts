import { sum } from '../base/lists.js';
import type { Steps } from './solvers/assign.js';
import type { Solver } from './solvers/solvers.js';
import { busiestTotal, rankCopies, rankLoads, type Task, TIE } from './task.js';
import type { LayerPlacement, Placement } from './types.js';

/** Up to so many heads of all layers together, modes that search to the end do so for all layers at once. */
const MOST_TOGETHER = 16;

/**
 * Balances only what ranks do over all layers together. Layer after layer, those with the heaviest head first, is arranged on
 * ranks that have already the loads of those before.
 *
 * @param tasks one per layer, with room for a rank's whole memory
 * @param together whether the solver finds the best of a few heads, so that it is worth its time to give it all layers at once
 */
export function balanceTotal(tasks: readonly Task[], solve: Solver, together: boolean, steps: Steps): Placement {
  const loads = tasks.map((task) => task.loads);
  const ranks = tasks[0]!.room.length;
  const placement = layerByLayer(tasks, solve, steps);
  if (!together || sum(loads.map((layer) => layer.length)) > MOST_TOGETHER) return placement;
  const atOnce = split(solve(allLayers(tasks), steps).heads, loads[0]!.length);
  const better = busiestTotal(loads, atOnce, ranks) < busiestTotal(loads, placement, ranks) * (1 - TIE);
  return better ? atOnce : placement;
}

function layerByLayer(tasks: readonly Task[], solve: Solver, steps: Steps): Placement {
  const heaviest = tasks.map(({ loads }) => Math.max(...loads));
  const order = [...tasks.keys()].sort((a, b) => heaviest[b]! - heaviest[a]! || a - b);
  const layers: LayerPlacement[] = [];
  let { base, room } = tasks[0]!;
  // Copies that memory has room for once every head lies somewhere.
  let spare = sum(room) - sum(tasks.map(({ loads }) => loads.length));
  for (const [done, layer] of order.entries()) {
    const task = tasks[layer]!;
    const open = tasks.length - done;
    // Memory is left for the layers to come, so that the last ones aren't forced onto the ranks that still have some.
    const fair = room.map((n) => Math.min(n, Math.ceil(n / open) + 1));
    const budgets = [Math.min(task.budgets[0]!, Math.ceil(spare / open))];
    const own = { left: Math.floor(steps.left / open) };
    steps.left -= own.left;
    const { heads } = solve({ ...task, base, room: fair, budgets }, own);
    steps.left += own.left;
    layers[layer] = heads;
    const loads = rankLoads(task.loads, heads, room.length);
    const copies = rankCopies(heads, room.length);
    base = base.map((load, rank) => load + loads[rank]!);
    room = room.map((n, rank) => n - copies[rank]!);
    spare -= sum(copies) - heads.length;
  }
  return layers;
}

/** The heads of all layers on the same ranks at once; each layer keeps its budget of copies. */
function allLayers(tasks: readonly Task[]): Task {
  return {
    ...tasks[0]!,
    loads: tasks.flatMap(({ loads }) => loads),
    budgetOf: tasks.flatMap(({ loads }, layer) => loads.map(() => layer)),
    budgets: tasks.flatMap(({ budgets }) => budgets),
  };
}

const split = (heads: LayerPlacement, perLayer: number): Placement =>
  Array.from({ length: heads.length / perLayer }, (_, layer) => heads.slice(layer * perLayer, (layer + 1) * perLayer));
