/**
 * Room: a server with a model in the test's own process, and clients for it: many at once (load_run.ts), rude ones,
 * and raw connections.
 */

import { testAdapters } from '../../gpu/testing/adapters.js';
import { randomFiles } from '../../engine/testing/random_source.js';
import { serve, type ServeOptions, type ServingModel } from '../../index.js';
import { ApiServer, type ServerOptions } from '../api_server.js';

export const CONTEXT = 2048;

/** A tiny random model on the quickest adapter present. */
export async function openTestModel(options: ServeOptions = {}): Promise<ServingModel> {
  const adapter = (await testAdapters()).at(-1)!.name;
  const { files } = randomFiles({ seed: 11, config: { max_position_embeddings: CONTEXT } });
  return serve(files, { adapter, slots: 4, ...options });
}

/** A server for the model. It is called `tiny`. Tests are one client. */
export async function startTestServer(model: ServingModel, options: ServerOptions = {}): Promise<ApiServer> {
  const server = await new ApiServer({ modelName: 'tiny', maxPerClient: 1e6, ...options }).listen();
  server.open(model);
  return server;
}
