import { type ChildProcess, spawn } from 'node:child_process';
import type { NatsServer } from '../node_nats_server.js';
import { BIN } from '../../cli/testing/bin.js';

/** `splitkv rank` as a process of its own, in the cluster of a test's server, with the models of this checkout. */
export class RankProcess {
  said = '';
  readonly ended: Promise<number | null>;
  readonly #child: ChildProcess;
  readonly #ready: Promise<void>;

  constructor(
    readonly name: string,
    { url }: Pick<NatsServer, 'url'>,
    more: readonly string[] = [],
  ) {
    const args = ['rank', '--cluster', url, '--name', name, '--models', 'models', ...more];
    const child = spawn(process.execPath, [BIN, ...args], { stdio: ['ignore', 'pipe', 'pipe'] });
    this.#child = child;
    this.ended = new Promise((resolve) => child.once('close', resolve));
    this.#ready = new Promise((resolve, reject) => {
      for (const stream of [child.stdout, child.stderr]) {
        stream.setEncoding('utf8').on('data', (text: string) => {
          this.said += text;
          if (this.said.includes('waits in cluster')) resolve();
        });
      }
      void this.ended.then((code) => reject(new Error(`rank ${name} ended with ${code}: ${this.said}`)));
    });
    this.#ready.catch(() => {});
  }

  /** @throws with what it said, when it ends instead */
  ready(): Promise<void> {
    return this.#ready;
  }

  /** Its exit code. */
  stop(signal: 'SIGINT' | 'SIGKILL' = 'SIGINT'): Promise<number | null> {
    this.#child.kill(signal);
    return this.ended;
  }
}
