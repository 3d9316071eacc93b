import { pathToFileURL } from 'node:url';
import { SHARE_ENV, Worker } from 'node:worker_threads';
import { messageOf } from '../../base/errors.js';
import type { WorkerEvents, WorkerHandle, WorkerReport } from './worker_protocol.js';

/** In a checkout this file is TypeScript and lies in src/engine/workers; in a build the worker's script lies beside it, named like it. */
const here = import.meta.url;
const rankScript = new URL(here.replace(/node_workers\.(\w+)$/, 'node_rank_worker.$1'));
const typescript = here.endsWith('.ts')
  ? { execArgv: ['--import', here.replace(/src\/engine\/workers\/node_workers\.ts$/, 'scripts/run_typescript.mjs')] }
  : {};

/** A rank in a worker_thread. @param script what runs there */
export function startNodeWorker(events: WorkerEvents, script = rankScript): WorkerHandle {
  // The Vulkan loader reads the process's environment: a copy for the worker wouldn't reach it.
  const worker = new Worker(script, { env: SHARE_ENV, name: 'splitkv rank', ...typescript });
  worker.on('message', (report: WorkerReport) => events.message(report));
  worker.on('messageerror', ({ message }) => events.ended(`a message of it could not be read: ${message}`));
  worker.on('error', (error: unknown) => events.ended(messageOf(error)));
  const exited = new Promise<void>((resolve) => {
    worker.on('exit', (code) => {
      events.ended(`it ended with exit code ${code}`);
      resolve();
    });
  });
  return {
    post: (command, transfer) => worker.postMessage(command, transfer as never[]),
    hold: (held) => (held ? worker.ref() : worker.unref()),
    end: () => exited,
  };
}

export const pathHref = (path: string): string => pathToFileURL(path).href;
