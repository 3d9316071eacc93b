import { SplitkvError, unsupportedError } from '../../../base/errors.js';
import { saysCpu } from '../../../gpu/index.js';
import type { OnnxProvider } from '../../contracts/prefill_worker.js';

/** The part of onnxruntime-web that is used here. */
export interface OrtTensor {
  readonly data: Float32Array<ArrayBuffer>;
  dispose(): void;
}
export interface OrtSession {
  run(feeds: Readonly<Record<string, OrtTensor>>): Promise<Record<string, OrtTensor>>;
  release(): Promise<void>;
}
export interface Ort {
  readonly env: { readonly wasm: { wasmPaths?: unknown } };
  readonly Tensor: new (
    type: 'float32' | 'int64',
    data: Float32Array | BigInt64Array,
    dims: readonly number[],
  ) => OrtTensor;
  readonly InferenceSession: {
    create(
      model: Uint8Array,
      options: {
        readonly executionProviders: readonly string[];
        readonly externalData: readonly { readonly path: string; readonly data: Uint8Array }[];
      },
    ): Promise<OrtSession>;
  };
}

/** The package in use. */
export interface OrtHost {
  readonly ort: Ort;
  readonly provider: OnnxProvider;
  /** Where it computes, for people. */
  readonly place: string;
}

export interface OrtRequest {
  /** In pages: the folder of the package's files, where no bundler and no import map resolves its name. */
  readonly runtime?: string | URL | undefined;
  /** Default: WebGPU in pages whose adapter is a GPU. */
  readonly provider?: OnnxProvider | undefined;
}

const inNode = globalThis.process?.versions?.node !== undefined;

/**
 * Loads the optional package.
 * @throws SplitkvError `unsupported` when it isn't there, or for WebGPU where there is none
 */
export async function openOrt(request: OrtRequest = {}): Promise<OrtHost> {
  const { provider, why } = await chosenProvider(request.provider);
  const place = `onnxruntime-web (${provider}${why === undefined ? '' : `: ${why}`})`;
  const { runtime } = request;
  try {
    if (inNode) return { ort: (await import('onnxruntime-web')) as unknown as Ort, provider, place };
    if (runtime === undefined) {
      return { ort: (await import('onnxruntime-web/webgpu')) as unknown as Ort, provider, place };
    }
    const folder = new URL(`${String(runtime).replace(/\/$/, '')}/`, location.href).href;
    const ort = (await import(/* @vite-ignore */ `${folder}ort.${provider}.bundle.min.mjs`)) as Ort;
    ort.env.wasm.wasmPaths ??= folder;
    return { ort, provider, place };
  } catch (error) {
    throw new SplitkvError(
      'unsupported',
      `prefill kind 'onnxruntime' needs the package onnxruntime-web, which can't be loaded (${
        error instanceof Error ? error.message : String(error)
      }): ${
        inNode
          ? 'npm install onnxruntime-web'
          : "bundle it with the page, name onnxruntime-web/webgpu in an import map, or serve the package's dist folder and name it: prefill: { kind: 'onnxruntime', runtime: '/onnxruntime-web/' }"
      }; or use prefill kind 'splitkv'`,
      { cause: error },
    );
  }
}

/** The provider asked for, or the one that is best here, and why it is where that may surprise. */
async function chosenProvider(asked: OnnxProvider | undefined): Promise<{ provider: OnnxProvider; why?: string }> {
  if (inNode) {
    if (asked !== 'webgpu') return { provider: 'wasm' };
    throw unsupportedError("prefill provider 'webgpu': onnxruntime-web has it in pages only; use 'wasm' in Node");
  }
  if (asked !== undefined) return { provider: asked };
  const adapter = await navigator.gpu?.requestAdapter();
  if (!adapter) return { provider: 'wasm', why: 'there is no WebGPU adapter' };
  // The same CPU, which WebAssembly uses far better than shaders do.
  if (saysCpu(adapter)) return { provider: 'wasm', why: 'the adapter runs on the CPU' };
  return { provider: 'webgpu' };
}
