/** As form_script.ts, in the library, which pages take as files and bundlers as modules. */

const OPTIONS = { type: 'module', name: 'splitkv forms' } as const;

/** Where the library's files are served as they are. Bundlers may put the path of the package on their machine here (file:), or nothing. */
const beside = import.meta.url?.replace(/^(?!file:)(.*)\/splitkv-form_threads\.js$/, '$1/splitkv-form_worker.js');

/** Undefined where a bundler has moved this code: it knows nothing of the worker's file. */
export const startFile =
  beside === undefined || beside === import.meta.url
    ? undefined
    : (): Worker => {
        if (new URL(beside).origin === globalThis.location.origin) return new Worker(beside, OPTIONS);
        // Browsers refuse a worker whose script is of another origin, say a CDN's: one of this origin imports it.
        return startScript([`import ${JSON.stringify(beside)};`]);
      };

/** The worker's code as text. */
export async function startText(): Promise<Worker> {
  const { text } = await import('./form_worker_text.js');
  const packed = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const plain = new Blob([packed]).stream().pipeThrough(new DecompressionStream('gzip'));
  return startScript([await new Response(plain).arrayBuffer()]);
}

function startScript(code: BlobPart[]): Worker {
  const address = URL.createObjectURL(new Blob(code, { type: 'text/javascript' }));
  return new Worker(address, OPTIONS);
}
