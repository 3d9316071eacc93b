import { throwIfAborted } from '../../base/errors.js';
import type { ModelFiles } from '../../engine/model_files.js';
import { readJson, type Source } from '../../loader/index.js';
import type { LlamaConfig } from '../../model/llama_config.js';
import type { SuiteHooks } from '../document.js';
import type { PeerWeights } from './decode_graph.js';
import type { Ort } from './ort.js';
import { openOrtModel } from './ort_model.js';
import type { PeerModel } from './peer_model.js';
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
  readonly config: LlamaConfig;
  readonly weights: PeerWeights;
  readonly contextLength: number;
}

const NOT_INSTALLED = 'not installed; node bench/peers/install.mjs installs it';

/** Opens every runtime of a page into `models`. Returns what couldn't be opened, and why. */
export async function openPagePeers(
  ort: Ort,
  packages: PeerPackages,
  subject: PeerSubject,
  models: PeerModel[],
  { signal, onProgress }: SuiteHooks,
): Promise<readonly string[]> {
  const { source, files } = subject;
  const { transformers, wllama } = packages;
  onProgress('loading the model in onnxruntime-web');
  models.push(await openOrtModel(ort, { ...subject, reader: await files.reader() }));
  const leftOut: string[] = [];
  const attempt = async (name: string, open: (() => Promise<PeerModel>) | undefined): Promise<void> => {
    throwIfAborted(signal, 'bench');
    if (!open) return void leftOut.push(`${name}: ${NOT_INSTALLED}`);
    onProgress(`loading the model in ${name}`);
    try {
      models.push(await open());
    } catch (error) {
      leftOut.push(`${name}: ${error instanceof Error ? error.message : String(error)}`);
    }
  };
  await attempt(
    'transformers.js',
    transformers &&
      (async () =>
        openTransformers(transformers, {
          ...subject,
          configJson: (await readJson(source, 'config.json', signal)) as Readonly<Record<string, unknown>>,
          reader: await files.reader(),
          device: ort.device,
        })),
  );
  const webgpu = ort.device.features.has('shader-f16');
  await attempt(
    'wllama',
    wllama === undefined
      ? undefined
      : async () => openWllama(wllama, { ...subject, reader: await files.reader(), webgpu }),
  );
  return leftOut;
}
