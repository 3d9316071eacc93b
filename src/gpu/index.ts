export { type AdapterRequest, noWebGpu, openDevice } from './adapters.js';
export { type AdapterDescription, Buffer, Device, type DeviceTraits } from './device.js';
export { defineKernel, type Grid, type GridSpec, type Kernel, type KernelPlan, type StepShape } from './kernel.js';
export { openPaperDevice } from './paper_device.js';
export { allRows, type Hop, Program, type ProgramStep, Recorder, type RowsOf, type Tensor } from './recorder.js';
