import type { EventEmitter } from 'node:events';
import { existsSync } from 'node:fs';
import { readdir, readFile, realpath } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { basename, dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { ioError } from '../base/errors.js';
import { modelName } from '../engine/files/model_name.js';
import { isMmproj, partNames } from '../loader/gguf/file.js';
import { shardsOf } from '../loader/hub/node_hub_cache.js';
import { isGgufName } from '../loader/index.js';
import { modelTexts, SHARD_INDEX, SINGLE_FILE } from '../loader/tensor_index.js';
import { directorySource } from '../loader/sources/node_files.js';
import { ApiError } from '../server/api_error.js';
import { hostCheck } from '../server/http/access.js';
import { type Handler, type ServedFiles, serveFiles } from '../server/http/static_files.js';

export interface PageServer {
  /** Ends with a slash; the page is host.html, in a checkout index.html and the others, too. */
  readonly url: string;
  /** Where the page finds the model folder or GGUF file, on this server or elsewhere. */
  readonly modelUrl: string;
  close(): Promise<void>;
}

// Not written in one, which bundlers take for a file to carry along.
const here = import.meta.url;
const root = (path: string): string => fileURLToPath(new URL(`../../${path}`, here));

/**
 * Serves the pages and one model's files on the loopback interface: from source by Vite in a checkout, otherwise from the build. Nothing
 * else that lies beside the model is served, and no page that comes by another name than this machine's.
 * @param model a folder, a GGUF file, or an http(s) URL or `hf:...`, which stays where it is
 * @param port 0 takes a free one; another takes the next free one from there on (in a checkout)
 * @param folders served beside them, by the paths that they begin with
 * @param pagesFrom default: the source in a checkout, otherwise the build
 */
export async function startPageServer(
  model: string,
  port = 0,
  folders: Readonly<Record<string, string>> = {},
  pagesFrom: ServePages = existsSync(root('src/app/host.ts')) ? serveSource : serveBuild,
): Promise<PageServer> {
  const remote = /^(https?:\/\/|hf:)/.test(model);
  const folder = isGgufName(model) ? dirname(resolve(model)) : resolve(model);
  const prefix = `/model/${modelName(folder)}/`;
  const handlers = [
    ourHostsOnly,
    ...(remote ? [] : [serveFiles(prefix, folder, await filesOf(model, folder))]),
    ...Object.entries(folders).map(([at, from]) => serveFiles(at, from)),
  ];
  const modelFiles: Handler = (request, response, next) => {
    const first = handlers.reduceRight<() => void>((later, handler) => () => handler(request, response, later), next);
    first();
  };
  const path = isGgufName(model) ? prefix + basename(model) : prefix;
  const modelPath = encodeURI(path).replace(/[?#]/g, encodeURIComponent);
  const server = await pagesFrom(port, modelFiles);
  return { ...server, modelUrl: remote ? model : new URL(modelPath, server.url).href };
}

/** As of a server that listens to this machine. */
const checkHost = hostCheck(undefined, '127.0.0.1');
const ourHostsOnly: Handler = (request, response, next) => {
  try {
    checkHost(request);
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    response
      .writeHead(error.status, { 'Content-Type': 'text/plain; charset=utf-8' })
      .end('this host is not allowed here');
    return;
  }
  next();
};

/** What a load may read. Links lead to the Hub's blobs at most, and of a GGUF file to where it is itself, with its other parts and its encoder. */
async function filesOf(model: string, folder: string): Promise<ServedFiles> {
  if (isGgufName(model)) {
    const parts = partNames(basename(model));
    const beside = (await readdir(folder).catch(() => [])).filter(isMmproj);
    const there = [basename(model), ...beside].map((file) => realpath(join(folder, file)).catch(() => []));
    const places = (await Promise.all(there)).flat();
    const [home] = places.map(dirname);
    const own = places.filter((place) => dirname(place) === home);
    return { files: new Set([...parts, ...beside]), links: parts.length === 1 ? own : own.map(dirname) };
  }
  const shards = shardsOf(await readFile(join(folder, SHARD_INDEX), 'utf8').catch(() => '')) ?? [];
  const texts = await modelTexts(await directorySource(folder)).catch(() => []);
  // A snapshot of the Hub's cache holds links to the blobs of its repository.
  const [, repository] = /^(.+)[\\/]snapshots[\\/][^\\/]+/.exec(await realpath(folder).catch(() => folder)) ?? [];
  return {
    files: new Set([...texts, SINGLE_FILE, ...shards]),
    links: repository === undefined ? [] : [join(repository, 'blobs')],
  };
}

/** Starts a server of the pages that asks `files` first. */
type ServePages = (port: number, files: Handler) => Promise<Omit<PageServer, 'modelUrl'>>;

async function serveSource(port: number, modelFiles: Handler): Promise<Omit<PageServer, 'modelUrl'>> {
  const vite = await import('vite');
  // Vite's own listeners would end this process before what came of the run is told, and where its input ends.
  const enders: readonly (readonly [EventEmitter, event: string])[] = [
    [process, 'SIGTERM'],
    [process.stdin, 'end'],
  ];
  const ours = enders.flatMap(([from, event]) => from.listeners(event));
  const server = await vite.createServer({
    configFile: root('vite.config.ts'),
    logLevel: 'error',
    clearScreen: false,
    // One run watches nothing; a page that is left served reloads on edits.
    server: { port, strictPort: false, ...(port === 0 && { hmr: false, watch: null }) },
    plugins: [{ name: 'splitkv-model', configureServer: ({ middlewares }) => void middlewares.use(modelFiles) }],
  });
  for (const [from, event] of enders) {
    const added = from.listeners(event).filter((listener) => !ours.includes(listener));
    for (const listener of added) from.off(event, listener as () => void);
  }
  await server.listen();
  const { port: actual } = server.httpServer!.address() as AddressInfo;
  return { url: `http://127.0.0.1:${actual}/`, close: () => server.close() };
}

/** @param built the package's: the page, cli/host.html, is made of the library's files, too */
export async function serveBuild(
  port: number,
  modelFiles: Handler,
  built: string = root('dist'),
): Promise<Omit<PageServer, 'modelUrl'>> {
  if (!existsSync(built)) throw ioError(`${built} is missing; install the package again, or run npm run build`);
  const pages = serveFiles('/', built);
  const server = createServer((request, response) =>
    modelFiles(request, response, () => pages(request, response, () => response.writeHead(404).end())),
  );
  await new Promise<void>((done, failed) => {
    server.once('error', failed);
    server.listen(port, '127.0.0.1', done);
  });
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/cli/`,
    close: () =>
      new Promise((done) => {
        server.close(() => done());
        server.closeAllConnections();
      }),
  };
}
