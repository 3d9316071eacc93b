/** As rank_script.ts, in the library, which pages take as files and bundlers as modules. */

const OPTIONS = { type: 'module', name: 'splitkv rank' } as const;

/**
 * Where the library's files are served as they are the worker's lies beside this one, and shares files with the page. Bundlers may put
 * the path of the package on their machine here (file:), or nothing.
 */
const beside = import.meta.url?.replace(/^(?!file:)(.*)\/splitkv-page_workers\.js$/, '$1/splitkv-rank_worker.js');

/** Undefined where a bundler has moved this code: it knows nothing of the worker's file. */
export const startFile =
  beside === undefined || beside === import.meta.url
    ? undefined
    : (): Worker => {
        if (new URL(beside).origin === globalThis.location.origin) return new Worker(beside, OPTIONS);
        // Browsers refuse a worker whose script is of another origin, say a CDN's: one of this origin imports it.
        return new Worker(addressOf([`import ${JSON.stringify(beside)};`]), OPTIONS);
      };

/** The worker's code as one script, which bundlers of any kind carry along as what it is to them: text. */
export async function startText(): Promise<Worker> {
  textAddress ??= addressOf([await unpack()]);
  return new Worker(textAddress, OPTIONS);
}

let textAddress: string | undefined;

async function unpack(): Promise<ArrayBuffer> {
  const { text } = await import('./rank_worker_text.js');
  const packed = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const plain = new Blob([packed]).stream().pipeThrough(new DecompressionStream('gzip'));
  return new Response(plain).arrayBuffer();
}

const addressOf = (code: BlobPart[]): string => URL.createObjectURL(new Blob(code, { type: 'text/javascript' }));
