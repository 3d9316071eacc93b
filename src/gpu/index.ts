/**
 * Room: WebGPU devices and the programs that run on them; knows nothing of models. A kernel is declared (kernel.ts),
 * dispatches are recorded into a Program once and replayed each step (recorder.ts). Read kernel.ts next.
 */

export { type AdapterRequest, adapterFastPaths, adapterVariants, noWebGpu, openDevice } from './adapters.js';
export type { Choice } from './choices.js';
export { saysCpu } from './cpu_adapter.js';
export {
  type AdapterDescription,
  Buffer,
  Device,
  type DeviceTraits,
  type FastPath,
  type Replacement,
  type Variants,
} from './device.js';
export { type Kernel, type PipelineSource } from './kernel.js';
export { openPaperDevice } from './paper_device.js';
export {
  allRows,
  Program,
  type ProgramStep,
  Recorder,
  type RowsOf,
  type Tensor,
  type TimedPasses,
} from './recorder.js';
export { Submits } from './submits.js';
