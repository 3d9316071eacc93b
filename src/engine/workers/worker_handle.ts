import { usageError } from '../../base/errors.js';
import type { WorkerCommand, WorkerReport } from './worker_protocol.js';

/** What a worker tells outside of any call. */
export interface WorkerEvents {
  message(report: WorkerReport): void;
  /** It ended by itself, failed or couldn't be started; told once. */
  ended(why: string): void;
}

/** A worker, of a page or of Node. */
export interface WorkerHandle {
  post(command: WorkerCommand, transfer: Transferable[]): void;
  /** Whether the process waits for the worker; only Node's processes end by themselves. */
  hold(held: boolean): void;
  /**
   * Resolves when the worker is gone. A page ends it at once. In Node it ends by itself once it is disposed of: ending a thread
   * with GPU work pending would make Dawn abort the whole process.
   */
  end(): Promise<void>;
}

export type StartWorker = (events: WorkerEvents) => WorkerHandle;

/** How a rank's worker is started here: a Web Worker in a page, a worker_thread in Node. @throws SplitkvError `usage` where neither is. */
export async function rankWorkerStarter(): Promise<StartWorker> {
  if (globalThis.process?.versions?.node !== undefined) return (await import('./node_workers.js')).startNodeWorker;
  if (typeof Worker === 'undefined') {
    throw usageError('workers: this page or worker can start no Web Worker; leave workers out');
  }
  return (await import('./page_workers.js')).startPageWorker;
}
