import type { WorkerEvents, WorkerHandle } from './worker_handle.js';
import type { WorkerReport } from './worker_protocol.js';

/** Browsers refuse a worker whose script is of another origin, say a CDN's: then one of this origin imports it. */
class Worker extends globalThis.Worker {
  constructor(script: URL, options: WorkerOptions) {
    if (script.origin === globalThis.location.origin) {
      super(script, options);
      return;
    }
    const importing = URL.createObjectURL(
      new Blob([`import ${JSON.stringify(script.href)};`], { type: 'text/javascript' }),
    );
    super(importing, options);
  }
}

/** A rank in a Web Worker. */
export function startPageWorker(events: WorkerEvents): WorkerHandle {
  // Bundlers find the worker's script by this very form.
  const worker = new Worker(new URL('./rank_worker.ts', import.meta.url), { type: 'module', name: 'splitkv rank' });
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
