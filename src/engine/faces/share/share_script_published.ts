/** As share_script.ts, in the library. */

/** Where the library's files are served as they are. Bundlers may put the path of the package on their machine here (file:), or nothing. */
const beside = import.meta.url?.replace(/^(?!file:)(.*)\/splitkv-shared_model\.js$/, '$1/splitkv-share_worker.js');

/** Undefined where a bundler has moved this code: text, as other workers are made of there, would be a worker for each tab. Such a page gives an address of its own. */
export const startShared =
  beside === undefined || beside === import.meta.url
    ? undefined
    : (name: string): SharedWorker => new SharedWorker(beside, { type: 'module', name });
