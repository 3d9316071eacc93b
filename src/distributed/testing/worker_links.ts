import { Worker } from 'node:worker_threads';
import { createPorts } from '../ports/port.js';
import type { ProgramResult, TestGroup, TestLinks } from './programs.js';
import type { WorkerAnswer, WorkerCommand } from './worker_messages.js';

const TYPESCRIPT = new URL('../../../scripts/run_typescript.mjs', import.meta.url);

interface Question {
  readonly resolve: (result: unknown) => void;
  readonly reject: (error: Error) => void;
}

/** A worker thread that lives for many groups, and is started again after it ended. */
class RankWorker {
  #worker: Worker | undefined;
  #question: Question | undefined;

  /** What it answers; undefined when it ended instead. An error that it didn't catch rejects. */
  ask(command: WorkerCommand): Promise<unknown> {
    const worker = (this.#worker ??= this.#start());
    return new Promise((resolve, reject) => {
      this.#question = { resolve, reject };
      worker.postMessage(command, command.type === 'open' ? ([...command.ports.values()] as never[]) : []);
    });
  }

  #start(): Worker {
    const worker = new Worker(new URL('./rank_worker.ts', import.meta.url), {
      execArgv: ['--import', TYPESCRIPT.href],
    });
    worker.on('message', (answer: WorkerAnswer) => {
      if ('error' in answer) this.#question?.reject(new Error(answer.error));
      else this.#question?.resolve(answer.result);
    });
    worker.on('error', (error) => this.#question?.reject(error as Error));
    worker.on('exit', () => {
      this.#worker = undefined;
      this.#question?.resolve(undefined);
    });
    return worker;
  }

  async end(): Promise<void> {
    await this.#worker?.terminate();
  }
}

/** Ranks in worker threads of their own, rank i on `adapters[i]`. @param makePorts what joins them */
export function workerLinks(
  adapters: readonly string[],
  sharedMemory: boolean,
  makePorts: typeof createPorts = createPorts,
): TestLinks {
  const workers = adapters.map(() => new RankWorker());
  const worldSize = adapters.length;
  return {
    worldSize,
    workers: true,
    async open({ timeoutMs } = {}): Promise<TestGroup> {
      const ports = makePorts(worldSize);
      const openings = workers.map((worker, rank) => {
        const adapterName = adapters[rank]!;
        return worker.ask({ type: 'open', rank, worldSize, ports: ports[rank]!, adapterName, timeoutMs, sharedMemory });
      });
      await Promise.all(openings);
      return {
        run: async <P>(name: P, args: unknown) =>
          (await Promise.all(
            workers.map((worker) => worker.ask({ type: 'run', name, args } as WorkerCommand)),
          )) as ProgramResult<never>[],
        close: async () => {
          const leaks = await Promise.all(workers.map((worker) => worker.ask({ type: 'close' })));
          return { leaked: leaks.reduce<number>((total, leak) => total + (leak as number), 0) };
        },
      };
    },
    async end() {
      await Promise.all(workers.map((worker) => worker.end()));
    },
  };
}
