import { isNode } from '../base/platform.js';
import {
  deviceLostError,
  internalError,
  limitError,
  noWebGpuError,
  type SplitkvError,
  usageError,
} from '../base/errors.js';
import { valueIn } from '../base/lists.js';
import { alignUp, formatBytes, grouped } from '../base/math.js';
import { inParallel, inTime, pause } from '../base/waits.js';
import type { Access, CompiledPipeline, PipelineSource } from './kernel.js';
import { pacing, saysCpu } from './cpu_adapter.js';
import { adapterFlushes, shaderModule, STRICT_MATH } from './shader_module.js';
import { Choices } from './choices.js';

/**
 * How prompts may be multiplied with precision 'fast': products of numbers rounded to f16, products of bytes by packed_4x8_integer_dot_product,
 * or matrix units that multiply rows x depth by depth x outputs: `matrix ROWSxOUTPUTSxDEPTH` of f16 with sums in f32, `matrix f32 ...` of
 * f32, `matrix f16 ...` of f16 with sums in f16 of 32 products at most. All other sums are f32.
 */
export type FastPath = 'f16' | 'dot4' | `matrix ${'' | 'f32 ' | 'f16 '}${number}x${number}x${number}`;

/** What kernels may base a decision on: features and limits, never a browser's name. Plain data. */
export interface DeviceTraits {
  readonly limits: Readonly<Record<(typeof PLANNED_LIMITS)[number], number>>;
  /** The shader-f16 feature is enabled. */
  readonly f16: boolean;
  /** Plan for an adapter that runs on the CPU: workgroup barriers are dear and lanes are few. */
  readonly software: boolean;
  /** Unroll hot loops, which changes no bit: a GPU waits less, and a CPU's compiler takes many seconds for it. */
  readonly unroll: boolean;
  /** Takes subnormal f16s for zero where they are unpacked. */
  readonly flushesHalves?: boolean;
  /** One of a kernel's `tunings`. */
  readonly tuning?: string;
  /** Undefined: prompts are multiplied as exactly as generated tokens. */
  readonly fast?: {
    /** The first that fits the weights is taken; none: exactly. */
    readonly paths: readonly FastPath[];
    /** Invocations of the largest subgroup. */
    readonly subgroup: number;
    /** The feature that has matrix units. */
    readonly matrix?: string | undefined;
  };
}

/** Kernels have variants for GPUs and for adapters that run on the CPU. */
export type Variants = 'hardware' | 'software';

/** The adapter as a person knows it. */
export interface AdapterDescription {
  readonly vendor: string;
  readonly architecture: string;
  readonly device: string;
  readonly description: string;
  /** Runs on the CPU. */
  readonly software: boolean;
  /** Which variants of kernels are planned for it: by default those for what it is. */
  readonly variants: Variants;
  /** With precision 'fast': how prompts may be multiplied, the best way first. */
  readonly fast?: readonly FastPath[];
}

/** What takes the place of a kernel's variant that is wrong: its plain form, or with precision 'fast' its exact one. */
export type Replacement = 'plain' | 'exact';

/** A GPU buffer that its device counts until `dispose`. */
export class Buffer {
  #disposed = false;

  constructor(
    readonly device: Device,
    readonly gpu: GPUBuffer,
    readonly size: number,
    readonly label: string,
  ) {}

