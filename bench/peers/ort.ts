import { SplitkvError } from '../../src/base/errors.js';
import type { OnnxModel } from './onnx/graph.js';

/** The part of onnxruntime-web's WebGPU build that the benchmarks use. */
export interface OrtTensor {
  readonly dims: readonly number[];
  readonly data: Float32Array;
  readonly gpuBuffer: GPUBuffer;
  dispose(): void;
}

export interface OrtSession {
  run(
    feeds: Readonly<Record<string, OrtTensor>>,
    fetches?: Readonly<Record<string, OrtTensor | null>>,
  ): Promise<Record<string, OrtTensor>>;
  release(): Promise<void>;
}

type DataType = 'float32' | 'float16' | 'int64' | 'int32';

interface OrtModule {
  readonly env: { readonly wasm: { wasmPaths: string; numThreads: number }; logLevel: string };
  readonly Tensor: {
    new (type: DataType, data: ArrayBufferView, dims: readonly number[]): OrtTensor;
    fromGpuBuffer(
      buffer: GPUBuffer,
      options: { readonly dataType: DataType; readonly dims: readonly number[] },
    ): OrtTensor;
  };
  readonly InferenceSession: { create(model: Uint8Array, options: object): Promise<OrtSession> };
  readonly version?: string;
}

/** onnxruntime-web on a WebGPU device of its own, on the adapter that everything here runs on. */
export class Ort {
  private constructor(
    private readonly module: OrtModule,
    readonly device: GPUDevice,
  ) {}

  /**
   * @param folder URL of the package's dist folder
   * @param powerPreference of the adapter
   * @throws SplitkvError `unsupported` where it can't be loaded
   */
  static async open(folder: string, powerPreference: GPUPowerPreference | undefined): Promise<Ort> {
    let module: OrtModule;
    try {
      module = (await import(/* @vite-ignore */ `${folder}ort.webgpu.bundle.min.mjs`)) as OrtModule;
    } catch (error) {
      throw new SplitkvError('unsupported', `onnxruntime-web can't be loaded from ${folder}: ${String(error)}`, {
        cause: error,
      });
    }
    module.env.wasm.wasmPaths = folder;
    module.env.wasm.numThreads = 1;
    module.env.logLevel = 'error';
    const adapter = (await navigator.gpu.requestAdapter(powerPreference ? { powerPreference } : {}))!;
    // Everything that it may make use of: subgroups, f16, and the adapter's own limits.
    const requiredLimits: Record<string, number> = {};
    for (const key in adapter.limits) {
      const value = (adapter.limits as unknown as Record<string, unknown>)[key];
      if (typeof value === 'number') requiredLimits[key] = value;
    }
    // With subgroups of 4 invocations, which only software adapters have, its prompts come out wrong.
    const software = adapter.info.isFallbackAdapter ?? false;
    const requiredFeatures = [...(adapter.features as Set<GPUFeatureName>)].filter(
      (name) => !(software && name.includes('subgroup')),
    );
    return new Ort(module, await adapter.requestDevice({ label: 'onnxruntime-web', requiredFeatures, requiredLimits }));
  }

  /** @param onGpu names of outputs that stay on the GPU */
  session({ model, files }: OnnxModel, onGpu: readonly string[]): Promise<OrtSession> {
    return this.module.InferenceSession.create(model, {
      executionProviders: [{ name: 'webgpu', device: this.device }],
      externalData: files,
      preferredOutputLocation: Object.fromEntries(onGpu.map((name) => [name, 'gpu-buffer'])),
    });
  }

  tensor(type: DataType, data: ArrayBufferView, dims: readonly number[]): OrtTensor {
    return new this.module.Tensor(type, data, dims);
  }

  integers(values: readonly number[], dims: readonly number[]): OrtTensor {
    return this.tensor('int64', BigInt64Array.from(values, BigInt), dims);
  }

  /** A zeroed tensor on the GPU, or one of the values given. */
  onGpu(
    dims: readonly number[],
    data?: Float32Array<ArrayBuffer>,
    dataType: 'float32' | 'float16' = 'float32',
  ): OrtTensor {
    const size = (dataType === 'float16' ? 2 : 4) * dims.reduce((product, extent) => product * extent, 1);
    const usage = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST;
    const buffer = this.device.createBuffer({ size, usage });
    if (data) this.device.queue.writeBuffer(buffer, 0, data);
    return this.module.Tensor.fromGpuBuffer(buffer, { dataType, dims });
  }

  async read(buffer: GPUBuffer): Promise<Float32Array> {
    const { size } = buffer;
    const staging = this.device.createBuffer({ size, usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST });
    const encoder = this.device.createCommandEncoder();
    encoder.copyBufferToBuffer(buffer, 0, staging, 0, size);
    this.device.queue.submit([encoder.finish()]);
    await staging.mapAsync(GPUMapMode.READ);
    const values = new Float32Array(staging.getMappedRange().slice(0));
    staging.destroy();
    return values;
  }

  done(): Promise<undefined> {
    return this.device.queue.onSubmittedWorkDone();
  }

  close(): void {
    this.device.destroy();
  }
}
