import { Worker } from 'node:worker_threads';

/** In a checkout this file is TypeScript; in a build the threads' scripts lie beside the command line's. */
const here = import.meta.url;
const isSource = here.endsWith('.ts');
const execArgv = isSource
  ? { execArgv: ['--import', here.replace(/src\/server\/threads\.ts$/, 'scripts/run_typescript.mjs')] }
  : {};

/** Starts a thread of the server. @param script below src/server, without its ending; named node_*_worker */
export function startThread(script: string, name: string, workerData: unknown): Worker {
  const file = isSource ? `${script}.ts` : `${script.replace(/.*\//, '')}.js`;
  return new Worker(new URL(file, here), { workerData, name, ...execArgv });
}
