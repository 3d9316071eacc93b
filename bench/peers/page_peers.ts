import type { WeightType } from '../../shaders/linear/pack.js';
import { throwIfAborted } from '../../src/base/errors.js';
import type { ModelFiles } from '../../src/engine/files/model_files.js';
import { readJson, type Source } from '../../src/loader/index.js';
import type { ModelConfig } from '../../src/model/config/model_config.js';
import type { SuiteHooks } from '../document.js';
import type { Ort } from './ort.js';
import { openOrtModel } from './ort_model.js';
import type { LeftOut, PeerModel } from './peer_model.js';
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
  readonly weights: WeightType;
  readonly contextLength: number;
}

/** A runtime that may be there: undefined where its package isn't installed. */
export interface Opening {
  readonly runtime: string;
  readonly open: (() => Promise<PeerModel>) | undefined;
}

/** The runtimes of a page. */
export function pagePeers(ort: Ort, packages: PeerPackages, subject: PeerSubject, signal: AbortSignal): Opening[] {
  const { source, files } = subject;
  const { transformers, wllama } = packages;
  const reader = (): ReturnType<ModelFiles['reader']> => files.reader();
  return [
    { runtime: 'onnxruntime-web', open: async () => openOrtModel(ort, { ...subject, reader: await reader() }) },
    {
      runtime: 'transformers.js',
      open:
        transformers &&
        (async () =>
          openTransformers(transformers, {
            ...subject,
            configJson: (await readJson(source, 'config.json', signal)) as Readonly<Record<string, unknown>>,
            reader: await reader(),
            device: ort.device,
          })),
    },
    {
      runtime: 'wllama',
      open:
        wllama === undefined
          ? undefined
          : async () =>
              openWllama(wllama, {
                ...subject,
                reader: await reader(),
                webgpu: ort.device.features.has('shader-f16'),
              }),
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
