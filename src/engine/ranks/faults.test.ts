import { describe, expect, test, vi } from 'vitest';
import { openDevice } from '../../gpu/index.js';
import { testAdapters } from '../../gpu/testing/adapters.js';
import { load } from '../faces/load.js';
import { openRunner } from '../testing/open_runner.js';
import { randomFiles } from '../testing/random_source.js';

// The last is the quicker one to compile for, where there are two software adapters.
const adapter = (await testAdapters()).at(-1);

const open = (layers: number): ReturnType<typeof openRunner> =>
  openRunner({
    adapter: adapter!.name,
    model: { seed: 3, config: { num_hidden_layers: layers } },
    weights: 'f16',
  });

describe('decode loop', () => {
  test('creates no buffer, bind group or pipeline, and uses one compute pass and one submit a step', async () => {
    const { device, runner } = await open(2);
    await runner.prefill([1, 2, 3], 400, { seed: 0 });
    await runner.sampleFirst();
    const { gpu } = device;
    const created = (
      [
        'createBuffer',
        'createBindGroup',
        'createBindGroupLayout',
        'createComputePipeline',
        'createComputePipelineAsync',
        'createShaderModule',
        'createPipelineLayout',
      ] as const
    ).map((name) => vi.spyOn(gpu, name));
    const submits = vi.spyOn(gpu.queue, 'submit');
    const passes = vi.fn();
    const createEncoder = gpu.createCommandEncoder.bind(gpu);
    const encoders = vi.spyOn(gpu, 'createCommandEncoder').mockImplementation((descriptor) => {
      const encoder = createEncoder(descriptor);
      const begin = encoder.beginComputePass.bind(encoder);
      encoder.beginComputePass = (...args) => {
        passes();
        return begin(...args);
      };
      return encoder;
    });
    // Past the first 256-token chunk, so that a longer cache needs nothing new either.
    for (let step = 0; step < 300; step++) await runner.step();
    for (const spy of created) expect(spy, spy.getMockName()).not.toHaveBeenCalled();
    expect(encoders).toHaveBeenCalledTimes(300);
    expect(passes).toHaveBeenCalledTimes(300);
    expect(submits).toHaveBeenCalledTimes(300);
    vi.restoreAllMocks();
    device.dispose();
  });

  test('takes at most 8 dispatches per layer', async () => {
    const [two, five] = [await open(2), await open(5)];
    expect((five.runner.dispatchesPerToken - two.runner.dispatchesPerToken) / 3).toBeLessThanOrEqual(8);
    two.group.dispose();
    five.group.dispose();
  });
});

