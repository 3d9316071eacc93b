import { inTime } from '../base/waits.js';

export const STRICT_MATH = 'shader-module-compilation-options';

const FUNCTION = /^(?:@[^;\n]*\n)*fn (\w+)/gm;

/** Without functions that nothing calls: beside them llvmpipe makes loops a tenth slower. */
export function calledOnly(code: string): string {
  const bare = code.replaceAll(/\/\/.*/g, '');
  const uses = new Map<string, number>();
  for (const word of bare.match(/\w+/g) ?? []) uses.set(word, (uses.get(word) ?? 0) + 1);
  let called = '';
  let at = 0;
  for (const { 0: head, 1: name, index } of bare.matchAll(FUNCTION)) {
    if (head.startsWith('@') || uses.get(name!)! > 1) continue;
    called += bare.slice(at, index);
    // By braces: published WGSL isn't indented.
    at = bare.indexOf('{', index) + 1;
    for (let depth = 1; depth > 0 && at < bare.length; at++) depth += { '{': 1, '}': -1 }[bare[at]!] ?? 0;
  }
  called += bare.slice(at);
  return called === bare ? bare : calledOnly(called);
}

/** Without what "fast math" may do to sums and subnormal numbers, where the browser lets choose. */
export function shaderModule(gpu: GPUDevice, label: string, code: string): GPUShaderModule {
  const strict = gpu.features.has(STRICT_MATH) ? { strictMath: true } : {};
  return gpu.createShaderModule({ label, code: calledOnly(code), ...strict });
}

/** The least f16 above 0 and 0, unpacked: whether it is one. */
const WGSL = /* wgsl */ `
@group(0) @binding(0) var<storage, read_write> halves: array<u32>;

@compute @workgroup_size(1)
fn main() {
  halves[0] = select(0u, 1u, unpack2x16float(halves[0]).x * 0x1p24f == 1.0);
}
`;

const PROBE_MS = 30_000;

/** Answers, by what adapters say that they are. */
const asked = new Map<string, Promise<boolean>>();

/** `flushesHalves` of a device of an adapter, whose like is asked once. */
export function adapterFlushes({ info }: Pick<GPUAdapter, 'info'>, gpu: GPUDevice): Promise<boolean> {
  const name = [info.vendor, info.architecture, info.device, info.description].join('\n');
  const answer = asked.get(name) ?? flushesHalves(gpu);
  asked.set(name, answer);
  return answer;
}

/** Whether a device takes subnormal f16s for zero where shaders unpack them, as WGSL allows. */
export async function flushesHalves(gpu: GPUDevice): Promise<boolean> {
  const label = 'subnormal halves';
  const buffer = (usage: number): GPUBuffer => gpu.createBuffer({ label, size: 4, usage });
  const value = buffer(GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_DST | GPUBufferUsage.COPY_SRC);
  const read = buffer(GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST);
  try {
    const module = shaderModule(gpu, label, WGSL);
    const pipeline = await gpu.createComputePipelineAsync({ label, layout: 'auto', compute: { module } });
    gpu.queue.writeBuffer(value, 0, Uint32Array.of(1));
    const encoder = gpu.createCommandEncoder({ label });
    const pass = encoder.beginComputePass({ label });
    pass.setPipeline(pipeline);
    const entries = [{ binding: 0, resource: { buffer: value } }];
    pass.setBindGroup(0, gpu.createBindGroup({ label, layout: pipeline.getBindGroupLayout(0), entries }));
    pass.dispatchWorkgroups(1);
    pass.end();
    encoder.copyBufferToBuffer(value, 0, read, 0, 4);
    gpu.queue.submit([encoder.finish()]);
    await inTime(read.mapAsync(GPUMapMode.READ), PROBE_MS);
    return new Uint32Array(read.getMappedRange())[0] === 0;
  } catch {
    // A device that can't be asked; loading says why, if it matters. Integers are right on every one.
    return true;
  } finally {
    value.destroy();
    read.destroy();
  }
}