  dispose(): void {
    if (this.#disposed) return;
    this.#disposed = true;
    this.gpu.destroy();
    this.device.forget(this);
  }
}

/** Asked for as high as the adapter has them, and known to plans. */
const RAISED_LIMITS = [
  'maxStorageBufferBindingSize',
  'maxBufferSize',
  'maxComputeWorkgroupStorageSize',
  'maxComputeInvocationsPerWorkgroup',
  'maxStorageBuffersPerShaderStage',
] as const;
const PLANNED_LIMITS = [
  ...RAISED_LIMITS,
  'maxComputeWorkgroupsPerDimension',
  'minUniformBufferOffsetAlignment',
  'minStorageBufferOffsetAlignment',
] as const;
const ASKED_LIMITS = [...RAISED_LIMITS, 'maxComputeWorkgroupSizeX'] as const;

/** Nothing to wait for takes no longer where browsers tell at once. */
const PROMPT_MS = 20;
const NUDGE_MS = 2;

interface KnownPipeline extends CompiledPipeline {
  readonly source: PipelineSource;
  /** Resolves when it is compiled, or couldn't be. */
  created?: Promise<void> | undefined;
}

/** How long a GPU may finish nothing that is waited for; an adapter on the CPU takes minutes for what a GPU does in a second. */
const HANG_MS = { hardware: 60_000, software: 600_000 };
/** Looks at it before it counts as hung: ticks rather than time, as a computer that slept isn't a GPU that hangs. */
const HANG_TICKS = 10;
/** How long a lost device may take to end what it compiles. */
const LOST_COMPILE_MS = 2000;
/** Pipelines compiled at once: drivers have a few threads for it. */
const AT_ONCE = 4;
/** How long an adapter may take for a device. */
const OPEN_MS = 60_000;
const keyOf = ({ name, code }: PipelineSource): string => `${name}\n${code}`;
/** Asked for where there are. */
const FEATURES: readonly string[] = ['shader-f16', 'timestamp-query', STRICT_MATH];

/** One GPUDevice with its adapter's description, a pipeline cache, and a count of what it holds. */
export class Device {
  readonly traits: DeviceTraits;
  readonly adapter: AdapterDescription;
  /** Resolves when the device counts as lost. */
  readonly lost: Promise<void>;
  #tellLost!: () => void;
  /** Of what was recorded: kernels and problems with several plans of the same bits. */
  readonly choices = new Choices();
  readonly #buffers = new Set<Buffer>();
  readonly #pipelines = new Map<string, KnownPipeline>();
  /** While programs are recorded: their pipelines that are being compiled. */
  #compiling: Set<KnownPipeline> | undefined;
  readonly #placeholders = new Map<string, Buffer>();
  readonly #planned = new Map<string, Set<string>>();
  /** Rejects each wait that is pending. */
  readonly #pendingWaits = new Set<(lost: SplitkvError) => void>();
  /** Waits under way, and looks at them since one ended. */
  #waits = 0;
  #silentTicks = 0;
  #watch: ReturnType<typeof setInterval> | undefined;
  #lostReason: string | undefined;
  #disposed = false;
  #nudges = false;
  /** Milliseconds from the end of work to when this thread hears of it, as `settle` measured it; 0 before. */
  waitMs = 0;
  #replacementOf = (_kernel: string): Replacement | undefined => undefined;

