import { expect } from 'vitest';
import { runOn } from '../../../bench/cli/main.js';
import type { Finished } from './run_cli.js';

/** Runs the command line in this process: for what ends before a device is opened, without the time that a process takes to start. */
export async function runHere(args: readonly string[]): Promise<Finished> {
  let stdout = '';
  let stderr = '';
  const code = await runOn(args, {
    signal: new AbortController().signal,
    write: (text) => {
      stdout += text;
      return Promise.resolve();
    },
    note: (line) => (stderr += `${line}\n`),
    progress: () => {},
  });
  return { code, stdout, stderr };
}

/** What `logits` says of the largest logits of one prompt. */
export async function logitsHere(...args: readonly string[]): Promise<{ positions: number[]; sha256: string }> {
  const { code, stdout, stderr } = await runHere(['logits', ...args, '--output', 'argmax']);
  expect(code, stderr).toBe(0);
  const { results } = JSON.parse(stdout) as { results: { positions: number[]; sha256: string }[] };
  return results[0]!;
}
