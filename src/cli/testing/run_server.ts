import { type ChildProcess, spawn } from 'node:child_process';
import { BIN } from './bin.js';

/** `splitkv serve` as a process of its own. */
export class ServerProcess {
  stdout = '';
  stderr = '';
  readonly #child: ChildProcess;
  readonly #ended: Promise<number | null>;

  constructor(args: readonly string[], env: Readonly<Record<string, string>> = {}) {
    this.#child = spawn(process.execPath, [BIN, 'serve', ...args], { env: { ...process.env, ...env } });
    this.#child.stdout!.setEncoding('utf8').on('data', (text: string) => (this.stdout += text));
    this.#child.stderr!.setEncoding('utf8').on('data', (text: string) => (this.stderr += text));
    this.#ended = new Promise((resolve) => this.#child.once('close', resolve));
  }

  /** The line that it prints when it is ready. @throws with what it said, when it ends instead */
  async ready(): Promise<string> {
    while (!this.stdout.includes('\n')) {
      const code = await Promise.race([this.#ended, new Promise<undefined>((resolve) => setTimeout(resolve, 20))]);
      if (code !== undefined) throw new Error(`serve ended with ${code}: ${this.stderr}`);
    }
    return this.stdout.slice(0, this.stdout.indexOf('\n'));
  }

  /** Its exit code. */
  stop(signal: 'SIGTERM' | 'SIGINT' | 'SIGKILL'): Promise<number | null> {
    this.#child.kill(signal);
    return this.#ended;
  }
}
