/** How a page starts the worker that all tabs share, where the pages of this repository are served or built; the library has share_script_published.ts. */

export const startShared: ((name: string) => SharedWorker) | undefined = (name) =>
  new SharedWorker(new URL('../../../app/share_worker.ts', import.meta.url), { type: 'module', name });
