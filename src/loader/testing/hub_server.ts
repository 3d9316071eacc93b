import { createHash } from 'node:crypto';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

/** A repository of the double: files by name, as text or bytes. */
export interface HubRepository {
  files: Record<string, Uint8Array | string>;
  /** Small files aren't kept by LFS; larger ones are served by the other origin. Default: those of 1,000 bytes and more. */
  readonly lfs?: (file: string) => boolean;
  readonly branches?: readonly string[];
  gated?: boolean;
  private?: boolean;
  /** Requests are redirected to this repository, as after a change of name. */
  readonly movedTo?: string;
}

interface SeenRequest {
  readonly method: string;
  /** 'hub' or 'cdn': where LFS files lie. */
  readonly origin: 'hub' | 'cdn';
  readonly url: string;
  readonly range: string | undefined;
  readonly authorization: string | undefined;
}

export interface HubServer extends AsyncDisposable {
  /** The endpoint, without a final slash. */
  readonly url: string;
  readonly cdn: string;
  readonly repositories: Map<string, HubRepository>;
  readonly requests: SeenRequest[];
  /** Tokens that may read private repositories, and whether they have accepted gated ones' licences. */
  readonly tokens: Map<string, { readonly accepted: boolean }>;
  /** Answers a request itself (true), or leaves it to the Hub. `seen` counts those before it. */
  misbehave: ((request: IncomingMessage, response: ServerResponse, seen: number) => boolean) | undefined;
  /** False: as a mirror without the API. */
  api: boolean;
  /** False: the listing tells no sizes and hashes. */
  blobs: boolean;
  /** The commit that a repository's branches are at. It follows from what its files hold. */
  commit(repo: string): string;
}

const LFS_BYTES = 1000;
const EXPOSED =
  'X-Repo-Commit,X-Request-Id,X-Error-Code,X-Error-Message,X-Total-Count,ETag,Link,Accept-Ranges,Content-Range,X-Linked-Size,X-Linked-ETag,X-Xet-Hash';

const bytesOf = (content: Uint8Array | string): Buffer => Buffer.from(content as Uint8Array);
const sha256 = (content: Uint8Array): string => createHash('sha256').update(content).digest('hex');
const gitSha1 = (content: Uint8Array): string =>
  createHash('sha1').update(`blob ${content.byteLength}\0`).update(content).digest('hex');

/**
 * A double of the Hugging Face Hub on two free ports of this machine: its API's listing, `resolve` with its headers, redirects of LFS
 * files to another origin by signed links, errors with codes, gated and private repositories, CORS.
 */
export async function startHub(repositories: Record<string, HubRepository>): Promise<HubServer> {
  const requests: SeenRequest[] = [];
  const note = (origin: 'hub' | 'cdn', request: IncomingMessage): number =>
    requests.push({
      method: request.method!,
      origin,
      url: request.url!,
      range: request.headers.range,
      authorization: request.headers.authorization,
    }) - 1;
  const hub = createServer((request, response) => {
    const seen = note('hub', request);
    response.setHeader('Access-Control-Allow-Origin', request.headers.origin ?? '*');
    response.setHeader('Access-Control-Expose-Headers', EXPOSED);
    response.setHeader('Vary', 'Origin');
    if (request.method === 'OPTIONS') {
      response.writeHead(204, {
        'Access-Control-Allow-Methods': 'GET,HEAD,POST',
        'Access-Control-Allow-Headers': request.headers['access-control-request-headers'] ?? '',
        'Access-Control-Max-Age': '86400',
      });
      response.end();
      return;
    }
    if (server.misbehave?.(request, response, seen)) return;
    answer(server, request, response);
  });
  const cdn = createServer((request, response) => {
    const seen = note('cdn', request);
    response.setHeader('Access-Control-Allow-Origin', '*');
    response.setHeader('Access-Control-Expose-Headers', 'ETag,Content-Range,Content-Length,Accept-Ranges');
    if (request.method === 'OPTIONS') {
      response
        .writeHead(204, { 'Access-Control-Allow-Methods': 'GET,HEAD', 'Access-Control-Allow-Headers': 'range' })
        .end();
      return;
    }
    if (server.misbehave?.(request, response, seen)) return;
    // Like S3: a link that is signed and an Authorization beside it are one way too many to ask.
    if (request.headers.authorization !== undefined) {
      response.writeHead(400).end('Only one auth mechanism allowed');
      return;
    }
    const url = new URL(request.url!, 'http://cdn');
    const content = [...server.repositories.values()]
      .flatMap(({ files }) => Object.values(files).map(bytesOf))
      .find((bytes) => sha256(bytes) === url.pathname.slice(1));
    if (!content || url.searchParams.get('X-Amz-Signature') === null) {
      response.writeHead(403).end('AccessDenied');
      return;
    }
    response.setHeader('ETag', `"${createHash('md5').update(content).digest('hex')}"`);
    send(request, response, content);
  });
  const [hubPort, cdnPort] = await Promise.all([listen(hub), listen(cdn)]);
  const server: HubServer = {
    url: `http://127.0.0.1:${hubPort}`,
    cdn: `http://localhost:${cdnPort}`,
    repositories: new Map(Object.entries(repositories)),
    requests,
    tokens: new Map(),
    misbehave: undefined,
    api: true,
    blobs: true,
    commit: (repo) => {
      const { files } = server.repositories.get(repo)!;
      const hash = createHash('sha1');
      for (const [name, content] of Object.entries(files)) hash.update(name).update(bytesOf(content));
      return hash.digest('hex');
    },
    [Symbol.asyncDispose]: async () => {
      for (const one of [hub, cdn]) {
        one.closeAllConnections();
        await new Promise<void>((resolve) => one.close(() => resolve()));
      }
    },
  };
  return server;
}

