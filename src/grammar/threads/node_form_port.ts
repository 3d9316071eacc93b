import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import { usageError } from '../../base/errors.js';
import { type FormPort, lostThread, type PortEvents } from './form_thread.js';
import type { FormTold } from './serve_forms.js';

/** Of JavaScript's objects, in a thread. */
const HEAP_MB = 512;

/** In a checkout this file is TypeScript; in a build the thread's script lies beside it, named like it. */
const here = import.meta.url;
const script = new URL(here.replace(/node_form_port\.(\w+)$/, 'node_form_worker.$1'));
const typescript = here.endsWith('.ts')
  ? {
      execArgv: ['--import', here.replace(/src\/grammar\/threads\/node_form_port\.ts$/, 'scripts/run_typescript.mjs')],
    }
  : {};

/** @throws where the thread can't be started */
export async function startNodePort(events: PortEvents, heapMb = HEAP_MB): Promise<FormPort> {
  const worker = new Worker(script, {
    name: 'splitkv forms',
    resourceLimits: { maxOldGenerationSizeMb: heapMb },
    ...typescript,
  });
  await once(worker, 'message');
  worker.on('message', (told: FormTold) => events.told(told));
  worker.on('messageerror', ({ message }) => events.ended(lostThread(message)));
  worker.on('error', (error: Error & { readonly code?: string }) =>
    events.ended(
      error.code === 'ERR_WORKER_OUT_OF_MEMORY'
        ? usageError(`the form takes more than ${heapMb} MiB to be made ready; make it smaller`)
        : lostThread(error.message),
    ),
  );
  worker.on('exit', (code) => events.ended(lostThread(`it ended with exit code ${code}`)));
  return {
    post: (ask) => worker.postMessage(ask),
    hold: (held) => (held ? worker.ref() : worker.unref()),
    end: () => void worker.terminate(),
  };
}
