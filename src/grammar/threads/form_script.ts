/** How a page starts a thread of forms, where the pages of this repository are served or built; the library has form_script_published.ts. */

export const startFile: (() => Worker) | undefined = () =>
  new Worker(new URL('./form_worker.ts', import.meta.url), { type: 'module', name: 'splitkv forms' });

/** Another way, where there is no first one or it fails. */
export const startText: (() => Promise<Worker>) | undefined = undefined;
