/** WebGPU calls of a page, of all its devices. */
export interface GpuCalls {
  dispatches: number;
  passes: number;
  submits: number;
  maps: number;
}

/** What `body` calls of WebGPU in this thread; what it costs isn't measured at the same time. */
export async function countCalls(body: () => Promise<unknown>): Promise<GpuCalls> {
  const calls: GpuCalls = { dispatches: 0, passes: 0, submits: 0, maps: 0 };
  const undo = [
    count(GPUComputePassEncoder.prototype, 'dispatchWorkgroups', () => calls.dispatches++),
    count(GPUComputePassEncoder.prototype, 'dispatchWorkgroupsIndirect', () => calls.dispatches++),
    count(GPUCommandEncoder.prototype, 'beginComputePass', () => calls.passes++),
    count(GPUQueue.prototype, 'submit', () => calls.submits++),
    count(GPUBuffer.prototype, 'mapAsync', () => calls.maps++),
  ];
  try {
    await body();
  } finally {
    for (const restore of undo) restore();
  }
  return calls;
}

function count<T extends object>(prototype: T, name: keyof T, seen: () => void): () => void {
  const original = prototype[name] as (...args: unknown[]) => unknown;
  prototype[name] = function counted(this: T, ...args: unknown[]): unknown {
    seen();
    return original.apply(this, args);
  } as T[keyof T];
  return () => {
    prototype[name] = original as T[keyof T];
  };
}
