import { SplitkvError } from '../../../base/errors.js';

/** The part of onnxruntime-web that is used here. */
export interface OrtTensor {
  readonly data: Float32Array;
  dispose(): void;
}
export interface OrtSession {
  run(feeds: Readonly<Record<string, OrtTensor>>): Promise<Record<string, OrtTensor>>;
  release(): Promise<void>;
}
export interface Ort {
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

/** Where it computes: in Node its WebAssembly; in a page WebGPU, where there is any. */
export interface OrtHost {
  readonly ort: Ort;
  readonly providers: readonly string[];
}

/** Loads the optional package. @throws SplitkvError `unsupported` when it isn't there */
export async function openOrt(): Promise<OrtHost> {
  const node = globalThis.process?.versions?.node !== undefined;
  try {
    if (node) return { ort: (await import('onnxruntime-web')) as unknown as Ort, providers: ['wasm'] };
    return { ort: (await import('onnxruntime-web/webgpu')) as unknown as Ort, providers: ['webgpu', 'wasm'] };
  } catch (error) {
    throw new SplitkvError(
      'unsupported',
      `prefill kind 'onnxruntime' needs the package onnxruntime-web, which can't be loaded (${
        error instanceof Error ? error.message : String(error)
      }): ${
        node
          ? 'npm install onnxruntime-web'
          : 'bundle it with the page, or name onnxruntime-web/webgpu in an import map'
      }; or use prefill kind 'splitkv'`,
      { cause: error },
    );
  }
}
