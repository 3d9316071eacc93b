import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { unsupportedError } from '../../src/base/errors.js';
import type { Terminal } from '../../src/cli/command.js';
import type { Options } from '../../src/cli/options.js';
import type { PeerPackages } from '../peers/page_peers.js';
import type { PeersRequest } from '../suites/peers.js';
import type { VisionRequest } from '../suites/vision.js';
import { benchHost, benchModel, embeddedVision, integerList, oneWeights, requestFor } from './bench_options.js';
import type { SuiteResult } from './hosted_suites.js';
import { runHosted } from './run_hosted.js';

const ORT_PATH = '/peers/onnxruntime-web';
/** What bench/peer_packages/install.mjs installed. */
const OWN_PATH = '/peers/node_modules';
// Not written in one, which bundlers take for a file to carry along.
const here = import.meta.url;
const OWN_FOLDER = fileURLToPath(new URL('../peer_packages/node_modules', here));

/** Other runtimes on the same weights and the same adapter. Their packages are in a checkout only. */
export async function runPeersSuite(options: Options, terminal: Terminal): Promise<SuiteResult> {
  const host = benchHost(options);
  const model = await benchModel(options, terminal);
  const weights = options.text('weights') === 'q4_k_m' ? 'q4_k_m' : (oneWeights(options, 'peers') ?? 'f32');
  await requestFor(options, terminal, model, weights === 'q4_k_m' ? undefined : weights);
  const adapterName = options.text('adapter');
  const promptTokens = integerList(options, 'prompt-tokens');
  const request: PeersRequest = {
    suite: 'peers',
    model,
    weights,
    // wllama and transformers.js ask for the same by themselves.
    adapter:
      host === 'chrome' ? { powerPreference: 'high-performance' } : adapterName === undefined ? {} : { adapterName },
    ...(promptTokens && { promptTokens }),
    maxTokens: options.integer('max-tokens', 3) ?? 32,
    runs: options.integer('runs', 1) ?? 7,
    ...(host === 'chrome' && { packages: packages() }),
  };
  const folders = { [ORT_PATH]: packageFolder('onnxruntime-web'), [OWN_PATH]: OWN_FOLDER };
  return runHosted(request, { host, model, ...(host === 'chrome' && { folders }) }, terminal);
}

/** A model that takes pictures, beside transformers.js where that is installed. */
export async function runVisionSuite(options: Options, terminal: Terminal): Promise<SuiteResult> {
  const host = benchHost(options);
  const model = await benchModel(options, terminal, embeddedVision);
  const weights = oneWeights(options, 'vision') ?? 'f32';
  const { options: load } = await requestFor(options, terminal, model, weights, undefined, []);
  const runs = options.integer('runs', 1) ?? 7;
  const request: VisionRequest = { suite: 'vision', model, load, weights, runs };
  if (host !== 'chrome' || !existsSync(OWN_FOLDER)) return runHosted(request, { host, model }, terminal);
  const folders = { [ORT_PATH]: packageFolder('onnxruntime-web'), [OWN_PATH]: OWN_FOLDER };
  return runHosted({ ...request, packages: packages() }, { host, model, folders }, terminal);
}

function packages(): PeerPackages {
  const installed = (name: string): boolean => existsSync(join(OWN_FOLDER, name));
  return {
    onnxruntimeWeb: `${ORT_PATH}/`,
    ...(installed('@huggingface/transformers') && {
      transformers: {
        transformers: `${OWN_PATH}/@huggingface/transformers/dist/`,
        onnxruntimeCommon: `${OWN_PATH}/onnxruntime-common/dist/`,
        onnxruntimeWeb: `${OWN_PATH}/onnxruntime-web/dist/`,
      },
    }),
    ...(installed('@wllama/wllama') && { wllama: `${OWN_PATH}/@wllama/wllama/esm/` }),
  };
}

function packageFolder(name: string): string {
  try {
    return dirname(createRequire(import.meta.url).resolve(name));
  } catch (error) {
    throw unsupportedError(
      `--suite peers runs in a checkout of splitkv with its development packages (npm install): ${name} isn't installed (${String(error)})`,
    );
  }
}
