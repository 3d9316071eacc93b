/**
 * Makes adapters give a disposed device again, with the pipelines that were compiled for it: a short test of a model compiles for most
 * of its time. Of a device that a test destroys by itself nothing is kept. Also run in pages: it uses nothing outside of itself.
 * @param adapters the prototype of GPUAdapter, which is changed once
 */
export function keepDevices(adapters: Pick<GPUAdapter, 'requestDevice' | 'info'>): void {
  if (Object.hasOwn(adapters, 'keepsDevices')) return;
  Object.defineProperty(adapters, 'keepsDevices', { value: true });
  const free = new Map<string, GPUDevice[]>();
  const { requestDevice } = adapters;

  function remember(device: GPUDevice): void {
    const said = new WeakMap<object, string>();
    const pipelines = new Map<string, GPUComputePipeline>();
    const made = <Made extends object>(object: Made, descriptor: unknown): Made => {
      said.set(object, JSON.stringify(descriptor));
      return object;
    };
    const keyOf = ({ layout, compute: { module, ...rest } }: GPUComputePipelineDescriptor): string =>
      JSON.stringify([said.get(layout as GPUPipelineLayout) ?? Math.random(), said.get(module), rest]);
    const kept = (key: string, pipeline: GPUComputePipeline): GPUComputePipeline => {
      pipelines.set(key, pipeline);
      return pipeline;
    };
    const plain = Object.getPrototypeOf(device) as GPUDevice;
    Object.assign(device, {
      createShaderModule: (descriptor: GPUShaderModuleDescriptor) =>
        made(plain.createShaderModule.call(device, descriptor), descriptor),
      createBindGroupLayout: (descriptor: GPUBindGroupLayoutDescriptor) =>
        made(plain.createBindGroupLayout.call(device, descriptor), descriptor),
      createPipelineLayout: (descriptor: GPUPipelineLayoutDescriptor) =>
        made(
          plain.createPipelineLayout.call(device, descriptor),
          [...descriptor.bindGroupLayouts].map((layout) => said.get(layout!)),
        ),
      createComputePipeline: (descriptor: GPUComputePipelineDescriptor) =>
        pipelines.get(keyOf(descriptor)) ??
        kept(keyOf(descriptor), plain.createComputePipeline.call(device, descriptor)),
      createComputePipelineAsync: async (descriptor: GPUComputePipelineDescriptor) =>
        pipelines.get(keyOf(descriptor)) ??
        kept(keyOf(descriptor), await plain.createComputePipelineAsync.call(device, descriptor)),
    });
  }

  adapters.requestDevice = async function (this: GPUAdapter, descriptor) {
    const { vendor, device: name, description } = this.info;
    const key = JSON.stringify([vendor, name, description, descriptor]);
    const again = free.get(key)?.pop();
    if (again) return again;
    const device = await requestDevice.call(this, descriptor);
    remember(device);
    let isLost = false;
    void device.lost.then(() => (isLost = true));
    const destroy = device.destroy.bind(device);
    device.destroy = () => {
      // `Device.dispose` stops listening first.
      if (isLost || device.onuncapturederror !== null) return destroy();
      free.set(key, [...(free.get(key) ?? []), device]);
      return undefined;
    };
    return device;
  };
}
