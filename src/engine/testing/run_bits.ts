import { openRunner, type OpenRunnerOptions } from './open_runner.js';

export const somePrompt = (length: number, seed = 0): number[] =>
  Array.from({ length }, (_, i) => (i * 37 + 101 + seed * 29 + ((i * i) % 53)) % 320);

const bytes = (row: Float32Array): Buffer => Buffer.from(row.slice().buffer);

/** Logits of every position of a prompt as long as the longest, then of 3 generated rows after a prompt of each length. */
export async function runAlone(lengths: readonly number[], options: OpenRunnerOptions): Promise<Buffer[]> {
  const longest = Math.max(...lengths);
  const { runner, group } = await openRunner({ contextLength: longest + 8, prefillChunk: 512, ...options });
  try {
    const rows: Buffer[] = [];
    await runner.logits(somePrompt(longest), true, (_position, row) => rows.push(bytes(row)));
    for (const length of lengths) {
      await runner.prefill(somePrompt(length), 8, { seed: 0 });
      for (let step = 0; step < 3; step++) {
        await (step === 0 ? runner.sampleFirst() : runner.step());
        rows.push(bytes(await runner.slotLogits(0)));
      }
      await runner.release();
    }
    return rows;
  } finally {
    group.dispose();
  }
}

/**
 * Sequences that come and go in one batch: each is prefilled while those before it decode, and the oldest ends whenever all slots
 * are taken. Logits of every active row after every step.
 */
export async function runBatched(
  lengths: readonly number[],
  slots: number,
  options: OpenRunnerOptions,
): Promise<Buffer[]> {
  const longest = Math.max(...lengths);
  const { runner, group } = await openRunner({ contextLength: longest + 32, prefillChunk: 512, slots, ...options });
  try {
    const rows: Buffer[] = [];
    const active: number[] = [];
    for (const [index, length] of lengths.entries()) {
      if (active.length === slots) await runner.release(active.shift()!);
      const slot = index % slots;
      await runner.prefill(somePrompt(length, index), 24, { seed: 0 }, undefined, slot);
      active.push(slot);
      for (let step = 0; step < 2; step++) {
        await runner.step();
        for (const row of active) rows.push(bytes(await runner.slotLogits(row)));
      }
    }
    return rows;
  } finally {
    group.dispose();
  }
}

/** Index of the first row that differs; -1 where none does. */
export const firstDifference = (a: readonly Buffer[], b: readonly Buffer[]): number =>
  a.length === b.length ? a.findIndex((row, index) => !row.equals(b[index]!)) : Math.min(a.length, b.length);
