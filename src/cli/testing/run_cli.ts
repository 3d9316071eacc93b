/**
 * Room: the command line in tests: as a process of its own (here), in this process (run_here.ts), or as a server that
 * is stopped at the end.
 */

import { spawn } from 'node:child_process';
import { binFor } from './bin.js';

export interface Finished {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

export interface RunOptions {
  readonly stdin?: string;
  /** Ctrl-C as soon as stdout or stderr holds this text. */
  readonly interruptAt?: string;
  readonly env?: Readonly<Record<string, string>>;
}

/** Runs the command line as a user would. */
export function runCli(args: readonly string[], { stdin, interruptAt, env }: RunOptions = {}): Promise<Finished> {
  // Playwright forces colours on its workers.
  const { FORCE_COLOR: _, ...plain } = process.env;
  const child = spawn(process.execPath, [binFor(args[0]), ...args], { env: { ...plain, ...env } });
  let stdout = '';
  let stderr = '';
  let interrupted = false;
  const watch = (): void => {
    if (interrupted || interruptAt === undefined || !(stdout + stderr).includes(interruptAt)) return;
    interrupted = true; // once: a second Ctrl-C doesn't wait for a clean end
    child.kill('SIGINT');
  };
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    stdout += text;
    watch();
  });
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    stderr += text;
    watch();
  });
  child.stdin.end(stdin ?? '');
  return new Promise((resolve) =>
    child.on('close', (code) => resolve({ code, stdout, stderr: args[0] === 'serve' ? withoutDawn(stderr) : stderr })),
  );
}

/** Servers are one process, without the filter of the other commands (bin/quiet.js). */
const withoutDawn = (stderr: string): string => stderr.replace(/^Warning: .*artificially reduced.*\n/gm, '');