async function listen(server: Server): Promise<number> {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return (server.address() as AddressInfo).port;
}

function fail(response: ServerResponse, status: number, code: string | undefined, message: string): void {
  response.writeHead(status, {
    ...(code !== undefined && { 'X-Error-Code': code }),
    'X-Error-Message': message,
    'Content-Type': 'application/json; charset=utf-8',
  });
  response.end(JSON.stringify({ error: message }));
}

function answer(server: HubServer, request: IncomingMessage, response: ServerResponse): void {
  const url = new URL(request.url!, server.url);
  const parts = url.pathname.split('/').filter(Boolean).map(decodeURIComponent);
  const isApi = parts[0] === 'api';
  const [org, name, kind, revision, ...path] = isApi ? parts.slice(2) : parts;
  const file = path.join('/');
  if (isApi && !server.api) return fail(response, 404, undefined, 'Not Found');
  const repo = `${org}/${name}`;
  const repository = server.repositories.get(repo);
  const { authorization } = request.headers;
  const token = authorization === undefined ? undefined : server.tokens.get(authorization.replace('Bearer ', ''));
  if (authorization !== undefined && token === undefined) {
    return fail(response, 401, undefined, 'Invalid credentials in Authorization header');
  }
  if (!repository || (repository.private && !token)) {
    return token
      ? fail(response, 404, 'RepoNotFound', 'Repository not found')
      : fail(response, 401, 'RepoNotFound', 'Invalid username or password.');
  }
  if (repository.movedTo !== undefined) {
    response.writeHead(307, { Location: url.pathname.replace(repo, repository.movedTo) + url.search }).end();
    return;
  }
  const commit = server.commit(repo);
  if (kind === undefined || !['main', commit, ...(repository.branches ?? [])].includes(revision ?? '')) {
    return fail(response, 404, 'RevisionNotFound', `Invalid rev id: ${revision}`);
  }
  if (isApi) return list(server, repo, repository, commit, url, response);
  if (repository.gated && !token?.accepted) {
    return token
      ? fail(
          response,
          403,
          'GatedRepo',
          `Access to model ${repo} is restricted and you are not in the authorized list.`,
        )
      : fail(
          response,
          401,
          'GatedRepo',
          `Access to model ${repo} is restricted. You must have access to it and be authenticated.`,
        );
  }
  response.setHeader('X-Repo-Commit', commit);
  const given = repository.files[file];
  if (given === undefined) return fail(response, 404, 'EntryNotFound', 'Entry not found');
  const content = bytesOf(given);
  if (isLfs(repository, file, content)) {
    const digest = sha256(content);
    response.writeHead(302, {
      ETag: `"${digest}"`,
      'X-Linked-Etag': `"${digest}"`,
      'X-Linked-Size': content.byteLength,
      Location: `${server.cdn}/${digest}?X-Amz-Signature=${digest.slice(0, 8)}`,
    });
    response.end();
    return;
  }
  if (url.searchParams.get('from') === null) {
    // Small files are redirected to another path of the same origin.
    response.writeHead(307, { Location: `${url.pathname}?from=resolve-cache` }).end();
    return;
  }
  response.setHeader('ETag', `"${gitSha1(content)}"`);
  send(request, response, content);
}

const isLfs = ({ lfs }: HubRepository, file: string, content: Uint8Array): boolean =>
  lfs?.(file) ?? content.byteLength >= LFS_BYTES;

function list(
  server: HubServer,
  repo: string,
  repository: HubRepository,
  commit: string,
  url: URL,
  response: ServerResponse,
): void {
  const blobs = server.blobs && url.searchParams.get('blobs') === 'true';
  const siblings = Object.entries(repository.files).map(([rfilename, given]) => {
    const content = bytesOf(given);
    if (!blobs) return { rfilename };
    const size = content.byteLength;
    const digest = sha256(content);
    const lfs = isLfs(repository, rfilename, content) && { lfs: { sha256: digest, size, pointerSize: 135 } };
    return { rfilename, size, blobId: gitSha1(content), ...lfs };
  });
  response.setHeader('Content-Type', 'application/json; charset=utf-8');
  response.end(
    JSON.stringify({
      id: repo,
      modelId: repo,
      sha: commit,
      private: false,
      gated: repository.gated ? 'auto' : false,
      siblings,
    }),
  );
}

function send(request: IncomingMessage, response: ServerResponse, content: Buffer): void {
  response.setHeader('Accept-Ranges', 'bytes');
  const match = /^bytes=(\d+)-(\d*)$/.exec(request.headers.range ?? '');
  const body = (bytes: Buffer): void => void response.end(request.method === 'HEAD' ? undefined : bytes);
  if (!match) {
    response.writeHead(200, { 'Content-Length': content.byteLength });
    return body(content);
  }
  const start = Number(match[1]);
  const end = Math.min(match[2] === '' ? Infinity : Number(match[2]) + 1, content.byteLength);
  if (start >= content.byteLength) {
    response.writeHead(416, { 'Content-Range': `bytes */${content.byteLength}` }).end();
    return;
  }
  response.writeHead(206, {
    'Content-Range': `bytes ${start}-${end - 1}/${content.byteLength}`,
    'Content-Length': end - start,
  });
  return body(content.subarray(start, end));
}
