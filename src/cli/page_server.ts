import { existsSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { basename, dirname, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { SplitkvError } from '../base/errors.js';
import { modelName } from '../engine/files/model_name.js';
import { isGgufName } from '../loader/index.js';
import { serveFiles } from '../server/http/static_files.js';

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
 * Serves the pages and one model folder on the loopback interface: from source by Vite in a checkout, else from the build.
 * @param model a folder, a GGUF file, or an http(s) URL or `hf:...`, which stays where it is
 * @param port 0 takes a free one; another takes the next free one from there on (in a checkout)
 * @param folders served beside them, by the paths that they begin with
 */
export async function startPageServer(
  model: string,
  port = 0,
  folders: Readonly<Record<string, string>> = {},
): Promise<PageServer> {
  const remote = /^(https?:\/\/|hf:)/.test(model);
  const folder = isGgufName(model) ? dirname(resolve(model)) : resolve(model);
  const prefix = `/model/${modelName(folder)}/`;
  const ofModel = serveFiles(remote ? '/model/' : prefix, remote ? root('models') : folder);
  const handlers = [ofModel, ...Object.entries(folders).map(([at, from]) => serveFiles(at, from))];
  const modelFiles: Files = (request, response, next) => {
    const first = handlers.reduceRight<() => void>((later, handler) => () => handler(request, response, later), next);
    first();
  };
  const path = isGgufName(model) ? prefix + basename(model) : prefix;
  const modelPath = encodeURI(path).replace(/[?#]/g, encodeURIComponent);
  const server = existsSync(root('src/app/host.ts'))
    ? await serveSource(port, modelFiles)
    : await serveBuild(port, modelFiles);
  return { ...server, modelUrl: remote ? model : new URL(modelPath, server.url).href };
}

type Files = ReturnType<typeof serveFiles>;

async function serveSource(port: number, modelFiles: Files): Promise<Omit<PageServer, 'modelUrl'>> {
  const vite = await import('vite');
  const ours = process.listeners('SIGTERM');
  const server = await vite.createServer({
    configFile: root('vite.config.ts'),
    logLevel: 'error',
    clearScreen: false,
    // One run watches nothing; a page that is left served reloads on edits.
    server: { port, strictPort: false, ...(port === 0 && { hmr: false, watch: null }) },
    plugins: [{ name: 'splitkv-model', configureServer: ({ middlewares }) => void middlewares.use(modelFiles) }],
  });
  // Vite's own listener would end this process before what came of the run is told.
  for (const listener of process.listeners('SIGTERM')) if (!ours.includes(listener)) process.off('SIGTERM', listener);
  await server.listen();
  const { port: actual } = server.httpServer!.address() as AddressInfo;
  return { url: `http://127.0.0.1:${actual}/`, close: () => server.close() };
}

async function serveBuild(port: number, modelFiles: Files): Promise<Omit<PageServer, 'modelUrl'>> {
  // The page, dist/cli/host.html, is made of the library's files, too.
  const built = root('dist');
  if (!existsSync(built))
    throw new SplitkvError('io', `${built} is missing; install the package again, or run npm run build`);
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