describe('faults', () => {
  test.each(['prefill', 'first token', 'later'])(
    'a device lost during %s ends the generation with device_lost',
    async (when) => {
      const { files } = randomFiles({ seed: 3 });
      const device = vi.spyOn(GPUAdapter.prototype, 'requestDevice');
      const model = await load(files, { adapter: adapter!.name });
      const gpu = (await device.mock.results[0]!.value) as GPUDevice;
      vi.restoreAllMocks();
      const generation = model.generate(
        Array.from({ length: 900 }, (_, i) => i % 320),
        { ignoreEos: true, maxTokens: 100 },
      );
      if (when === 'prefill') gpu.destroy();
      let pieces = 0;
      const iterate = async (): Promise<void> => {
        for await (const _piece of generation) if (++pieces === (when === 'later' ? 5 : 1)) gpu.destroy();
      };
      await expect(iterate()).rejects.toMatchObject({ code: 'device_lost', message: expect.stringContaining('lost') });
      await expect(generation.result).rejects.toMatchObject({ code: 'device_lost' });
      await expect(model.generate([1]).result).rejects.toMatchObject({ code: 'device_lost' });
      await expect(model.logits([1])).rejects.toMatchObject({ code: 'device_lost' });
      await model.dispose();
    },
  );

  test('dispose frees every buffer, also while a generation runs, and later calls say so', async () => {
    const { files } = randomFiles({ seed: 3 });
    const created: GPUBuffer[] = [];
    const destroyed = new Set<GPUBuffer>();
    const request = vi.spyOn(GPUAdapter.prototype, 'requestDevice');
    const model = await load(files, { adapter: adapter!.name });
    const gpu = (await request.mock.results[0]!.value) as GPUDevice;
    vi.restoreAllMocks();
    const create = gpu.createBuffer.bind(gpu);
    vi.spyOn(gpu, 'createBuffer').mockImplementation((descriptor) => {
      const buffer = create(descriptor);
      created.push(buffer);
      const destroy = buffer.destroy.bind(buffer);
      buffer.destroy = () => {
        destroyed.add(buffer);
        return destroy();
      };
      return buffer;
    });
    await model.logits([1, 2, 3], { all: true });
    expect(created.length).toBeGreaterThan(0);
    expect(created.filter((buffer) => !destroyed.has(buffer))).toEqual([]);
    const generation = model.generate([1, 2], { ignoreEos: true, maxTokens: 800 });
    for await (const _piece of generation) {
      await model.dispose();
    }
    expect((await generation.result).finish_reason).toBe('abort');
    await expect(model.generate([1]).result).rejects.toMatchObject({
      code: 'usage',
      message: expect.stringContaining('disposed'),
    });
  });

  test('loading frees everything when it fails, and stops on abort', async () => {
    const { files } = randomFiles({ seed: 3 });
    const destroy = vi.spyOn(GPUDevice.prototype, 'destroy');
    const controller = new AbortController();
    const loading = load(files, {
      adapter: adapter!.name,
      signal: controller.signal,
      onProgress: ({ phase, tensorsLoaded }) => {
        if (phase === 'weights' && tensorsLoaded === 3) controller.abort();
      },
    });
    await expect(loading).rejects.toMatchObject({ code: 'aborted' });
    expect(destroy).toHaveBeenCalled();
    vi.restoreAllMocks();
    const { files: wrong } = randomFiles({ seed: 3, config: { intermediate_size: 256 } });
    const config = wrong.find((file) => file.name === 'config.json')!;
    const mixed = [config, ...files.filter((file) => file.name !== 'config.json')];
    await expect(load(mixed, { adapter: adapter!.name })).rejects.toMatchObject({
      code: 'format',
      message: expect.stringMatching(/mlp\.(gate|up|down)_proj\.weight.*(256|128)/),
    });
  });

  test('a GPU error that nobody catches counts as a loss instead of leaving stale results', async () => {
    const device = await openDevice({ adapterName: adapter!.name });
    const uniform = device.createBuffer('too small for its copy', 16, 'uniform');
    const encoder = device.gpu.createCommandEncoder();
    encoder.copyBufferToBuffer(uniform.gpu, 0, uniform.gpu, 12, 16);
    device.gpu.queue.submit([encoder.finish()]);
    await expect(device.wait(device.gpu.queue.onSubmittedWorkDone())).rejects.toMatchObject({
      code: 'device_lost',
      message: expect.stringMatching(/it reported: [^]*too small for its copy/),
    });
    expect(() => device.assertAlive()).toThrow('too small for its copy');
    device.dispose();
  });

  test('a GPU that finishes nothing counts as lost, one that is only slow does not', async () => {
    const device = await openDevice({ adapterName: adapter!.name });
    vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
    try {
      const hung = device.wait(new Promise(() => {}));
      hung.catch(() => {}); // awaited below
      for (let minutes = 0; minutes < 18; minutes += 9) {
        vi.advanceTimersByTime(9 * 60_000);
        await device.wait(Promise.resolve());
      }
      expect(device.isLost).toBe(false);
      vi.advanceTimersByTime(10 * 60_000);
      await expect(hung).rejects.toMatchObject({ code: 'device_lost', message: expect.stringContaining('600 s') });
      await device.lost;
      expect(vi.getTimerCount()).toBe(0);
    } finally {
      vi.useRealTimers();
      device.dispose();
    }
  });

  test('an unknown adapter name lists what there is', async () => {
    const { files } = randomFiles({ seed: 3 });
    await expect(load(files, { adapter: 'no such adapter' })).rejects.toMatchObject({
      code: 'no_webgpu',
      message: expect.stringContaining(adapter!.name),
    });
  });

  test('a KV cache or a matrix beyond the adapter names the limit', async () => {
    const device = await openDevice({ adapterName: adapter!.name });
    const limit = device.traits.limits.maxStorageBufferBindingSize;
    expect(() => device.createBuffer('k_cache', limit + 4)).toThrow(/maxStorageBufferBindingSize|maxBufferSize/);
    device.dispose();
  });
});
