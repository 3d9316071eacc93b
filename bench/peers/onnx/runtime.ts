import { SplitkvError } from '../../../src/base/errors.js';

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

const inNode = globalThis.process?.versions?.node !== undefined;

/**
 * Loads the package's WebAssembly build.
 * @param folder in pages: URL of the package's dist folder
 * @throws SplitkvError `unsupported` where it can't be loaded
 */
export async function openWasm(folder: string | undefined): Promise<Ort> {
  try {
    if (inNode || folder === undefined) return (await import('onnxruntime-web')) as unknown as Ort;
    const ort = (await import(/* @vite-ignore */ `${folder}ort.wasm.bundle.min.mjs`)) as Ort;
    ort.env.wasm.wasmPaths ??= folder;
    return ort;
  } catch (error) {
    throw new SplitkvError('unsupported', `onnxruntime-web can't be loaded: ${String(error)}`, { cause: error });
  }
}
