/** How a page starts a rank's worker, where the pages of this repository are served or built; the library has rank_script_published.ts. */

export const startFile: (() => Worker) | undefined = () =>
  new Worker(new URL('./rank_worker.ts', import.meta.url), { type: 'module', name: 'splitkv rank' });

/** Another way, where there is no first one or it fails. */
export const startText: (() => Promise<Worker>) | undefined = undefined;
