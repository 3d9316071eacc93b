import { throwIfAborted } from '../../src/base/errors.js';
import type { ModelFiles } from '../../src/engine/files/model_files.js';
import { readJson, type Source } from '../../src/loader/index.js';
import type { ModelConfig } from '../../src/model/config/model_config.js';
import type { SuiteHooks } from '../document.js';
import type { Ort } from './ort.js';
import { openOrtModel } from './ort_model.js';
import type { LeftOut, PeerModel } from './peer_model.js';
import type { PeerWeights } from './peer_weights.js';
import { openTransformers, type TransformersPlaces } from './transformers_js.js';
import { openWllama } from './wllama.js';

/** URLs of the other runtimes' packages; those that are installed by a script of their own may be missing. */
export interface PeerPackages {
  readonly onnxruntimeWeb: string;
  readonly transformers?: TransformersPlaces;
  readonly wllama?: string;
}

export interface PeerSubject {
  readonly source: Source;
  readonly files: ModelFiles;
  readonly config: ModelConfig;
  readonly weights: PeerWeights;
  readonly contextLength: number;
}

/** A runtime that may be there: undefined where its package isn't installed. */
export interface Opening {
  readonly runtime: string;
  readonly open: (() => Promise<PeerModel>) | undefined;
}

/** The runtimes of a page. `webgpu`: wllama's may be asked for. */
export function pagePeers(
  ort: Ort | undefined,
  packages: PeerPackages,
  subject: PeerSubject,
  webgpu: boolean,
  signal: AbortSignal,
): Opening[] {
  const { files } = subject;
  const { wllama } = packages;
  const open =
    wllama === undefined
      ? undefined
      : async () => openWllama(wllama, { ...subject, reader: await files.reader(), webgpu });
  return [...(ort ? graphPeers(ort, packages, subject, signal) : []), { runtime: 'wllama', open }];
}

/** Those that are given a graph: they read no GGUF file. */
function graphPeers(
  ort: Ort,
  { transformers }: PeerPackages,
  { source, files, weights, ...subject }: PeerSubject,
  signal: AbortSignal,
): Opening[] {
  if (weights === 'q4_k_m') return [];
  const given = async () => ({ ...subject, weights, reader: await files.reader() });
  return [
    { runtime: 'onnxruntime-web', open: async () => openOrtModel(ort, await given()) },
    {
      runtime: 'transformers.js',
      open:
        transformers &&
        (async () =>
          openTransformers(transformers, {
            ...(await given()),
            configJson: (await readJson(source, 'config.json', signal)) as Readonly<Record<string, unknown>>,
            device: ort.device,
          })),
    },
  ];
}

/** Opens what is there into `models`; what isn't, or fails, is added to `leftOut` with the reason. */
export async function openPeers(
  openings: readonly Opening[],
  models: PeerModel[],
  leftOut: LeftOut[],
  { signal, onProgress }: SuiteHooks,
): Promise<void> {
  for (const { runtime, open } of openings) {
    throwIfAborted(signal, 'bench');
    if (!open) {
      leftOut.push({ runtime, why: 'not installed; node bench/peer_packages/install.mjs installs it' });
      continue;
    }
    onProgress(`loading the model in ${runtime}`);
    try {
      models.push(await open());
    } catch (error) {
      leftOut.push({ runtime, why: error instanceof Error ? error.message : String(error) });
    }
  }
}
