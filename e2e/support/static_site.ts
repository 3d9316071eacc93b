import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { resolve } from 'node:path';
import { serveFiles } from '../../src/server/http/static_files.js';

export interface StaticSite {
  /** Ends with a slash. */
  readonly url: string;
  close(): void;
}

/**
 * A site of plain files, as any web server would serve it: the built library under lib/, the built pages under app/, the models
 * under models/ and app/models/, and pages given as text.
 * @param isolated with the headers that isolate a page from other origins, which gives it SharedArrayBuffer
 */
export async function serveSite(
  pages: Readonly<Record<string, string>> = {},
  {
    isolated = false,
    before,
    more = {},
  }: {
    isolated?: boolean;
    before?: (request: IncomingMessage, response: ServerResponse) => boolean;
    /** Folders by the paths that they are served under. */
    more?: Readonly<Record<string, string>>;
  } = {},
): Promise<StaticSite> {
  const folders = (
    [
      ['/lib', 'dist'],
      ['/app/models', 'models'],
      ['/app', 'dist/app'],
      ['/models', 'models'],
      ...Object.entries(more),
    ] as const
  ).map(([prefix, folder]) => serveFiles(prefix, resolve(folder)));
  const server = createServer((request, response) => {
    if (isolated) {
      response.setHeader('Cross-Origin-Opener-Policy', 'same-origin');
      response.setHeader('Cross-Origin-Embedder-Policy', 'require-corp');
    }
    if (before?.(request, response)) return;
    const page = pages[(request.url ?? '/').slice(1).replace(/[?#].*$/, '')];
    if (page !== undefined) {
      response.setHeader('Content-Type', 'text/html; charset=utf-8');
      return void response.end(page);
    }
    const serve = (index: number): void => {
      const next = folders[index];
      if (next) next(request, response, () => serve(index + 1));
      else response.writeHead(404).end();
    };
    serve(0);
  });
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/`,
    close: () => {
      server.closeAllConnections();
      server.close();
    },
  };
}
