import { type ChildProcess, spawn } from 'node:child_process';
import type { ReplicaArguments } from './stand_in_replica.js';

/** A stand-in replica (stand_in_replica.ts) as a process of its own. */
export class ReplicaProcess {
  said = '';
  readonly #child: ChildProcess;
  readonly #ended: Promise<number | null>;

  constructor(readonly given: ReplicaArguments) {
    const args = ['--import', './scripts/run_typescript.mjs', 'src/server/testing/stand_in_replica.ts'];
    this.#child = spawn(process.execPath, [...args, JSON.stringify(given)], { stdio: ['ignore', 'pipe', 'pipe'] });
    for (const stream of [this.#child.stdout!, this.#child.stderr!]) {
      stream.setEncoding('utf8').on('data', (text: string) => (this.said += text));
    }
    this.#ended = new Promise((resolve) => this.#child.once('close', resolve));
  }

  /** @throws with what it said, when it ends instead */
  async ready(): Promise<void> {
    while (!this.said.includes('ready\n')) {
      const code = await Promise.race([this.#ended, new Promise<undefined>((done) => setTimeout(done, 10))]);
      if (code !== undefined) throw new Error(`the replica ended with ${code}: ${this.said}`);
    }
  }

  /** SIGSTOP stops it as a machine that stands still. Its exit code, otherwise. */
  signal(signal: 'SIGTERM' | 'SIGKILL' | 'SIGSTOP' | 'SIGCONT'): Promise<number | null> {
    this.#child.kill(signal);
    return signal === 'SIGSTOP' || signal === 'SIGCONT' ? Promise.resolve(null) : this.#ended;
  }
}
