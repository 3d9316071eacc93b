/** The q-quantile (0..1) of the samples by linear interpolation; NaN where there is none. */
export function quantile(samples: readonly number[], q: number): number {
  const sorted = [...samples].sort((a, b) => a - b);
  const position = (sorted.length - 1) * q;
  const at = (index: number): number => sorted[index] ?? Number.NaN;
  const low = Math.floor(position);
  return at(low) + (at(Math.ceil(position)) - at(low)) * (position - low);
}

export const median = (samples: readonly number[]): number => quantile(samples, 0.5);
