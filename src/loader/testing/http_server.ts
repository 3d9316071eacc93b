import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

/** Answers a request itself (true) or leaves it to the file server. `seen` counts the requests before this one. */
export type Misbehaviour = (request: IncomingMessage, response: ServerResponse, seen: number) => boolean;

export interface TestServer extends AsyncDisposable {
  /** The folder the files are in, with a final slash. */
  readonly url: string;
  readonly requests: { readonly url: string; readonly range: string | undefined }[];
  readonly files: Map<string, Uint8Array>;
  misbehave: Misbehaviour | undefined;
  /** Sent as the ETag of every file; undefined sends none. */
  etag: string | undefined;
}

/** A server of files in memory that knows range requests, on a free port of this machine. */
export async function startServer(files: Record<string, Uint8Array>): Promise<TestServer> {
  const server = createServer((request, response) => {
    const { range } = request.headers;
    const seen = state.requests.length;
    state.requests.push({ url: request.url!, range });
    if (state.misbehave?.(request, response, seen)) return;
    const file = state.files.get(decodeURIComponent(new URL(request.url!, 'http://x').pathname).replace('/model/', ''));
    if (state.etag !== undefined) response.setHeader('ETag', state.etag);
    if (!file) response.writeHead(404).end('not found');
    else serve(file, range, response);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const state: TestServer = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/model/`,
    requests: [],
    files: new Map(Object.entries(files)),
    misbehave: undefined,
    etag: '"one"',
    [Symbol.asyncDispose]: async () => {
      server.closeAllConnections();
      await new Promise<void>((resolve) => server.close(() => resolve()));
    },
  };
  return state;
}

function serve(file: Uint8Array, range: string | undefined, response: ServerResponse): void {
  const match = /^bytes=(\d+)-(\d*)$/.exec(range ?? '');
  if (!match) {
    response.writeHead(200, { 'Content-Length': file.byteLength }).end(file);
    return;
  }
  const start = Number(match[1]);
  const end = Math.min(match[2] === '' ? Infinity : Number(match[2]) + 1, file.byteLength);
  if (start >= file.byteLength) {
    response.writeHead(416, { 'Content-Range': `bytes */${file.byteLength}` }).end();
    return;
  }
  response.writeHead(206, {
    'Content-Range': `bytes ${start}-${end - 1}/${file.byteLength}`,
    'Content-Length': end - start,
  });
  response.end(file.subarray(start, end));
}
