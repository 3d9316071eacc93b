/** Something a layer may be given: so many copies for that cost. */
export interface Choice {
  readonly copies: number;
  readonly cost: number;
}

/**
 * One choice for each layer, at most `copies` copies together, for the least total cost (a knapsack, exactly).
 *
 * @param choices [layer][choice]; each layer has one without copies
 * @returns the index of each layer's choice, of equal costs with fewer copies; and the cost
 */
export function chooseCopies(
  choices: readonly (readonly Choice[])[],
  copies: number,
): { readonly chosen: number[]; readonly cost: number } {
  const useful = choices.reduce((total, list) => total + Math.max(...list.map((choice) => choice.copies)), 0);
  const most = Math.min(copies, useful);
  let least = new Float64Array(most + 1); // by copies at most used
  const taken = choices.map(() => new Int32Array(most + 1));
  for (const [layer, list] of choices.entries()) {
    const next = new Float64Array(most + 1).fill(Infinity);
    for (let used = 0; used <= most; used++) {
      for (const [i, choice] of list.entries()) {
        if (choice.copies > used) continue;
        const cost = least[used - choice.copies]! + choice.cost;
        if (cost < next[used]!) [next[used], taken[layer]![used]] = [cost, i];
      }
    }
    least = next;
  }
  const chosen: number[] = [];
  let used = most;
  for (let layer = choices.length - 1; layer >= 0; layer--) {
    const i = taken[layer]![used]!;
    chosen.unshift(i);
    used -= choices[layer]![i]!.copies;
  }
  return { chosen, cost: least[most]! };
}
