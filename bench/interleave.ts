import { throwIfAborted } from '../src/base/errors.js';
import type { SuiteHooks } from './document.js';

/** Something that is run again and again. `run` checks its own result and throws where it is wrong. */
export interface Contender<Sample> {
  readonly name: string;
  run(): Promise<Sample>;
}

/**
 * Samples of each contender, `runs` of them, in turns: A B C, B C A, ..., so that a clock change or a busy neighbour falls on all alike,
 * and none always follows the same other. A run before them warms each up and isn't counted.
 */
export async function interleave<Sample>(
  contenders: readonly Contender<Sample>[],
  runs: number,
  { signal, onProgress }: SuiteHooks,
): Promise<Sample[][]> {
  const samples = contenders.map((): Sample[] => []);
  const once = async (index: number, what: string): Promise<Sample> => {
    throwIfAborted(signal, 'bench');
    onProgress(`${contenders[index]!.name}: ${what}`);
    return contenders[index]!.run();
  };
  for (const index of contenders.keys()) await once(index, 'warming up');
  for (let run = 0; run < runs; run++) {
    for (let turn = 0; turn < contenders.length; turn++) {
      const index = (run + turn) % contenders.length;
      samples[index]!.push(await once(index, `run ${run + 1} of ${runs}`));
    }
  }
  return samples;
}