  private constructor(
    readonly gpu: GPUDevice,
    adapter: GPUAdapter,
    software: boolean,
    variants: Variants | undefined,
    fast: DeviceTraits['fast'],
    flushes: boolean,
  ) {
    const { limits } = gpu;
    const info = adapter.info;
    this.adapter = {
      vendor: info.vendor,
      architecture: info.architecture,
      device: info.device,
      description: info.description,
      software,
      variants: variants ?? (software ? 'software' : 'hardware'),
      ...(fast && { fast: fast.paths }),
    };
    this.traits = {
      limits: Object.fromEntries(PLANNED_LIMITS.map((name) => [name, limits[name]])) as DeviceTraits['limits'],
      f16: gpu.features.has('shader-f16'),
      software: this.adapter.variants === 'software',
      unroll: !software,
      ...(flushes && { flushesHalves: true }),
      ...(fast && { fast }),
    };
    this.lost = new Promise((resolve) => (this.#tellLost = resolve));
    void gpu.lost.then((lost) => this.lose(lost.message || lost.reason || 'unknown reason'));
    // Errors outside `checked` would otherwise leave stale results that look like answers. A new device may do without them.
    gpu.onuncapturederror = ({ error }) => this.lose(`it reported: ${error.message}`);
  }

  /**
   * Opens a device on the adapter with every limit kernels can use raised to what the adapter offers.
   * @param variants of kernels to plan; default: those for what the adapter is
   * @param fast with precision 'fast': how prompts may be multiplied
   * @param flushes tells `flushesHalves` of a GPU
   */
  static async open(
    adapter: GPUAdapter,
    variants?: Variants,
    fast?: DeviceTraits['fast'],
    flushes = (gpu: GPUDevice): Promise<boolean> => adapterFlushes(adapter, gpu),
  ): Promise<Device> {
    const { paths = [], matrix } = fast ?? {};
    const units = matrix !== undefined && paths.some((path) => path.startsWith('matrix'));
    const wanted = units ? [...FEATURES, 'subgroups', matrix] : FEATURES;
    const features = wanted.filter((feature) => adapter.features.has(feature)) as GPUFeatureName[];
    const requiredLimits = Object.fromEntries(ASKED_LIMITS.map((name) => [name, adapter.limits[name]]));
    let device: GPUDevice;
    try {
      device = await inTime(
        adapter.requestDevice({ label: 'splitkv', requiredFeatures: features, requiredLimits }),
        OPEN_MS,
      );
    } catch (error) {
      throw noWebGpuError(`the adapter refused a device: ${String(error)}. Reload, or choose another adapter`, error);
    }
    const software = saysCpu(adapter);
    return new Device(device, adapter, software, variants, fast, !software && (await flushes(device)));
  }

  /** Name for people: the most telling of the adapter's fields. In Node a GPU's description is that of its driver. */
  get name(): string {
    const { description, device, vendor, architecture, software } = this.adapter;
    const [first, second] = isNode() && !software ? [device, description] : [description, device];
    return first || second || `${vendor} ${architecture}`.trim() || 'unknown adapter';
  }

  get isLost(): boolean {
    return this.#lostReason !== undefined;
  }

  /** Counts as lost from now on: nothing that it computes can be relied on. */
  lose(reason: string): void {
    if (this.isLost) return;
    this.#lostReason = reason;
    this.#tellLost();
    for (const reject of this.#pendingWaits) reject(this.#lostError());
  }

  /** Live buffers and their bytes (the pipeline cache's placeholders not counted). */
  get usage(): { readonly buffers: number; readonly bytes: number } {
    let bytes = 0;
    for (const buffer of this.#buffers) bytes += buffer.size;
    return { buffers: this.#buffers.size, bytes };
  }

  /** Bytes of the largest buffer that one binding holds. */
  get bindingLimit(): number {
    const { maxBufferSize, maxStorageBufferBindingSize } = this.traits.limits;
    return Math.min(maxBufferSize, maxStorageBufferBindingSize);
  }

  /** `size` bytes (rounded up to 4), zeroed. @throws SplitkvError `limit` where one buffer or binding can't hold it */
  createBuffer(label: string, size: number, kind: 'storage' | 'uniform' | 'staging' = 'storage'): Buffer {
    this.assertAlive();
    const bytes = alignUp(Math.max(size, 4), 4);
    const { maxBufferSize } = this.traits.limits;
    const limit = kind === 'storage' ? this.bindingLimit : maxBufferSize;
    if (bytes > limit) {
      const name = limit === maxBufferSize ? 'maxBufferSize' : 'maxStorageBufferBindingSize';
      throw limitError(
        `${label}: ${grouped(bytes)} bytes exceed this adapter's ${name} of ${grouped(limit)} (${this.name}); ` +
          'use smaller weights (--weights q4), a shorter context, or another adapter',
      );
    }
    const usage =
      kind === 'staging'
        ? GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST
        : (kind === 'uniform' ? GPUBufferUsage.UNIFORM : GPUBufferUsage.STORAGE) |
          GPUBufferUsage.COPY_DST |
          GPUBufferUsage.COPY_SRC;
    const buffer = new Buffer(this, this.gpu.createBuffer({ label, size: bytes, usage }), bytes, label);
    this.#buffers.add(buffer);
    return buffer;
  }

  /** @internal */
  forget(buffer: Buffer): void {
    this.#buffers.delete(buffer);
  }

  /** Copies host bytes into a buffer. Offsets and lengths are in bytes, multiples of 4. */
  write(buffer: Buffer, offset: number, data: ArrayBufferView): void {
    this.gpu.queue.writeBuffer(buffer.gpu, offset, data.buffer, data.byteOffset, data.byteLength);
  }

  /** Reads bytes back; for tests, logits and other cold paths (it creates a staging buffer). */
  async read(buffer: Buffer, offset = 0, size = buffer.size - offset): Promise<ArrayBuffer> {
    const staging = this.createBuffer('read back', size, 'staging');
    try {
      const encoder = this.gpu.createCommandEncoder({ label: 'read back' });
      encoder.copyBufferToBuffer(buffer.gpu, offset, staging.gpu, 0, alignUp(size, 4));
      this.gpu.queue.submit([encoder.finish()]);
      await this.wait(staging.gpu.mapAsync(GPUMapMode.READ));
      return staging.gpu.getMappedRange(0, alignUp(size, 4)).slice(0, size);
    } finally {
      staging.dispose();
    }
  }

  /**
   * Awaits GPU work; rejects with `device_lost` when the device goes away meanwhile, or when nothing that is waited for ends for a minute
   * (on the CPU ten), so no wait can hang.
   */
  async wait<T>(work: Promise<T>): Promise<T> {
    this.#beginWait();
    const pacer = this.adapter.software ? pacing.pacer : undefined;
    pacer?.begin();
    const nudges = this.#nudges ? setInterval(() => this.gpu.queue.submit([]), NUDGE_MS) : undefined;
    try {
      return await this.orLost(work);
    } catch (error) {
      if (this.isLost) throw this.#lostError();
      // A map that fails because of a loss can reject before `lost` settles: give it one turn to say so.
      await this.orLost(pause(50));
      throw error;
    } finally {
      clearInterval(nudges);
      pacer?.end();
      this.#silentTicks = 0;
      if (--this.#waits === 0) clearInterval(this.#watch);
    }
  }

  #beginWait(): void {
    if (this.#waits++ > 0) return;
    this.#silentTicks = 0;
    const ms = this.adapter.software ? HANG_MS.software : HANG_MS.hardware;
    this.#watch = setInterval(() => {
      if (++this.#silentTicks < HANG_TICKS) return;
      this.lose(`it finished nothing for ${ms / 1000} s, though work was submitted: the driver hangs`);
    }, ms / HANG_TICKS);
    // Nothing goes on for its sake alone.
    (this.#watch as { unref?: () => void }).unref?.();
  }

  /** Awaits all work, and learns whether browsers tell of it only each 100 ms: then empty submits nudge later waits. */
  async settle(): Promise<void> {
    await this.wait(this.gpu.queue.onSubmittedWorkDone());
    let least = Infinity;
    for (let round = 0; round < 3; round++) {
      const started = performance.now();
      this.gpu.queue.submit([]);
      await this.wait(this.gpu.queue.onSubmittedWorkDone());
      least = Math.min(least, performance.now() - started);
    }
    this.#nudges = least > PROMPT_MS;
    this.waitMs = this.#nudges ? NUDGE_MS : least;
  }

  /** Awaits anything else, say a peer's message; rejects with `device_lost` when this device goes away meanwhile. */
  orLost<T>(work: Promise<T>): Promise<T> {
    // Not Promise.race with one promise for the loss: that would hold on to every wait for as long as the device lives.
    return new Promise((resolve, reject) => {
      if (this.isLost) reject(this.#lostError());
      this.#pendingWaits.add(reject);
      void work.then(resolve, reject).finally(() => this.#pendingWaits.delete(reject));
    });
  }

  /**
   * Runs `body` in error scopes for validation, memory and internal errors, and throws what they caught.
   * @throws SplitkvError `limit` when the GPU ran out of memory, `internal` for a validation error (a bug here).
   */
  async checked<T>(what: string, body: () => T | Promise<T>): Promise<T> {
    this.assertAlive();
    const scopes: GPUErrorFilter[] = ['internal', 'out-of-memory', 'validation'];
    for (const scope of scopes) this.gpu.pushErrorScope(scope);
    let result: T | undefined;
    let thrown: { error: unknown } | undefined;
    try {
      result = await body();
    } catch (error) {
      thrown = { error };
    }
    const caught: (GPUError | null)[] = [];
    for (const _scope of scopes) caught.push(await this.wait(this.gpu.popErrorScope()));
    if (thrown) throw thrown.error;
    const [validation, memory, internal] = caught;
    if (memory) {
      throw limitError(
        `${what}: the GPU (${this.name}) is out of memory (${formatBytes(this.usage.bytes)} held by splitkv); ` +
          'use smaller weights (--weights q4) or a shorter context',
      );
    }
    const error = validation ?? internal;
    if (error) throw internalError(`${what}: ${error.message}`);
    return result as T;
  }

  /**
   * As `checked`, for a body that records programs and runs nothing: their pipelines are compiled beside whatever else the thread
   * does, and are there when this resolves.
   */
  async recorded<T>(what: string, body: () => T): Promise<T> {
    const compiling = new Set<KnownPipeline>();
    const result = await this.checked(what, () => {
      this.#compiling = compiling;
      try {
        return body();
      } finally {
        this.#compiling = undefined;
      }
    });
    const created = Promise.all([...compiling].map((each) => each.created ?? Promise.resolve()));
    try {
      await this.wait(created);
    } catch (error) {
      // Nothing is destroyed while a driver still compiles, unless it never ends.
      await Promise.race([created, pause(LOST_COMPILE_MS)]);
      throw error;
    }
    const failed = [...compiling].filter(({ pipeline }) => !pipeline);
    // Says what is wrong, if anything is.
    if (failed.length > 0) await this.checked(what, () => failed.forEach(({ source }) => this.pipelineOf(source)));
    return result;
  }

  /** What was planned of each kernel that programs were recorded of, by its name: 'hardware', 'software', 'hardware, dot4'; ' + ' between several. */
  get planned(): Readonly<Record<string, string>> {
    return Object.fromEntries(
      [...this.#planned].map(([kernel, variants]) => [kernel, [...variants].sort().join(' + ')]),
    );
  }

  /**
   * Which kernels are planned otherwise from now on, as their variants compute wrongly: 'plain' as for an adapter that runs on the CPU
   * and has no feature, 'exact' as without precision 'fast'. Forgets what was `planned`.
   */
  replace(replacementOf: (kernel: string) => Replacement | undefined): void {
    this.#replacementOf = replacementOf;
    this.#planned.clear();
  }

  /** @internal What a kernel is to be planned with, in a program that is being recorded. */
  traitsOf(kernel: string): DeviceTraits {
    const replacement = this.#replacementOf(kernel);
    if (replacement === undefined) return this.traits;
    const { fast: _, ...exact } = this.traits;
    return replacement === 'exact' ? exact : { ...exact, software: true, f16: false };
  }

  /** @internal What was planned of it. */
  note(kernel: string, { software }: DeviceTraits, fast: FastPath | undefined): void {
    const variant = software ? 'software' : fast === undefined ? 'hardware' : `hardware, ${fast}`;
    valueIn(this.#planned, kernel, () => new Set()).add(variant);
  }

  /** @internal What its pipelines are made of. */
  get pipelineSources(): readonly PipelineSource[] {
    return [...this.#pipelines.values()].map(({ source }) => source);
  }

  /** @internal Whether `pipelineOf` has it at hand. */
  isCompiled(source: PipelineSource): boolean {
    return this.#pipelines.get(keyOf(source))?.pipeline !== undefined;
  }

  /** @internal Compiles what isn't compiled yet, and waits for it where no `recorded` does. */
  pipelineOf(source: PipelineSource): CompiledPipeline {
    const key = keyOf(source);
    const known = this.#pipelines.get(key);
    if (known?.pipeline) return known;
    if (known?.created && this.#compiling) {
      this.#compiling.add(known);
      return known;
    }
    this.assertAlive();
    const { layout, descriptor } = this.#describe(source);
    const compiled: KnownPipeline = known ?? { source, layout, pipeline: undefined };
    this.#pipelines.set(key, compiled);
    if (!this.#compiling) {
      compiled.pipeline = this.gpu.createComputePipeline(descriptor);
      return compiled;
    }
    compiled.created = this.gpu.createComputePipelineAsync(descriptor).then(
      (pipeline) => void (compiled.pipeline ??= pipeline),
      () => (compiled.created = undefined),
    );
    this.#compiling.add(compiled);
    return compiled;
  }

  /**
   * Compiles pipelines beside whatever else is done, so that `pipelineOf` finds them. One that can't be compiled is left out.
   * @param signal when it fires no more are begun
   * @param onProgress told how many of how many are compiled
   */
  async compile(
    sources: readonly PipelineSource[],
    signal: AbortSignal | undefined,
    onProgress: (compiled: number, total: number) => void,
  ): Promise<void> {
    const left = sources.filter((source) => !this.isCompiled(source));
    const total = left.length;
    let done = 0;
    onProgress(done, total);
    await inParallel(left, AT_ONCE, async (source) => {
      if (signal?.aborted || this.#disposed || this.isLost) return;
      this.gpu.pushErrorScope('validation');
      const { layout, descriptor } = this.#describe(source);
      const creating = this.gpu.createComputePipelineAsync(descriptor);
      const scope = this.gpu.popErrorScope();
      const [pipeline] = await this.wait(Promise.allSettled([creating, scope]));
      if (pipeline.status === 'fulfilled')
        valueIn(this.#pipelines, keyOf(source), () => ({ source, layout, pipeline: pipeline.value }));
      onProgress(++done, total);
    });
  }

  #describe({ name: label, bindings, code }: PipelineSource) {
    const visibility = GPUShaderStage.COMPUTE;
    const entries: GPUBindGroupLayoutEntry[] = bindings.map((access, binding) => ({
      binding,
      visibility,
      buffer: { type: access === 'read' ? 'read-only-storage' : 'storage' },
    }));
    entries.push({ binding: entries.length, visibility, buffer: { type: 'uniform' } });
    const layout = this.gpu.createBindGroupLayout({ label, entries });
    const module = shaderModule(this.gpu, label, code);
    const bound = this.gpu.createPipelineLayout({ label, bindGroupLayouts: [layout] });
    return { layout, descriptor: { label, layout: bound, compute: { module } } };
  }

  /** @internal A small buffer for a binding that a variant declares but doesn't use; one a name, so that none alias. */
  placeholder(name: string, access: Access): Buffer {
    const key = `${name} ${access}`;
    return valueIn(this.#placeholders, key, () => {
      const buffer = this.createBuffer(`placeholder ${key}`, 16);
      this.#buffers.delete(buffer);
      return buffer;
    });
  }

  assertAlive(): void {
    if (this.isLost) throw this.#lostError();
    if (this.#disposed) throw usageError('this GPU device was disposed; load the model again');
  }

  #lostError(): SplitkvError {
    return deviceLostError(
      `the GPU device was lost (${this.name}): ${this.#lostReason}. Load the model again; if it happens again, use smaller weights or another adapter`,
    );
  }

  dispose(): void {
    if (this.#disposed) return;
    this.#disposed = true;
    for (const buffer of this.#buffers) buffer.dispose();
    for (const buffer of this.#placeholders.values()) buffer.dispose();
    this.#pipelines.clear();
    // Dawn in Node holds on to it, and so to this device, for as long as the process lives.
    this.gpu.onuncapturederror = null;
    this.gpu.destroy();
  }
}
