import { SplitkvError } from '../base/errors.js';
import type { WorkerEvents, WorkerHandle } from './worker_handle.js';
import type { WorkerReport } from './worker_protocol.js';

/** In a build the worker's script lies beside this file, named like it. */
const beside = import.meta.url.replace(/page_workers\.js$/, 'rank_worker.js');

/** Browsers refuse a worker whose script is of another origin, say a CDN's: then one of this origin imports it. */
function startWorker(): Worker {
  if (beside !== import.meta.url && new URL(beside).origin !== globalThis.location.origin) {
    const importing = new Blob([`import ${JSON.stringify(beside)};`], { type: 'text/javascript' });
    return new Worker(URL.createObjectURL(importing), { type: 'module', name: 'splitkv rank' });
  }
  // Bundlers find the worker's script by this very form.
  return new Worker(new URL('./rank_worker.ts', import.meta.url), { type: 'module', name: 'splitkv rank' });
}

/** A rank in a Web Worker. @throws SplitkvError `unsupported` where the page's policy forbids it. */
export function startPageWorker(events: WorkerEvents): WorkerHandle {
  let worker: Worker;
  try {
    worker = startWorker();
  } catch (error) {
    throw new SplitkvError(
      'unsupported',
      `a rank's worker can't be started here: ${error instanceof Error ? error.message : String(error)}. ` +
        `Allow workers in the page's Content-Security-Policy (worker-src, trusted types), or leave 'workers' out`,
      { cause: error },
    );
  }
  let over = false;
  const tell = (why: string): void => {
    if (over) return;
    over = true;
    events.ended(why);
  };
  worker.onmessage = ({ data }) => events.message(data as WorkerReport);
  worker.onmessageerror = () => tell('a message of it could not be read');
  // A script that isn't found, or that the page's policy forbids, has no message.
  worker.onerror = (event) => tell((event as Partial<ErrorEvent>).message || 'its script could not be loaded');
  return {
    post: (command, transfer) => worker.postMessage(command, transfer),
    hold: () => {},
    end: () => {
      over = true;
      worker.terminate();
      return Promise.resolve();
    },
  };
}
